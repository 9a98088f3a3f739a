// Package history is what a fault run writes down while it happens, and what
// the checker reads afterwards: one JSON line for each event.
//
// Every writer of a run counts from the same start, so the lines of several
// files can be joined in the order in which they happened. An event is written
// after the fact that it tells, with one exception: an invoke is written before
// the first byte of the delivery goes out. So whatever the deployment does
// because of a delivery comes later in the history than its invoke.
//
// The words are those of Jepsen. Each delivery is one invoke and, later, one of
//
//	ok       answered 200 with success, nothing, or a passive answer: acked if in time
//	fail     answered in another way, or the connection was refused: not acked
//	unknown  no answer, or a broken one: the driver gave up or the connection broke
//
// Neither fail nor unknown says that the callback was not taken: a door that
// dies after the broker's acknowledgement answers nothing and has taken it.
package history

import (
	"fmt"
	"time"
)

// Kind is what an event tells.
type Kind string

// The kinds. Each names the fields that it fills besides At, Wall and Node.
const (
	// Invoke is the begin of delivery number Delivery of callback Token: Account,
	// OpenID, Identity. Node is the door that it goes to.
	Invoke Kind = "invoke"
	// OK, Fail and Unknown end it: Token, Delivery, Status (0: none), Answer,
	// Latency; Text says what was wrong.
	OK      Kind = "ok"
	Fail    Kind = "fail"
	Unknown Kind = "unknown"
	// Logged is one record of a callbacks topic: Token, ID, Account (of the
	// letter), OpenID, Key, Topic, Partition, Offset, Timestamp. Node is the reader.
	Logged Kind = "logged"
	// Reply is one message that the simulated WeChat showed to a user: Token,
	// Account, OpenID, Order.
	Reply Kind = "reply"
	// Fault is something that was broken (Phase Begin) or mended (Phase End), or
	// happened at once (Phase Once): What, Target, PID.
	Fault Kind = "fault"
	// Note is for people who read the history: Text.
	Note Kind = "note"
)

// Answer classes of a delivery, in the words of G2. Only the first three are
// acks.
const (
	Success   = "success"   // 200 and exactly "success"
	Empty     = "empty"     // 200 and nothing
	Passive   = "passive"   // 200 and a well-formed passive answer to this user, decrypted where the account is encrypted
	Refused   = "refused"   // 503: nothing durable can take it
	Malformed = "malformed" // anything else that was answered
	None      = "none"      // no answer
)

// Phases of a fault.
const (
	Begin = "begin"
	End   = "end"
	Once  = "once"
)

// Event is one line.
type Event struct {
	// At is monotonic, in nanoseconds since the start of the run; Wall is Unix
	// time in milliseconds.
	At   int64 `json:"at"`
	Wall int64 `json:"wall"`
	// Node is the process that the event is about.
	Node string `json:"node,omitempty"`
	Kind Kind   `json:"kind"`

	// Token is the unique mark in the callback's text that everything caused by
	// it carries on. Identity is the callback identity of reliability.md 2a.
	Token    string `json:"token,omitempty"`
	Account  string `json:"account,omitempty"`
	OpenID   string `json:"openid,omitempty"`
	Identity string `json:"identity,omitempty"`
	// Delivery counts from 1.
	Delivery int           `json:"delivery,omitempty"`
	Status   int           `json:"status,omitempty"`
	Answer   string        `json:"answer,omitempty"`
	Latency  time.Duration `json:"latency,omitempty"` // nanoseconds

	ID        string `json:"id,omitempty"`
	Key       string `json:"key,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Partition int32  `json:"partition,omitempty"`
	Offset    int64  `json:"offset,omitempty"`
	Timestamp int64  `json:"timestamp,omitempty"` // Unix ms
	Order     int64  `json:"order,omitempty"`

	What   string `json:"what,omitempty"`
	Target string `json:"target,omitempty"`
	PID    int    `json:"pid,omitempty"`
	Phase  string `json:"phase,omitempty"`
	Text   string `json:"text,omitempty"`
}

// String is the event as a person reads it in a report.
func (e Event) String() string {
	at := fmt.Sprintf("%10.3f ms %-8s", float64(e.At)/1e6, e.Kind)
	switch e.Kind {
	case Invoke:
		return fmt.Sprintf("%s %s delivery %d to %s (%s, %s)", at, e.Token, e.Delivery, e.Node, e.Account, e.OpenID)
	case OK, Fail, Unknown:
		return fmt.Sprintf("%s %s delivery %d: %d %s after %s %s", at, e.Token, e.Delivery, e.Status, e.Answer, e.Latency.Round(time.Millisecond/10), e.Text)
	case Logged:
		return fmt.Sprintf("%s %s as %s at %s/%d:%d key %s (%s, %s)", at, e.Token, e.ID, e.Topic, e.Partition, e.Offset, e.Key, e.Account, e.OpenID)
	case Reply:
		return fmt.Sprintf("%s %s reply %d to %s, %s", at, e.Token, e.Order, e.Account, e.OpenID)
	case Fault:
		return fmt.Sprintf("%s %s %s of %s (pid %d)", at, e.What, e.Phase, e.Target, e.PID)
	case Note:
		return at + " " + e.Text
	}
	return at
}
