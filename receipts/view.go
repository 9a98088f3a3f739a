package receipts

import (
	"time"

	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

// view is a message as the API shows it. Ids are texts, since JavaScript
// rounds numbers beyond 2^53 (T52); times are RFC 3339 in UTC.
type view struct {
	ID                string     `json:"id"`
	Kind              wire.Kind  `json:"kind"`
	Account           string     `json:"account"`
	OpenID            string     `json:"openid,omitempty"`
	App               string     `json:"app,omitempty"`
	Lane              string     `json:"lane,omitempty"`
	TemplateID        string     `json:"template_id,omitempty"`
	Reference         string     `json:"reference,omitempty"`
	CallbackID        string     `json:"callback_id,omitempty"`
	ResendOf          string     `json:"resend_of,omitempty"`
	ResentAs          string     `json:"resent_as,omitempty"`
	State             wire.State `json:"state"`
	Terminal          bool       `json:"terminal"`
	Reason            string     `json:"reason,omitempty"`
	ErrCode           int        `json:"errcode,omitempty"`
	MsgID             string     `json:"msg_id,omitempty"`
	Attempts          int        `json:"attempts,omitempty"`
	PossibleDuplicate bool       `json:"possible_duplicate,omitempty"`
	Contradiction     string     `json:"contradiction,omitempty"`
	Detail            string     `json:"detail,omitempty"`
	FirstAt           string     `json:"first_at"`
	QueuedAt          string     `json:"queued_at,omitempty"`
	AcceptedAt        string     `json:"accepted_at,omitempty"`
	SettledAt         string     `json:"settled_at,omitempty"`
	UpdatedAt         string     `json:"updated_at"`
	Timeline          []stepView `json:"timeline,omitempty"`
	// Twins are other messages that share the id, which 63 bits make possible.
	Twins []view `json:"twins,omitempty"`
}

// stepView is one thing that happened. Message and Kind name whose it is where
// that is not the message that was asked for: the callback that a reply answers, or
// a reply to the callback.
type stepView struct {
	At      string     `json:"at"`
	Message string     `json:"message,omitempty"`
	Kind    wire.Kind  `json:"kind,omitempty"`
	Source  string     `json:"source"`
	State   wire.State `json:"state,omitempty"` // none for a step on the way to one
	Attempt int        `json:"attempt,omitempty"`
	Line    string     `json:"line,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	ErrCode int        `json:"errcode,omitempty"`
	Event   string     `json:"event,omitempty"`
	Detail  string     `json:"detail,omitempty"`
}

func viewOf(m *store.Message) view {
	return view{
		ID: m.ID, Kind: m.Kind, Account: m.Account, OpenID: m.OpenID, App: m.App, Lane: m.Lane, TemplateID: m.Template,
		Reference: m.Reference, CallbackID: m.CallbackID, ResendOf: m.ResendOf, ResentAs: m.ResentAs,
		State: m.State, Terminal: m.State.Terminal(), Reason: m.Reason, ErrCode: m.ErrCode, MsgID: m.MsgID, Attempts: m.Attempts,
		PossibleDuplicate: m.PossibleDuplicate, Contradiction: m.Contradiction, Detail: m.Detail,
		FirstAt: clock(m.At), QueuedAt: clock(m.QueuedAt), AcceptedAt: clock(m.AcceptedAt), SettledAt: clock(m.SettledAt), UpdatedAt: clock(m.UpdatedAt),
	}
}

func stepViewOf(s store.Step) stepView {
	return stepView{At: clock(s.At), Source: s.Source, State: s.State, Attempt: s.Attempt, Line: s.Line, Reason: s.Reason, ErrCode: s.ErrCode, Event: s.Event, Detail: s.Detail}
}

func clock(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
