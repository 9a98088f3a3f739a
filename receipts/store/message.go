package store

import (
	"tidegate/pkg/wire"
)

// Message is one row. Times are Unix milliseconds, 0 where unknown.
type Message struct {
	ID           string
	Variant      int   // 0 but for ids that two identities share
	Part         int64 // the partition that the row lies in
	IdentityHash string
	Kind         wire.Kind
	Account      string
	OpenID       string
	App          string
	Lane         string
	Template     string
	Reference    string
	CallbackID   string // of a reply: its cause
	ResendOf     string // of a re-send: the message it repeats
	ResentAs     string // the newest re-send of this one
	State        wire.State
	Reason       string
	ErrCode      int
	MsgID        string // WeChat's
	Attempts     int
	// PossibleDuplicate says that the user may have seen the message twice.
	PossibleDuplicate bool
	// Contradiction is an end that was reported after another end, or "".
	Contradiction string
	Detail        string
	// At is the birth of the message where the first news tells it, else the time
	// of that news; it never changes.
	At         int64
	QueuedAt   int64
	AcceptedAt int64 // by WeChat
	SettledAt  int64
	UpdatedAt  int64 // by our clock
}

// Step is one line of a message's story.
type Step struct {
	Source  string
	State   wire.State
	At      int64
	Attempt int
	Reason  string
	ErrCode int
	Event   string
	Detail  string
	Line    string // the line out to WeChat that an attempt took
}

// take joins one piece of news into the row. Facts that are known stay, facts
// that are missing are filled; the state moves by the table of wire, and the
// reason always belongs to the state. It reports nothing: callers compare.
func (m *Message) take(n News) {
	fill(&m.IdentityHash, n.IdentityHash)
	fill(&m.Account, n.Account)
	fill(&m.OpenID, n.OpenID)
	fill(&m.App, n.App)
	fill(&m.Lane, n.Lane)
	fill(&m.Template, n.Template)
	fill(&m.Reference, n.Reference)
	fill(&m.CallbackID, n.CallbackID)
	fill(&m.ResendOf, n.ResendOf)
	fill(&m.MsgID, n.MsgID)
	if m.Kind == "" {
		m.Kind = n.Kind
	}
	if m.At == 0 {
		m.At = n.At
		if n.Born > 0 {
			m.At = n.Born
		}
	}
	m.Attempts = max(m.Attempts, n.Attempt)
	m.PossibleDuplicate = m.PossibleDuplicate || n.PossibleDuplicate
	switch n.State {
	case wire.Queued:
		m.QueuedAt = earlier(m.QueuedAt, n.At)
	case wire.Accepted:
		m.AcceptedAt = earlier(m.AcceptedAt, n.At)
	}
	m.move(n)
}

func (m *Message) move(n News) {
	next, contradicts := wire.Move(m.State, n.State)
	if contradicts {
		fill(&m.Contradiction, string(n.State))
	}
	if next == m.State {
		return
	}
	m.State, m.Reason, m.ErrCode, m.Detail = next, n.Reason, n.ErrCode, n.Detail
	if next.Terminal() {
		m.SettledAt = n.At
	}
}

// failed says whether the row belongs into the report of failures.
func (m *Message) failed() bool {
	info, _ := m.State.Info()
	return info.Failure
}

func fill(dst *string, src string) {
	if *dst == "" {
		*dst = src
	}
}

// earlier is the smaller of two times of which 0 means unknown.
func earlier(a, b int64) int64 {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}
