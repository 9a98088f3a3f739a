package intake

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/wire"
)

// Request is the body of POST /v1/pushes.
type Request struct {
	Account    string `json:"account"`
	Kind       string `json:"kind"` // template (default), subscription or custom
	Lane       string `json:"lane"` // realtime (default) or bulk
	OpenID     string `json:"openid"`
	TemplateID string `json:"template_id"`
	Data       Values `json:"data"`
	URL        string `json:"url"`         // template only
	Page       string `json:"page"`        // subscription only
	MiniAppID  string `json:"mini_app_id"` // with mini_path: opens a mini program
	MiniPath   string `json:"mini_path"`
	Reference  string `json:"reference"` // the caller's own name for the message
	// IdempotencyKey may be given here or as the header Idempotency-Key.
	IdempotencyKey string `json:"idempotency_key"`
	ExpiresAt      string `json:"expires_at"` // RFC 3339; not sent after that

	// What came later is left out of the digest of a request that does not use it:
	// a repeat over an upgrade must find its key.
	NotBefore   string        `json:"not_before,omitempty"`   // RFC 3339; not sent before that
	CallbackURL string        `json:"callback_url,omitempty"` // where to tell what became of it
	Content     *wire.Content `json:"content,omitempty"`      // custom only
	Class       string        `json:"class,omitempty"`        // custom only: prefer_duplicate (default) or prefer_loss
}

// Values are a template's values by key.
type Values map[string]string

// valueError is a value that is no string. encoding/json would name only the
// whole object.
type valueError struct{ key string }

func (e *valueError) Error() string { return "data." + e.key + " is no string" }

// UnmarshalJSON takes strings only.
func (v *Values) UnmarshalJSON(b []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*v = make(Values, len(raw))
	for k, r := range raw {
		var s *string
		if err := json.Unmarshal(r, &s); err != nil || s == nil {
			return &valueError{key: k}
		}
		(*v)[k] = *s
	}
	return nil
}

// read takes the body strictly.
func (in *Intake) read(w http.ResponseWriter, r *http.Request) (*Request, error) {
	var req Request
	if err := named(api.Decode(w, r, in.cfg.MaxBody, &req)); err != nil {
		return nil, err
	}
	switch keys := r.Header.Values("Idempotency-Key"); {
	case len(keys) > 1:
		return nil, invalid("idempotency_key", "the header Idempotency-Key comes twice")
	case len(keys) == 1 && keys[0] == "":
		// A caller that believes in its key would send again, and twice.
		return nil, invalid("idempotency_key", "the header Idempotency-Key is empty: use 1 to %d printable ASCII characters or leave it out", maxKey)
	}
	if err := req.key(r.Header.Get("Idempotency-Key")); err != nil {
		return nil, err
	}
	req.defaults()
	return &req, nil
}

// named says which value of the data is no string.
func named(err error) error {
	var odd *valueError
	if errors.As(err, &odd) {
		return invalid("data."+cut(odd.key), "it must be a string: write \"12\" for 12, and the bare value instead of {\"value\": …}")
	}
	return err
}

// cut keeps a name from outside short.
func cut(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "")
	}
	return s
}

// defaults fills what may be left out.
func (r *Request) defaults() {
	if r.Kind == "" {
		r.Kind = wire.PushTemplate
	}
	if r.Lane == "" {
		r.Lane = wire.LaneRealtime
	}
}

// bodyHash digests what the request means, so that the order of its fields
// and its spaces do not count. The key itself is left out.
func (r Request) bodyHash() (string, error) {
	r.IdempotencyKey = ""
	b, err := json.Marshal(r)
	if err != nil {
		return "", fault.Wrap(fault.Internal, "digest push", err)
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:]), nil
}

// key reconciles the header with the field.
func (r *Request) key(header string) error {
	switch {
	case header == "":
	case r.IdempotencyKey == "" || r.IdempotencyKey == header:
		r.IdempotencyKey = header
	default:
		return invalid("idempotency_key", "it differs from the header Idempotency-Key: give one of them")
	}
	if r.IdempotencyKey != "" && !printable(r.IdempotencyKey, maxKey) {
		return invalid("idempotency_key", "use 1 to %d printable ASCII characters", maxKey)
	}
	return nil
}

// letter makes the push. at is when it was accepted.
func (r *Request) letter(app, id, identityHash, trace string, at time.Time, s span) *wire.Push {
	p := &wire.Push{
		ID: id, IdentityHash: identityHash,
		Account: r.Account, App: app, Lane: r.Lane, PushKind: r.Kind,
		OpenID: r.OpenID, TemplateID: r.TemplateID, Data: r.Data,
		URL: r.URL, Page: r.Page, MiniAppID: r.MiniAppID, MiniPath: r.MiniPath,
		Reference: r.Reference, AcceptedAt: wire.Millis(at), TraceParent: trace,
		CallbackURL: r.CallbackURL, Content: r.Content, Class: r.Class,
	}
	if !s.to.IsZero() {
		p.ExpiresAt = wire.Millis(s.to)
	}
	if !s.from.IsZero() {
		p.NotBefore = wire.Millis(s.from)
	}
	return p
}

func invalid(field, format string, args ...any) error {
	return fault.New(fault.Invalid, field, format, args...).WithField(field)
}
