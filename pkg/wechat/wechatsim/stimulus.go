package wechatsim

import (
	"strconv"
	"strings"
	"time"
)

// Event names in the exact case that WeChat uses.
const (
	EventSubscribe      = "subscribe"
	EventUnsubscribe    = "unsubscribe"
	EventScan           = "SCAN"
	EventClick          = "CLICK"
	EventView           = "VIEW"
	EventLocation       = "LOCATION"
	EventTemplateFinish = "TEMPLATESENDJOBFINISH"
	EventSubscribeSent  = "subscribe_msg_sent_event"
	EventPopup          = "subscribe_msg_popup_event"
)

// Stimulus is one thing that happens to an account: a user's act or a receipt.
type Stimulus struct {
	OpenID string
	// Type is a message type (text, image, …) or, with Event set, "event".
	Type  string
	Event string
	// Fields are the elements after the common ones, in order.
	Fields []Field
	// MenuItem, on a text, is the id of the msgmenu item that was clicked.
	MenuItem string
	// Raw, if set, is the whole plain document and replaces all of the above
	// except OpenID.
	Raw string
	// Token is the mark that Fields carry, if any; Wants is how many replies
	// naming it the server should send.
	Token string
	Wants int
	// RepeatOf is the number of the callback that this one presses again.
	RepeatOf uint64

	msgID int64 // of receipts, for the journal
}

// Field is one element. Number fields are written bare, text as CDATA; a
// field with Sub holds elements instead.
type Field struct {
	Name   string
	Text   string
	Number bool
	Sub    []Field
}

func text(name, value string) Field { return Field{Name: name, Text: value} }

func number(name string, n int64) Field {
	return Field{Name: name, Text: strconv.FormatInt(n, 10), Number: true}
}

// what names the stimulus for the journal.
func (s Stimulus) what() string {
	switch {
	case s.Raw != "":
		return "raw"
	case s.Event != "":
		return s.Event
	}
	return s.Type
}

// answerable tells whether WeChat shows a passive reply to it: receipts,
// positions, unsubscribe and link presses take success or nothing.
func (s Stimulus) answerable() bool {
	switch s.Event {
	case EventUnsubscribe, EventLocation, EventView, EventTemplateFinish, EventSubscribeSent, EventPopup, "view_miniprogram":
		return false
	}
	return true
}

// document writes the plain XML as WeChat orders it. Messages, not events, end
// with their MsgId.
func (s Stimulus) document(ghID string, created time.Time, msgID int64, splitCDATA bool) []byte {
	if s.Raw != "" {
		return []byte(s.Raw)
	}
	var b strings.Builder
	w := docWriter{&b, splitCDATA}
	b.WriteString("<xml>")
	w.field(text("ToUserName", ghID))
	w.field(text("FromUserName", s.OpenID))
	w.field(number("CreateTime", created.Unix()))
	if s.Event != "" {
		w.field(text("MsgType", "event"))
		w.field(text("Event", s.Event))
	} else {
		w.field(text("MsgType", s.Type))
	}
	for _, f := range s.Fields {
		w.field(f)
	}
	if s.Event == "" {
		w.field(number("MsgId", msgID))
	}
	if s.MenuItem != "" {
		w.field(Field{Name: "bizmsgmenuid", Text: s.MenuItem, Number: true})
	}
	b.WriteString("</xml>")
	return []byte(b.String())
}

type docWriter struct {
	b     *strings.Builder
	split bool
}

func (w docWriter) field(f Field) {
	w.b.WriteString("<" + f.Name + ">")
	switch {
	case f.Sub != nil:
		for _, sub := range f.Sub {
			w.field(sub)
		}
	case f.Number:
		w.b.WriteString(f.Text)
	default:
		w.b.WriteString("<![CDATA[" + w.cdata(f.Text) + "]]>")
	}
	w.b.WriteString("</" + f.Name + ">\n")
}

// cdata is where open point 3 is decided: WeChat seems to pass "]]>" of user
// text through as it is.
func (w docWriter) cdata(s string) string {
	if !w.split {
		return s
	}
	return strings.ReplaceAll(s, "]]>", "]]]]><![CDATA[>")
}
