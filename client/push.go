package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Kinds and lanes of pushes.
const (
	Template     = "template"     // the default
	Subscription = "subscription" // needs the follower's agreement
	Custom       = "custom"       // a customer-service message: Content instead of a template
	Realtime     = "realtime"     // the default: transaction notices
	Bulk         = "bulk"         // campaigns: after realtime
)

// What to do with a Custom message when it is not known whether it was sent.
const (
	PreferDuplicate = "prefer_duplicate" // the default: it goes again
	PreferLoss      = "prefer_loss"      // it ends as unknown
)

// Push is a message to one follower. Account and OpenID are needed, and TemplateID
// with Data or, for Custom, Content.
type Push struct {
	Account    string            `json:"account"`
	Kind       string            `json:"kind,omitempty"`
	Lane       string            `json:"lane,omitempty"`
	OpenID     string            `json:"openid"`
	TemplateID string            `json:"template_id,omitempty"`
	Data       map[string]string `json:"data,omitempty"`
	Content    *Content          `json:"content,omitempty"` // of Custom
	Class      string            `json:"class,omitempty"`   // of Custom
	URL        string            `json:"url,omitempty"`     // of template messages
	Page       string            `json:"page,omitempty"`    // of subscription messages
	MiniAppID  string            `json:"mini_app_id,omitempty"`
	MiniPath   string            `json:"mini_path,omitempty"`
	Reference  string            `json:"reference,omitempty"` // your own name for it, to find it again
	// CallbackURL is told, signed, what became of the message.
	CallbackURL string `json:"callback_url,omitempty"`
	// IdempotencyKey makes repeats safe: the same key is the same message, for
	// three days. Up to 128 printable ASCII characters. If it is empty the
	// client makes one up for this call.
	IdempotencyKey string `json:"-"`
	// ExpiresAt is when the message is no longer worth sending; zero: never.
	ExpiresAt time.Time `json:"-"`
	// NotBefore is when it may go; zero: at once.
	NotBefore time.Time `json:"-"`
}

// Accepted is a push that is durable in the queue.
type Accepted struct {
	ID    string `json:"id"` // 23 digits; keep it as text
	State string `json:"state"`
	// IdempotencyKey is the key that was used.
	IdempotencyKey string `json:"-"`
}

// Push queues a message. When it returns without an error the message is
// durable; WeChat has not seen it yet. An error that is a *Problem which is not
// Temporary means that it was not accepted and will not be; after any other
// error it may have been accepted, and calling again with the same
// IdempotencyKey is safe.
func (c *Client) Push(ctx context.Context, p Push) (Accepted, error) {
	if p.IdempotencyKey == "" {
		p.IdempotencyKey = "auto-" + rand.Text()
	}
	body, err := json.Marshal(struct {
		Push
		ExpiresAt string `json:"expires_at,omitempty"`
		NotBefore string `json:"not_before,omitempty"`
	}{p, rfc3339(p.ExpiresAt), rfc3339(p.NotBefore)})
	if err != nil {
		return Accepted{}, fmt.Errorf("push: %w", err)
	}
	a := Accepted{IdempotencyKey: p.IdempotencyKey}
	headers := map[string]string{"Idempotency-Key": p.IdempotencyKey}
	if err := c.call(ctx, http.MethodPost, c.pushes+"/v1/pushes", headers, body, http.StatusAccepted, &a); err != nil {
		return Accepted{IdempotencyKey: p.IdempotencyKey}, fmt.Errorf("push: %w", err)
	}
	return a, nil
}

func rfc3339(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}
