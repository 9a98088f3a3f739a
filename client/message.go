package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Message is what is known of a message: a push, a reply or a callback.
type Message struct {
	ID         string `json:"id"`
	Kind       string `json:"kind"` // push, reply or callback
	Account    string `json:"account"`
	OpenID     string `json:"openid"`
	App        string `json:"app"`
	Lane       string `json:"lane"`
	TemplateID string `json:"template_id"`
	Reference  string `json:"reference"`
	CallbackID string `json:"callback_id"`
	ResendOf   string `json:"resend_of"`
	ResentAs   string `json:"resent_as"`
	// State is where it stands: queued, accepted (WeChat took it), delivered,
	// rejected, unknown, … New states may appear; Terminal tells whether more
	// news is expected.
	State             string    `json:"state"`
	Terminal          bool      `json:"terminal"`
	Reason            string    `json:"reason"`
	ErrCode           int       `json:"errcode"`
	MsgID             string    `json:"msg_id"` // WeChat's; keep it as text
	Attempts          int       `json:"attempts"`
	PossibleDuplicate bool      `json:"possible_duplicate"`
	Detail            string    `json:"detail"`
	FirstAt           time.Time `json:"first_at"`
	QueuedAt          time.Time `json:"queued_at"`
	AcceptedAt        time.Time `json:"accepted_at"`
	SettledAt         time.Time `json:"settled_at"`
	UpdatedAt         time.Time `json:"updated_at"`
	Timeline          []Step    `json:"timeline"` // only from Message
}

// Step is one piece of news about a message.
type Step struct {
	At      time.Time `json:"at"`
	Source  string    `json:"source"`
	State   string    `json:"state"`
	Attempt int       `json:"attempt"`
	Reason  string    `json:"reason"`
	ErrCode int       `json:"errcode"`
	Event   string    `json:"event"`
	Detail  string    `json:"detail"`
}

// Message reads one message by its id. One that was accepted a moment ago may
// not be there yet: then the error is a *Problem with status 404.
func (c *Client) Message(ctx context.Context, id string) (Message, error) {
	var m Message
	if err := c.call(ctx, http.MethodGet, c.messages+"/v1/messages/"+url.PathEscape(id), nil, nil, http.StatusOK, &m); err != nil {
		return Message{}, fmt.Errorf("read message: %w", err)
	}
	return m, nil
}

// Query selects messages; everything given must hold.
type Query struct {
	OpenID     string
	App        string // other apps need a key with the scope apps:all
	Account    string
	Reference  string
	TemplateID string
	CallbackID string
	ResendOf   string
	States     []string // any of them
	Kinds      []string // any of push, reply, callback
	ErrCode    int
	// PossibleDuplicate asks for those only that may have been seen twice.
	PossibleDuplicate bool
	From, To          time.Time
	// PageSize is how many are read at once; 0 leaves it to the server.
	PageSize int
}

func (q Query) values() url.Values {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("openid", q.OpenID)
	set("app", q.App)
	set("account", q.Account)
	set("reference", q.Reference)
	set("template_id", q.TemplateID)
	set("callback_id", q.CallbackID)
	set("resend_of", q.ResendOf)
	set("state", strings.Join(q.States, ","))
	set("kind", strings.Join(q.Kinds, ","))
	set("from", rfc3339Nano(q.From))
	set("to", rfc3339Nano(q.To))
	if q.ErrCode != 0 {
		v.Set("errcode", strconv.Itoa(q.ErrCode))
	}
	if q.PossibleDuplicate {
		v.Set("possible_duplicate", "true")
	}
	if q.PageSize > 0 {
		v.Set("limit", strconv.Itoa(q.PageSize))
	}
	return v
}

func rfc3339Nano(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

// Messages walks through all messages that a query selects, page by page, as
// long as the loop goes on. An error ends the walk and comes with a zero
// message.
func (c *Client) Messages(ctx context.Context, q Query) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		v := q.values()
		for {
			var page struct {
				Messages []Message `json:"messages"`
				Next     string    `json:"next"`
			}
			if err := c.call(ctx, http.MethodGet, c.messages+"/v1/messages?"+v.Encode(), nil, nil, http.StatusOK, &page); err != nil {
				yield(Message{}, fmt.Errorf("list messages: %w", err))
				return
			}
			for _, m := range page.Messages {
				if !yield(m, nil) {
					return
				}
			}
			if page.Next == "" || page.Next == v.Get("cursor") {
				return
			}
			v.Set("cursor", page.Next)
		}
	}
}
