package store

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/idgen"
	"tidegate/pkg/wire"
)

// FromTimeout is the source of "no receipt came" news, beside wire's sources.
const FromTimeout = "timeout"

// Limits of texts in rows, in bytes. Longer reasons and details are cut, since
// they are for people; a longer name or id makes the letter unreadable.
const (
	maxText      = 500
	maxName      = 128
	maxReference = 512 // 128 characters of any script
	maxCarried   = 32  // steps that one letter may tell
)

// maxAhead is how far a sender's clock may be ahead of ours; a time beyond it
// is taken as now, so that one broken clock cannot put rows at the head of
// every list for ever.
const maxAhead = 24 * time.Hour

// News is one piece of news about one message: by ID where it is ours, by
// (Account, MsgID, OpenID) where WeChat names it.
type News struct {
	Source            string
	Kind              wire.Kind
	ID                string
	IdentityHash      string
	Account           string
	OpenID            string
	App               string
	Lane              string
	Template          string
	Reference         string
	CallbackID        string
	ResendOf          string
	State             wire.State
	Reason            string
	ErrCode           int
	MsgID             string
	Event             string
	Attempt           int
	Detail            string
	PossibleDuplicate bool
	Line              string
	At                int64
	// Born is when the message came to be, 0 where the news does not know. It
	// says in which partition the row is.
	Born   int64
	Letter []byte // of a push
	// Before are steps of the message that the letter tells on the way.
	Before []Step
}

// FromReceipt reads a receipt; seen is when its record was written, for
// letters without a time of their own. An error is of kind fault.Invalid and
// will stay: the letter belongs to the dead letters.
func FromReceipt(r *wire.Receipt, seen time.Time) (News, error) {
	return News{
		Source: r.Source, Kind: r.MessageKind, ID: r.ID, IdentityHash: r.IdentityHash, Account: r.Account,
		OpenID: r.OpenID, App: r.App, Lane: r.Lane, Template: r.TemplateID, Reference: r.Reference,
		CallbackID: r.CallbackID, ResendOf: r.ResendOf, State: r.State, Reason: r.Reason, ErrCode: r.ErrCode,
		MsgID: realMsgID(r.MsgID), Event: r.Event, Attempt: r.Attempt, Detail: r.Detail,
		PossibleDuplicate: r.PossibleDuplicate, Line: r.Line, At: r.At, Born: r.BornAt, Before: stepsOf(r.Steps),
	}.checked(seen)
}

// realMsgID drops the "0" of answers that carried none (wechat.md 5.3.6).
func realMsgID(s string) string {
	if s == "0" {
		return ""
	}
	return s
}

// FromPush is the news that a push is queued. letter is its encoded form,
// kept for a re-send.
func FromPush(p *wire.Push, letter []byte, seen time.Time) (News, error) {
	return News{
		Source: "intake", Kind: wire.KindPush, ID: p.ID, IdentityHash: p.IdentityHash, Account: p.Account,
		OpenID: p.OpenID, App: p.App, Lane: p.Lane, Template: p.TemplateID, Reference: p.Reference,
		ResendOf: p.ResendOf, State: wire.Queued, At: p.AcceptedAt, Born: p.AcceptedAt, Letter: letter,
	}.checked(seen)
}

// FromReply is the news that a reply is queued.
func FromReply(r *wire.Reply, seen time.Time) (News, error) {
	return News{
		Source: wire.FromRobot, Kind: wire.KindReply, ID: r.ID, IdentityHash: r.IdentityHash, Account: r.Account,
		OpenID: r.OpenID, Lane: wire.LaneReplies, CallbackID: r.CallbackID, State: wire.Queued, At: r.CreatedAt, Born: r.BornAt(), Detail: r.Rule,
	}.checked(seen)
}

// FromRepeat is the news that a user's repeat was acked and not worked (M9).
func FromRepeat(r *wire.Repeat, seen time.Time) (News, error) {
	return News{
		Source: wire.FromDoor, Kind: wire.KindCallback, ID: r.ID, IdentityHash: r.IdentityHash, Account: r.Account, OpenID: r.OpenID,
		State: wire.Repeated, Reason: r.Reason, At: r.At, Born: r.At, Detail: r.Action,
	}.checked(seen)
}

// checked refuses what could not be joined or stored, and cleans what is only
// text.
func (n News) checked(seen time.Time) (News, error) {
	const op = "read news"
	if n.ID != "" {
		if _, err := idgen.Parse(n.ID); err != nil {
			return News{}, fault.New(fault.Invalid, op, "id: %w", err).WithField("id")
		}
	} else if n.MsgID == "" || n.Source != wire.FromWeChat {
		return News{}, fault.New(fault.Invalid, op, "the letter names no message: neither id nor WeChat's msg_id").WithField("id")
	}
	if n.State.Rank() == 0 {
		return News{}, fault.New(fault.Invalid, op, "unknown state %q", cut(string(n.State), 40)).WithField("state")
	}
	if !wire.ValidAccount(n.Account) {
		return News{}, fault.New(fault.Invalid, op, "not an account's name").WithField("account")
	}
	if n.OpenID != "" && !wire.ValidOpenID(n.OpenID) {
		return News{}, fault.New(fault.Invalid, op, "not an openid").WithField("openid")
	}
	switch n.Kind {
	case wire.KindCallback, wire.KindReply, wire.KindPush:
	default:
		return News{}, fault.New(fault.Invalid, op, "unknown kind of message %q", cut(string(n.Kind), 40)).WithField("message_kind")
	}
	if err := n.checkNames(op); err != nil {
		return News{}, err
	}
	n.Reason, n.Detail = cut(n.Reason, maxText), cut(n.Detail, maxText)
	n.Attempt = min(max(n.Attempt, 0), 1<<20)
	if n.ErrCode != int(int32(n.ErrCode)) {
		n.ErrCode = 0 // not one of WeChat's, whose codes have 32 bits
	}
	if n.At <= 0 || n.At > seen.Add(maxAhead).UnixMilli() {
		n.At = seen.UnixMilli()
	}
	if n.Born < 0 || n.Born > seen.Add(maxAhead).UnixMilli() {
		n.Born = 0
	}
	n.checkBefore(seen)
	return n, nil
}

func (n *News) checkNames(op string) error {
	for _, f := range []struct {
		field, value string
		max          int
	}{
		{"identity_hash", n.IdentityHash, maxName}, {"app", n.App, maxName}, {"lane", n.Lane, maxName},
		{"template_id", n.Template, maxName}, {"reference", n.Reference, maxReference}, {"callback_id", n.CallbackID, maxName},
		{"resend_of", n.ResendOf, maxName}, {"msg_id", n.MsgID, maxName}, {"source", n.Source, maxName}, {"event", n.Event, maxName},
		{"line", n.Line, maxName},
	} {
		if f.value != cut(f.value, f.max) {
			return fault.New(fault.Invalid, op, "longer than %d bytes or not clean text", f.max).WithField(f.field)
		}
	}
	return nil
}

// digest tells pieces of news apart. WeChat's repeats and our own time-outs
// are the same news whenever they come; two tries of a sender are not.
func (n *News) digest() string {
	at := n.At
	if n.Source == wire.FromWeChat || n.Source == FromTimeout {
		at = 0
	}
	h := sha256.New()
	for _, s := range []string{n.Source, string(n.State), strconv.FormatInt(at, 10), strconv.Itoa(n.Attempt), strconv.Itoa(n.ErrCode), n.Reason, n.Event, n.MsgID} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// digest tells steps that a letter carried apart: the same step in a repeated
// letter is one line.
func (s *Step) digest() string {
	h := sha256.New()
	for _, t := range []string{s.Source, strconv.FormatInt(s.At, 10), s.Event, s.Detail} {
		h.Write([]byte(t))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// stepsOf reads the steps that a letter carries.
func stepsOf(steps []wire.Step) []Step {
	var out []Step
	for _, s := range steps[:min(len(steps), maxCarried)] {
		out = append(out, Step{Source: s.Room, Event: s.What, At: s.At, Detail: s.Detail, Line: s.Line})
	}
	return out
}

// checkBefore cleans carried steps: they are for people.
func (n *News) checkBefore(seen time.Time) {
	for i := range n.Before {
		s := &n.Before[i]
		s.Source, s.Event, s.Detail, s.Line = cut(s.Source, maxName), cut(s.Event, maxName), cut(s.Detail, maxText), cut(s.Line, maxName)
		if s.At <= 0 || s.At > seen.Add(maxAhead).UnixMilli() {
			s.At = n.At
		}
	}
}

func (n *News) step() Step {
	return Step{Source: n.Source, State: n.State, At: n.At, Attempt: n.Attempt, Reason: n.Reason, ErrCode: n.ErrCode, Event: n.Event, Detail: n.Detail, Line: n.Line}
}

// cut makes text that every engine stores: valid UTF-8 without NUL (which
// PostgreSQL refuses), at most n bytes.
func cut(s string, n int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "")
	}
	return s
}
