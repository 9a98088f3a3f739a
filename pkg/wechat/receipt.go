package wechat

import (
	"strconv"
	"strings"
)

// Outcome is what WeChat reports about a message that we sent earlier.
type Outcome string

const (
	// OutcomeDelivered: it reached the user.
	OutcomeDelivered Outcome = "delivered"
	// OutcomeRefused: the user does not want messages of the account.
	OutcomeRefused Outcome = "refused_by_user"
	// OutcomeFailed: the platform did not deliver it, for a reason of its own.
	OutcomeFailed Outcome = "failed_by_platform"
	// OutcomeUnknown: a word that this release does not know; kept verbatim.
	OutcomeUnknown Outcome = "unknown"
)

// Reasons of failed template messages. The set is open: freq limit is in no
// documentation and was seen in the field for years.
const (
	FailedUserBlock = "user block"
	FailedSystem    = "system failed"
	FailedFreqLimit = "freq limit"
)

// maxReason bounds a reason that is kept verbatim, in bytes.
const maxReason = 256

// ParseStatus reads the Status of a template message's report. Only the word
// success is a success. What starts with failed is a failure whose reason, the
// part behind the first colon, is returned as WeChat wrote it; anything else is
// unknown and returned whole.
func ParseStatus(status string) (Outcome, string) {
	status = strings.TrimSpace(status)
	word, reason, _ := strings.Cut(status, ":")
	reason = cut(strings.TrimSpace(reason), maxReason)
	lower := strings.ToLower(strings.TrimSpace(word))
	switch {
	case strings.EqualFold(status, "success"):
		return OutcomeDelivered, ""
	case !strings.HasPrefix(lower, "failed"):
		return OutcomeUnknown, cut(status, maxReason)
	case strings.EqualFold(reason, FailedUserBlock):
		return OutcomeRefused, reason
	}
	return OutcomeFailed, reason
}

// MassStatus is the Status of a mass send's report.
type MassStatus struct {
	Outcome Outcome // delivered here means that the job ran; single recipients may still have failed
	Code    int     // N of err(N), else 0
	Text    string  // what WeChat wrote
}

// ParseMassStatus reads "send success", "send fail" and "err(N)", also in the
// spelling without the space that old accounts still get.
func ParseMassStatus(status string) MassStatus {
	text := cut(strings.TrimSpace(status), maxReason)
	m := MassStatus{Outcome: OutcomeUnknown, Text: text}
	word := strings.ToLower(strings.ReplaceAll(text, " ", ""))
	switch {
	case word == "sendsuccess":
		m.Outcome = OutcomeDelivered
	case word == "sendfail":
		m.Outcome = OutcomeFailed
	case strings.HasPrefix(word, "err(") && strings.HasSuffix(word, ")"):
		n, err := strconv.Atoi(word[len("err(") : len(word)-1])
		if err != nil {
			return m
		}
		m.Outcome, m.Code = OutcomeFailed, n
	}
	return m
}

// ReceiptItem is one report about one message.
type ReceiptItem struct {
	Event      string
	MsgID      string // WeChat's id of the message, as text; may be empty
	TemplateID string // of subscription messages
	Outcome    Outcome
	Reason     string // as WeChat wrote it
	ErrCode    int    // of subscription messages and of mass sends, else 0
}

func isReceiptEvent(event string) bool {
	switch event {
	case EventTemplateSent, EventMassSent, EventSubscribeMsgSent:
		return true
	}
	return false
}

// IsReceipt reports whether this is a report about messages that we (or others
// with the same account) sent. It is decided by the header, which stands in
// front of anything that a user wrote, and by a document that is strictly in
// form: no follower's words can make a receipt.
func (m *Message) IsReceipt() bool {
	return !m.Quarantined && m.MsgType == TypeEvent && isReceiptEvent(m.Event)
}

// checkReceipt demands a strict form. These documents hold no words of users,
// so WeChat has no reason to write anything twice or to leave the id out.
func (m *Message) checkReceipt() Reason {
	seen := make(map[string]bool, len(m.nodes))
	for i := range m.nodes {
		n := &m.nodes[i]
		if n.depth != 1 {
			continue
		}
		if seen[n.name] {
			return QuarantineReceipt
		}
		seen[n.name] = true
	}
	if m.Event == EventSubscribeMsgSent {
		items := m.list()
		if len(items) == 0 {
			return QuarantineReceipt
		}
		for _, it := range items {
			if id := strings.TrimSpace(it.Get("MsgID")); !isMsgID(id) {
				return QuarantineReceipt
			}
		}
		return ""
	}
	if m.MsgID == "" || !isMsgID(m.MsgID) {
		m.MsgID = ""
		return QuarantineReceipt
	}
	return ""
}

// Receipts returns the reports that a receipt holds, in document order: one per
// List item of a subscription report, else one. It is empty for anything else.
func (m *Message) Receipts() []ReceiptItem {
	if !m.IsReceipt() {
		return nil
	}
	switch m.Event {
	case EventTemplateSent:
		outcome, reason := ParseStatus(m.Get("Status"))
		return []ReceiptItem{{Event: m.Event, MsgID: m.MsgID, Outcome: outcome, Reason: reason}}
	case EventMassSent:
		s := ParseMassStatus(m.Get("Status"))
		return []ReceiptItem{{Event: m.Event, MsgID: m.MsgID, Outcome: s.Outcome, Reason: s.Text, ErrCode: s.Code}}
	}
	items := m.list()
	out := make([]ReceiptItem, 0, len(items))
	for _, it := range items {
		out = append(out, subscribeReceipt(it))
	}
	return out
}

// subscribeReceipt reads one item of subscribe_msg_sent_event. Success needs
// both the number and the word. A user's refusal (no subscription left or
// refused, messages blocked, blacklisted) is told by the errcodes of the send API.
func subscribeReceipt(e Element) ReceiptItem {
	status := strings.TrimSpace(e.Get("ErrorStatus"))
	code, err := strconv.Atoi(strings.TrimSpace(e.Get("ErrorCode")))
	r := ReceiptItem{
		Event:      EventSubscribeMsgSent,
		MsgID:      strings.TrimSpace(e.Get("MsgID")),
		TemplateID: strings.TrimSpace(e.Get("TemplateId")),
		Reason:     cut(status, maxReason),
		ErrCode:    code,
	}
	switch {
	case err != nil:
		r.Outcome = OutcomeUnknown
	case code == 0 && strings.EqualFold(status, "success"):
		r.Outcome, r.Reason = OutcomeDelivered, ""
	case code == 0:
		r.Outcome = OutcomeUnknown
	case code == 43101 || code == 48002 || code == 43019:
		r.Outcome = OutcomeRefused
	default:
		r.Outcome = OutcomeFailed
	}
	return r
}

// cut shortens s to at most limit bytes without cutting a character in two.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && s[limit]&0xC0 == 0x80 {
		limit--
	}
	return s[:limit]
}
