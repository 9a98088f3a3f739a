package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// WebhookTolerance is how far the time of a webhook may be from ours: a copy
// that somebody kept is refused after it.
const WebhookTolerance = 5 * time.Minute

// maxWebhookSignatures bounds how many signatures of one request are looked at.
const maxWebhookSignatures = 16

// ErrWebhook is in the chain of every refusal of VerifyWebhook.
var ErrWebhook = errors.New("not a webhook of ours")

// WebhookEvent is what a webhook tells: a message of the app has reached a state.
type WebhookEvent struct {
	// ID is the same on every attempt: who remembers the ids that he has worked
	// works no event twice.
	ID        string
	Type      string    `json:"type"` // message.delivered, …
	Timestamp time.Time `json:"timestamp"`
	Data      struct {
		ID         string `json:"id"`
		Account    string `json:"account"`
		App        string `json:"app"`
		OpenID     string `json:"openid"`
		Lane       string `json:"lane"`
		TemplateID string `json:"template_id"`
		Reference  string `json:"reference"`
		ResendOf   string `json:"resend_of"`
		State      string `json:"state"`
		Terminal   bool   `json:"terminal"`
		// Rank grows with every change of one message: an event whose rank is not
		// higher than one already seen is old.
		Rank              int    `json:"rank"`
		Reason            string `json:"reason"`
		ErrCode           int    `json:"errcode"`
		MsgID             string `json:"msg_id"`
		Attempts          int    `json:"attempts"`
		PossibleDuplicate bool   `json:"possible_duplicate"`
	} `json:"data"`
}

// VerifyWebhook checks that a request came from a holder of one of the secrets
// (whsec_…), unchanged and within WebhookTolerance of now, and reads it. body is
// the body as it came, byte by byte. While secrets are exchanged, give both.
func VerifyWebhook(secrets []string, h http.Header, body []byte, now time.Time) (*WebhookEvent, error) {
	id, stamp := h.Get("Webhook-Id"), h.Get("Webhook-Timestamp")
	if id == "" || stamp == "" || h.Get("Webhook-Signature") == "" {
		return nil, fmt.Errorf("%w: a header is missing: Webhook-Id, Webhook-Timestamp or Webhook-Signature", ErrWebhook)
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: Webhook-Timestamp is no number", ErrWebhook)
	}
	if d := now.Unix() - seconds; d > int64(WebhookTolerance/time.Second) || d < -int64(WebhookTolerance/time.Second) {
		return nil, fmt.Errorf("%w: its time is more than %s away: set this machine's clock, or somebody repeats an old one", ErrWebhook, WebhookTolerance)
	}
	same, err := signedByOne(secrets, id+"."+stamp+".", body, h.Get("Webhook-Signature"))
	if err != nil {
		return nil, err
	}
	if !same {
		return nil, fmt.Errorf("%w: no signature fits the secret", ErrWebhook)
	}
	e := &WebhookEvent{}
	if err := json.Unmarshal(body, e); err != nil {
		return nil, fmt.Errorf("read webhook %s: %w", id, err)
	}
	e.ID = id
	return e, nil
}

// signedByOne compares every signature with every secret, in a time that does
// not depend on where they differ.
func signedByOne(secrets []string, head string, body []byte, header string) (bool, error) {
	if len(secrets) == 0 {
		return false, errors.New("verify webhook: give the secret of the app's webhooks")
	}
	given := strings.Fields(header)
	given = given[:min(len(given), maxWebhookSignatures)]
	found := false
	for _, s := range secrets {
		encoded, ok := strings.CutPrefix(s, "whsec_")
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(key) == 0 {
			return false, errors.New("verify webhook: a secret is not whsec_ and base64")
		}
		m := hmac.New(sha256.New, key)
		m.Write([]byte(head))
		m.Write(body)
		want := m.Sum(nil)
		for _, g := range given {
			sum, v1 := strings.CutPrefix(g, "v1,")
			got, err := base64.StdEncoding.DecodeString(sum)
			if v1 && err == nil && hmac.Equal(got, want) {
				found = true
			}
		}
	}
	return found, nil
}
