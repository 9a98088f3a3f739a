package wechatsim

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// EntryKind says what one line of the journal records.
type EntryKind string

// The kinds of entries.
const (
	// KindStimulus is a callback that came into being: a user acted or a
	// receipt fell due.
	KindStimulus EntryKind = "stimulus"
	// KindDelivery is one finished try to deliver a callback.
	KindDelivery EntryKind = "delivery"
	// KindSettled ends the tries of one callback.
	KindSettled EntryKind = "settled"
	// KindArrival is one API request, written before it is answered.
	KindArrival EntryKind = "arrival"
	// KindExpect is a push that a test announced.
	KindExpect EntryKind = "expect"
	// KindNote is an event of the simulator itself: a pause, a moved clock.
	KindNote EntryKind = "note"
)

// How the simulator judged a server's answer to a delivery.
const (
	JudgedSuccess = "success" // the seven bytes
	JudgedEmpty   = "empty"   // zero-length body
	JudgedPassive = "passive" // a well-formed passive reply
	JudgedIllegal = "illegal" // status 200 with anything else
	JudgedStatus  = "status"  // a status other than 200
	JudgedTimeout = "timeout" // no complete answer in time
	JudgedBroken  = "broken"  // no connection, or it was cut
	JudgedSkipped = "skipped" // not sent: WeChat pauses this account
)

// Entry is one line of the journal. Times ending in _ns are monotonic
// nanoseconds since the journal began (over restarts, if it is kept in a file).
type Entry struct {
	Seq  uint64    `json:"seq"`
	Kind EntryKind `json:"kind"`
	At   int64     `json:"at_ns"`
	// Wall is business time in Unix milliseconds.
	Wall    int64  `json:"wall_ms"`
	Account string `json:"account,omitempty"`
	OpenID  string `json:"openid,omitempty"`

	// What is the message type or event name of a stimulus, the path of an arrival,
	// or the text of a note.
	What string `json:"what,omitempty"`
	// Stimulus numbers the callback; it is the same in all its entries.
	Stimulus uint64 `json:"stimulus,omitempty"`
	// Tokens are the marks of the stimulus itself, or those found in an answer.
	Tokens []string `json:"tokens,omitempty"`
	// Wants is how many replies the stimulus should get.
	Wants int `json:"wants,omitempty"`
	// RepeatOf names the stimulus whose menu was pressed again by an impatient user.
	RepeatOf uint64 `json:"repeat_of,omitempty"`

	Attempt  int    `json:"attempt,omitempty"`
	Sent     int64  `json:"sent_ns,omitempty"`
	Answered int64  `json:"answered_ns,omitempty"`
	Status   int    `json:"status,omitempty"`
	Judged   string `json:"judged,omitempty"`
	Error    string `json:"error,omitempty"`
	// Acked tells, in a settled entry, whether any delivery was accepted.
	Acked bool `json:"acked,omitempty"`

	MsgType     string `json:"msg_type,omitempty"`
	ClientMsgID string `json:"client_msg_id,omitempty"`
	MsgID       int64  `json:"msg_id,omitempty,string"`
	Errcode     int    `json:"errcode,omitempty"`
	// Applied tells that WeChat did what was asked, whatever the caller learns.
	Applied bool `json:"applied,omitempty"`
	// Visible tells that WeChat sent the user something new by it, rather than
	// absorbing a repeat.
	Visible bool   `json:"visible,omitempty"`
	Fault   string `json:"fault,omitempty"`
	Text    string `json:"text,omitempty"`
}

// accepted tells whether a delivery's answer ends its repeats.
func accepted(judged string) bool {
	return judged == JudgedSuccess || judged == JudgedEmpty || judged == JudgedPassive
}

// maxText bounds the text kept per entry.
const maxText = 512

func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// A mark is letters and digits only, so that neither JSON, XML nor HTML escaping
// can change it on its way through a server under test.
const (
	markPrefix = "tgq"
	markRun    = 5
	markDigits = 8
	markLen    = len(markPrefix) + markRun + markDigits
)

// marker makes the marks of one run.
type marker struct{ run string }

func newMarker(r *rand.Rand) marker {
	n := r.Uint64() % 60466176 // 36^5
	return marker{pad36(n, markRun)}
}

// mark is the mark of number n.
func (m marker) mark(n uint64) string { return markPrefix + m.run + pad36(n, markDigits) }

func pad36(n uint64, width int) string {
	s := strconv.FormatUint(n, 36)
	if len(s) >= width {
		return s[len(s)-width:]
	}
	return strings.Repeat("0", width-len(s)) + s
}

// findMarks returns the distinct marks in text, in order.
func findMarks(text string) []string {
	var found []string
	for {
		i := strings.Index(text, markPrefix)
		if i < 0 {
			return found
		}
		text = text[i:]
		if m, ok := markAt(text); ok {
			if !contains(found, m) {
				found = append(found, m)
			}
			text = text[markLen:]
			continue
		}
		text = text[len(markPrefix):]
	}
}

func markAt(s string) (string, bool) {
	if len(s) < markLen {
		return "", false
	}
	for _, c := range []byte(s[len(markPrefix):markLen]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return "", false
		}
	}
	return s[:markLen], true
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}
