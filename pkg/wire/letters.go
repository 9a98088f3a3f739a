package wire

import (
	"cmp"
	"strings"
	"time"
)

// Callback is one message or event that WeChat posted, as the door read it.
// Times are Unix milliseconds unless named otherwise.
type Callback struct {
	ID           string            `json:"id"`            // derived from the identity (D3)
	IdentityHash string            `json:"identity_hash"` // full SHA-256 of the identity, hex
	Identity     string            `json:"identity"`      // canonical text, for people
	Account      string            `json:"account"`
	OpenID       string            `json:"openid"`
	ToUser       string            `json:"to_user,omitempty"` // the account's gh_ id
	MsgType      string            `json:"msg_type"`
	Event        string            `json:"event,omitempty"`
	EventKey     string            `json:"event_key,omitempty"`
	MsgID        string            `json:"msg_id,omitempty"`
	CreateTime   int64             `json:"create_time"` // Unix seconds, WeChat's
	Content      string            `json:"content,omitempty"`
	Fields       map[string]string `json:"fields,omitempty"` // every other leaf, nested names joined by a dot
	ReceivedAt   int64             `json:"received_at"`
	Answered     string            `json:"answered,omitempty"`   // name of the rule that answered in the ack itself (D2)
	Unchecked    bool              `json:"unchecked,omitempty"`  // Redis was away: no claim was made (D6)
	Quarantined  string            `json:"quarantine,omitempty"` // why the document could not be trusted (D1)
	Body         []byte            `json:"body,omitempty"`       // the original, decrypted
	TraceParent  string            `json:"traceparent,omitempty"`
	// ReplayOf is the id of the callback that this one is a replay of. To business
	// systems both are the same action, and carry its key.
	ReplayOf string `json:"replay_of,omitempty"`
}

// Content is what a reply says, in our words; the sender translates it into
// WeChat's. Exactly the field that Type names is set.
type Content struct {
	Type    string   `json:"type"` // text, image, voice, video, music, news, msgmenu
	Text    string   `json:"text,omitempty"`
	MediaID string   `json:"media_id,omitempty"` // image, voice
	Video   *Video   `json:"video,omitempty"`
	Music   *Music   `json:"music,omitempty"`
	News    *Article `json:"news,omitempty"`
	Menu    *Menu    `json:"menu,omitempty"`
}

// Video is an uploaded video.
type Video struct {
	MediaID     string `json:"media_id"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
}

// Music is a piece of music to play from an address.
type Music struct {
	Title        string `json:"title,omitempty"`
	Description  string `json:"description,omitempty"`
	URL          string `json:"url"`
	HQURL        string `json:"hq_url,omitempty"`
	ThumbMediaID string `json:"thumb_media_id"`
}

// Article is the one item of a news message.
type Article struct {
	Title       string `json:"title"`
	Description string `json:"description,omitempty"`
	URL         string `json:"url,omitempty"`
	PicURL      string `json:"pic_url,omitempty"`
}

// Menu is a message with items to press.
type Menu struct {
	Head  string     `json:"head,omitempty"`
	Items []MenuItem `json:"items"`
	Tail  string     `json:"tail,omitempty"`
}

// MenuItem is one line of a Menu.
type MenuItem struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// Classes of replies: what to do when it is not known whether one was sent
// (D7).
const (
	PreferDuplicate = "prefer_duplicate"
	PreferLoss      = "prefer_loss"
)

// Reply is an asynchronous answer to one callback.
type Reply struct {
	ID           string  `json:"id"` // derived from (callback id, ordinal)
	IdentityHash string  `json:"identity_hash"`
	CallbackID   string  `json:"callback_id"`
	Ordinal      int     `json:"ordinal"`
	Account      string  `json:"account"`
	OpenID       string  `json:"openid"`
	Content      Content `json:"content"`
	Class        string  `json:"class"`
	Rule         string  `json:"rule,omitempty"`
	ReceivedAt   int64   `json:"received_at"` // of the callback
	CreatedAt    int64   `json:"created_at"`
	ExpiresAt    int64   `json:"expires_at,omitempty"` // 0: never
	ResendOf     string  `json:"resend_of,omitempty"`
	TraceParent  string  `json:"traceparent,omitempty"`
}

// BornAt is when the reply came to be, for whoever has to find its row: the time of
// its callback, which a reply that is made again tells as well.
func (r *Reply) BornAt() int64 { return cmp.Or(max(r.ReceivedAt, 0), r.CreatedAt) }

// Lanes of pushes.
const (
	LaneRealtime = "realtime"
	LaneBulk     = "bulk"
	LaneReplies  = "replies"
)

// Kinds of pushes: template/send, subscribe/bizsend or custom/send.
const (
	PushTemplate     = "template"
	PushSubscription = "subscription"
	PushCustom       = "custom" // a customer-service message: Content instead of a template
)

// Push is a template, subscription or customer-service message that a business
// system asked for.
type Push struct {
	ID           string            `json:"id"`
	IdentityHash string            `json:"identity_hash,omitempty"` // empty for generated ids
	Account      string            `json:"account"`
	App          string            `json:"app"`
	Lane         string            `json:"lane"`
	PushKind     string            `json:"push_kind"`
	OpenID       string            `json:"openid"`
	TemplateID   string            `json:"template_id"`
	Data         map[string]string `json:"data"`
	URL          string            `json:"url,omitempty"`
	Page         string            `json:"page,omitempty"`
	MiniAppID    string            `json:"mini_app_id,omitempty"`
	MiniPath     string            `json:"mini_path,omitempty"`
	Reference    string            `json:"reference,omitempty"`
	ResendOf     string            `json:"resend_of,omitempty"`
	AcceptedAt   int64             `json:"accepted_at"`
	ExpiresAt    int64             `json:"expires_at,omitempty"`
	NotBefore    int64             `json:"not_before,omitempty"` // 0: at once
	CallbackURL  string            `json:"callback_url,omitempty"`
	Content      *Content          `json:"content,omitempty"` // of kind custom only
	// Class says for kind custom what to do when it is not known whether it was sent
	// (D7): WeChat does not recognise a repeat of it. Empty means PreferDuplicate.
	Class       string `json:"class,omitempty"`
	TraceParent string `json:"traceparent,omitempty"`
}

// Sources of receipts.
const (
	FromRobot  = "robot"  // what became of a callback
	FromSender = "sender" // the outcome of a send
	FromWeChat = "wechat" // what WeChat reported later
	FromDoor   = "door"   // repeats that were acked but not worked
)

// Receipt is one piece of news about one message. ID is ours and may be
// unknown for news from WeChat, which names the message by MsgID; MessageKind
// says which kind of letter the message was.
type Receipt struct {
	Source       string `json:"source"`
	MessageKind  Kind   `json:"message_kind"`
	ID           string `json:"id,omitempty"`
	IdentityHash string `json:"identity_hash,omitempty"`
	Account      string `json:"account"`
	OpenID       string `json:"openid,omitempty"`
	App          string `json:"app,omitempty"`
	Lane         string `json:"lane,omitempty"`
	TemplateID   string `json:"template_id,omitempty"`
	Reference    string `json:"reference,omitempty"`
	CallbackID   string `json:"callback_id,omitempty"` // of a reply: its cause
	ResendOf     string `json:"resend_of,omitempty"`
	State        State  `json:"state"`
	Reason       string `json:"reason,omitempty"`  // verbatim where WeChat gave one
	ErrCode      int    `json:"errcode,omitempty"` // WeChat's
	MsgID        string `json:"msg_id,omitempty"`  // WeChat's id of the message, as text (T52)
	Event        string `json:"event,omitempty"`   // the event that brought the news
	Attempt      int    `json:"attempt,omitempty"`
	Line         string `json:"line,omitempty"`   // the way out that the last request took (M3)
	Detail       string `json:"detail,omitempty"` // rule or back end that took part
	// PossibleDuplicate marks a message that may have been seen twice (G8).
	PossibleDuplicate bool  `json:"possible_duplicate,omitempty"`
	At                int64 `json:"at"`
	// BornAt is when the message came to be: it says where its row is (0 in letters
	// of releases that did not tell).
	BornAt int64 `json:"born_at,omitempty"`
	// Steps are what became of the message before this news and has no letter of its
	// own: at the door, in the queue, at back ends.
	Steps       []Step `json:"steps,omitempty"`
	TraceParent string `json:"traceparent,omitempty"`
}

// Step is one thing that happened to a message on its way.
type Step struct {
	At     int64  `json:"at"`
	Room   string `json:"room"`             // who did it
	What   string `json:"what"`             // received, claimed, read, called, …
	Detail string `json:"detail,omitempty"` // for people: partition and offset, back end and time
	Line   string `json:"line,omitempty"`   // the way out that it took (M3)
}

// Repeat records a user's repeated action that was acked and not worked (M9).
type Repeat struct {
	ID           string `json:"id"`                      // of the repeated callback
	IdentityHash string `json:"identity_hash,omitempty"` // missing in letters of early doors
	Account      string `json:"account"`
	OpenID       string `json:"openid"`
	Action       string `json:"action"`
	Of           string `json:"of,omitempty"` // identity of the first one
	Reason       string `json:"reason"`
	Rule         string `json:"rule,omitempty"`      // the rule that decided, by its place in the door's configuration
	WindowMS     int64  `json:"window_ms,omitempty"` // its window in milliseconds
	At           int64  `json:"at"`
	TraceParent  string `json:"traceparent,omitempty"`
}

// DeadLetter is a record that nobody could work, kept whole with the reason.
type DeadLetter struct {
	ID        string   `json:"id,omitempty"`
	Account   string   `json:"account,omitempty"`
	OpenID    string   `json:"openid,omitempty"`
	Room      string   `json:"room"`
	Reason    string   `json:"reason"`
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Headers   []Header `json:"headers"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	At        int64    `json:"at"`
}

// Replay says that a dead letter was put back into its topic, under a new id,
// and by whom. It lies beside the dead letters.
type Replay struct {
	ID       string `json:"id"`                  // of the new letter
	Of       string `json:"of"`                  // name of the dead letter
	ReplayOf string `json:"replay_of,omitempty"` // id of the letter that was dead
	Account  string `json:"account,omitempty"`
	OpenID   string `json:"openid,omitempty"`
	Topic    string `json:"topic"`   // that it was put into
	Attempt  int    `json:"attempt"` // 1 for the first replay of this dead letter
	By       string `json:"by"`
	At       int64  `json:"at"`
}

// withoutRecord is the letter without the record's content. The id comes from
// the record as well, and is left out if it is none.
func (d *DeadLetter) withoutRecord() *DeadLetter {
	const maxID, maxWhy = 64, 1024
	c := *d
	c.Headers, c.Key, c.Value = nil, nil, nil
	if len(c.ID) > maxID {
		c.ID = ""
	}
	if len(c.Reason) > maxWhy {
		c.Reason = strings.ToValidUTF8(c.Reason[:maxWhy], "")
	}
	c.Reason += "; too large to be kept here: read it at its offset"
	return &c
}

// Millis is the time format of letters.
func Millis(t time.Time) int64 { return t.UnixMilli() }

// Kind and the rest make the structs letters.
func (*Callback) Kind() Kind          { return KindCallback }
func (c *Callback) LetterID() string  { return c.ID }
func (c *Callback) RecordKey() string { return c.OpenID }
func (c *Callback) Trace() string     { return c.TraceParent }

func (*Reply) Kind() Kind          { return KindReply }
func (r *Reply) LetterID() string  { return r.ID }
func (r *Reply) RecordKey() string { return r.OpenID }
func (r *Reply) Trace() string     { return r.TraceParent }

func (*Push) Kind() Kind          { return KindPush }
func (p *Push) LetterID() string  { return p.ID }
func (p *Push) RecordKey() string { return p.OpenID }
func (p *Push) Trace() string     { return p.TraceParent }

func (*Receipt) Kind() Kind          { return KindReceipt }
func (r *Receipt) LetterID() string  { return r.ID }
func (r *Receipt) RecordKey() string { return r.OpenID }
func (r *Receipt) Trace() string     { return r.TraceParent }

func (*Repeat) Kind() Kind          { return KindRepeat }
func (r *Repeat) LetterID() string  { return r.ID }
func (r *Repeat) RecordKey() string { return r.OpenID }
func (r *Repeat) Trace() string     { return r.TraceParent }

func (*DeadLetter) Kind() Kind          { return KindDeadLetter }
func (d *DeadLetter) LetterID() string  { return d.ID }
func (d *DeadLetter) RecordKey() string { return d.OpenID }
func (*DeadLetter) Trace() string       { return "" }

func (*Replay) Kind() Kind          { return KindReplay }
func (r *Replay) LetterID() string  { return r.ID }
func (r *Replay) RecordKey() string { return r.OpenID }
func (*Replay) Trace() string       { return "" }
