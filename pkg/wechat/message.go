package wechat

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"tidegate/pkg/fault"
)

// Message types and events that this package treats in a way of their own. Any
// other name is carried along unread: new ones must never be an error.
const (
	TypeEvent = "event"

	TypeText            = "text"
	TypeImage           = "image"
	TypeVoice           = "voice"
	TypeVideo           = "video"
	TypeShortVideo      = "shortvideo"
	TypeLocation        = "location"
	TypeLink            = "link"
	TypeFile            = "file"
	TypeMiniProgramPage = "miniprogrampage"

	EventSubscribe       = "subscribe"
	EventUnsubscribe     = "unsubscribe"
	EventScan            = "SCAN"
	EventLocation        = "LOCATION"
	EventClick           = "CLICK"
	EventView            = "VIEW"
	EventScanCodePush    = "scancode_push"
	EventScanCodeWaitMsg = "scancode_waitmsg"
	EventLocationSelect  = "location_select"

	EventTemplateSent       = "TEMPLATESENDJOBFINISH"
	EventMassSent           = "MASSSENDJOBFINISH"
	EventSubscribeMsgSent   = "subscribe_msg_sent_event"
	EventSubscribeMsgPopup  = "subscribe_msg_popup_event"
	EventSubscribeMsgChange = "subscribe_msg_change_event"
	EventPublished          = "PUBLISHJOBFINISH"
)

// Reasons of a quarantine. The values are fit for a metric label.
const (
	QuarantineDoctype   Reason = "doctype"   // a declaration in front of the root
	QuarantineEncoding  Reason = "encoding"  // an encoding other than UTF-8
	QuarantineNotXML    Reason = "not_xml"   // no root element
	QuarantineTruncated Reason = "truncated" // the document ends inside an element
	QuarantineStructure Reason = "structure" // not the structure that WeChat writes
	QuarantineLimits    Reason = "limits"    // too deep or too many elements
	QuarantineHeader    Reason = "header"    // a header element is missing, malformed or behind user text
	QuarantineSender    Reason = "sender"    // the sender is contradicted by the query string or by itself
	QuarantineReceipt   Reason = "receipt"   // a receipt that is not strictly in form
	QuarantineMsgID     Reason = "msg_id"    // the message id is no id
)

const (
	// maxMsgID bounds a message id; WeChat's have up to 19 digits (S25).
	maxMsgID = 64
	// maxEventName bounds MsgType and Event.
	maxEventName = 64
)

// Message is one message or event of a follower, or a report about something
// that we sent. Texts are valid UTF-8 without control characters.
type Message struct {
	ToUserName   string // the account's gh_ id
	FromUserName string // the openid; of mass reports an account-side id
	CreateTime   int64  // seconds since 1970 by WeChat's clock
	MsgType      string
	Event        string // only if MsgType is event
	EventKey     string // only if MsgType is event
	MsgID        string // MsgId or MsgID, as text: it may exceed what a float holds
	Content      string // of text messages, white space included

	// Quarantined says that the document contradicts itself or what we know, so
	// that it must be kept but never worked. Reason tells why. Fields that could
	// be read without doubt are set; FromUserName is empty if the sender is what
	// is in doubt. Identities works, by a hash of the document.
	Quarantined bool
	Reason      Reason
	// Ambiguous says that a header element or the message id stands in the
	// document more than once with different values, and that the rule of "first
	// header, last id" decided. The message can be worked.
	Ambiguous bool

	hash  string // SHA-256 of the document in hex; only if it is the identity
	nodes []node
}

// ParseMessage reads a message document. openid is the sender that the query
// string named, or empty if it named none; it must agree with the document.
//
// The document is authentic, but it holds words of users which WeChat does not
// quote safely. What keeps them harmless: header elements count only where they
// stand first and in front of any user text; an element of user text reaches to
// the last place that could end it; the message id is the last one; a report
// about a send must be strictly in form. What is still contradictory comes back
// quarantined. The only error is a document over MaxBody (fault.Invalid).
func ParseMessage(plain []byte, openid string) (*Message, error) {
	if len(plain) > MaxBody {
		return nil, fault.New(fault.Invalid, "parse message", "document has %d bytes, the limit is %d", len(plain), MaxBody)
	}
	m := &Message{}
	reason := m.read(plain, openid)
	if reason != "" {
		m.Quarantined, m.Reason = true, reason
	}
	if m.Quarantined || (m.MsgType != TypeEvent && m.MsgID == "") {
		sum := sha256.Sum256(plain)
		m.hash = hex.EncodeToString(sum[:])
	}
	return m, nil
}

func (m *Message) read(plain []byte, openid string) Reason {
	inner, p := readProlog(plain)
	switch p {
	case prologDoctype:
		return QuarantineDoctype
	case prologEncoding:
		return QuarantineEncoding
	case prologMissing:
		return QuarantineNotXML
	}
	sc, reason := scanDocument(string(inner))
	m.nodes = sc.nodes
	// A character reference can name what the document itself does not hold.
	if !isClean(sc.s) || strings.Contains(sc.s, "&#") {
		for i := range m.nodes {
			m.nodes[i].value = clean(m.nodes[i].value)
		}
	}
	header := m.header(sc.freeAt)
	sender := m.checkSender(openid)
	for _, r := range []Reason{reason, header, sender} {
		if r != "" {
			return r
		}
	}
	return m.body()
}

// header reads the elements that WeChat writes in front of everything else.
// limit is the number of nodes in front of the first user text: what stands
// behind it may have been typed there.
func (m *Message) header(limit int) Reason {
	if limit < 0 {
		limit = len(m.nodes)
	}
	head := m.nodes[:limit]
	m.ToUserName = firstTop(head, "ToUserName")
	m.FromUserName = firstTop(head, "FromUserName")
	m.MsgType = strings.TrimSpace(firstTop(head, "MsgType"))
	created := strings.TrimSpace(firstTop(head, "CreateTime"))
	for _, name := range [...]string{"ToUserName", "FromUserName", "CreateTime", "MsgType"} {
		m.Ambiguous = m.Ambiguous || m.contradicts(name)
	}
	if m.MsgType == TypeEvent {
		m.Event = strings.TrimSpace(firstTop(head, "Event"))
		m.EventKey = firstTop(head, "EventKey")
	}
	if !IsOpenID(m.ToUserName) {
		m.ToUserName = ""
	}
	if !IsOpenID(m.FromUserName) {
		m.FromUserName = ""
	}
	switch {
	case m.ToUserName == "", m.FromUserName == "":
		return QuarantineHeader
	case !isTimestamp(created), m.MsgType == "", len(m.MsgType) > maxEventName:
		return QuarantineHeader
	case m.MsgType == TypeEvent && (m.Event == "" || len(m.Event) > maxEventName):
		return QuarantineHeader
	}
	m.CreateTime, _ = strconv.ParseInt(created, 10, 64)
	return ""
}

// checkSender holds the sender against the query string. Reports about mass
// sends and publications name an account-side id instead of a follower, so
// there is nothing to compare. Without an openid in the query, two different
// senders in the document leave open which is the real one.
func (m *Message) checkSender(openid string) Reason {
	if m.MsgType == TypeEvent && (m.Event == EventMassSent || m.Event == EventPublished) {
		return ""
	}
	if openid == "" {
		if m.contradicts("FromUserName") {
			m.FromUserName = ""
			return QuarantineSender
		}
		return ""
	}
	if m.FromUserName != "" && m.FromUserName != openid {
		m.FromUserName = ""
		return QuarantineSender
	}
	return ""
}

// body reads what is left once header and sender are in order.
func (m *Message) body() Reason {
	if m.MsgType == TypeEvent {
		m.MsgID = strings.TrimSpace(m.Get("MsgID"))
		if m.MsgID == "" {
			m.MsgID = strings.TrimSpace(m.Get("MsgId"))
		}
		if isReceiptEvent(m.Event) {
			return m.checkReceipt()
		}
	} else {
		m.Ambiguous = m.Ambiguous || m.contradicts("MsgId")
		m.MsgID = strings.TrimSpace(lastTop(m.nodes, "MsgId"))
		if m.MsgID == "" {
			m.MsgID = strings.TrimSpace(lastTop(m.nodes, "MsgID"))
		}
		if m.MsgType == TypeText {
			m.Content = m.Get("Content")
		}
	}
	if m.MsgID != "" && !isMsgID(m.MsgID) {
		m.MsgID = ""
		return QuarantineMsgID
	}
	return ""
}

// isMsgID accepts what fits an id: WeChat's are numbers, WeCom's became text.
func isMsgID(s string) bool { return isPrintable(s, maxMsgID) && !strings.Contains(s, " ") }

// contradicts reports whether the top-level element stands in the document
// with two different values.
func (m *Message) contradicts(name string) bool {
	first, found := "", false
	for i := range m.nodes {
		n := &m.nodes[i]
		if n.depth != 1 || n.name != name {
			continue
		}
		if found && n.value != first {
			return true
		}
		first, found = n.value, true
	}
	return false
}

func firstTop(nodes []node, name string) string {
	for i := range nodes {
		if nodes[i].depth == 1 && nodes[i].name == name {
			return nodes[i].value
		}
	}
	return ""
}

func lastTop(nodes []node, name string) string {
	for i := len(nodes) - 1; i >= 0; i-- {
		if nodes[i].depth == 1 && nodes[i].name == name {
			return nodes[i].value
		}
	}
	return ""
}

// String names the message without anything personal, for errors and logs.
func (m *Message) String() string {
	if m.Quarantined {
		return fmt.Sprintf("quarantined message (%s)", m.Reason)
	}
	if m.MsgType == TypeEvent {
		return "event " + m.Event
	}
	return "message " + m.MsgType
}
