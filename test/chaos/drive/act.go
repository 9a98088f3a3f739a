package drive

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Account is a service account as WeChat knows it.
type Account struct {
	Name, AppID, GhID, Token string
	// EncodingAESKey makes the account a safe one; empty is plain text.
	EncodingAESKey string
}

// Act is something that a user did: a text, or an event. The same act is the
// same callback in all its deliveries.
type Act struct {
	Token   string // the mark that the document carries: see Mark
	Account string // its name
	OpenID  string
	// MsgID is that of a text. CreateTime is in Unix seconds.
	MsgID      uint64
	CreateTime int64
	// Event and EventKey make it an event.
	Event, EventKey string
	// Pad makes a text longer, by so many bytes.
	Pad int
}

// Identity is that of reliability.md 2a.
func (a Act) Identity() string {
	if a.Event == "" {
		return strings.Join([]string{"msg", a.Account, a.OpenID, strconv.FormatUint(a.MsgID, 10)}, "|")
	}
	return strings.Join([]string{"event", a.Account, a.OpenID, strconv.FormatInt(a.CreateTime, 10), a.Event, a.EventKey}, "|")
}

// filler makes a document as large as a usual one.
var filler = strings.Repeat("where is my parcel? ", 12)

// document is the XML of the act, written by hand: a writer of ours would make
// the same mistake as our reader.
func (a Act) document(ghID string) []byte {
	head := fmt.Sprintf("<xml><ToUserName><![CDATA[%s]]></ToUserName>\n<FromUserName><![CDATA[%s]]></FromUserName>\n<CreateTime>%d</CreateTime>\n", ghID, a.OpenID, a.CreateTime)
	if a.Event == "" {
		return fmt.Appendf(nil, "%s<MsgType><![CDATA[text]]></MsgType>\n<Content><![CDATA[%s %s%s]]></Content>\n<MsgId>%d</MsgId>\n</xml>", head, a.Token, filler, strings.Repeat("x", a.Pad), a.MsgID)
	}
	return fmt.Appendf(nil, "%s<MsgType><![CDATA[event]]></MsgType>\n<Event><![CDATA[%s]]></Event>\n<EventKey><![CDATA[%s]]></EventKey>\n<Ticket><![CDATA[%s]]></Ticket>\n</xml>", head, a.Event, a.EventKey, a.Token)
}

var mark = regexp.MustCompile(`#[0-9a-z]{1,20}\.[0-9]{1,12}#`)

// Mark makes the token of act n in a run.
func Mark(run string, n int) string { return fmt.Sprintf("#%s.%d#", run, n) }

// FindMark gives the first token in a text, or "".
func FindMark(text []byte) string { return string(mark.Find(text)) }
