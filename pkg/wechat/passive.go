package wechat

import (
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/fault"
)

// Limits of passive answers.
const (
	// MaxText is the length of a text that WeChat takes, in bytes. The number is
	// from experience and not documented; longer texts give errcode 45002.
	MaxText = 2048
	// maxArticles is the most that a news answer may hold.
	maxArticles = 8
)

// TransferToDesk is the MsgType that hands the conversation over to the human
// customer-service desk.
const TransferToDesk = "transfer_customer_service"

// Passive is an answer inside the acknowledgement of a callback. It costs no
// API call and none of the messages that a user's action allows.
type Passive struct {
	ToUser     string // the openid
	FromUser   string // the account's gh_ id
	CreateTime int64  // seconds since 1970
	// Type is text, image, voice, video, music, news or TransferToDesk.
	Type string

	Content      string // text
	MediaID      string // image, voice, video
	Title        string // video, music; may be empty
	Description  string // video, music; may be empty
	MusicURL     string // music
	HQMusicURL   string // music; may be empty
	ThumbMediaID string // music
	Articles     []Article
	KfAccount    string // TransferToDesk; empty lets WeChat choose
}

// Article is one entry of a news message.
type Article struct {
	Title       string `json:"title"`
	Description string `json:"description"`
	URL         string `json:"url"`
	PicURL      string `json:"picurl"`
}

// Answer prepares an answer to m: sender and receiver change places.
func (m *Message) Answer(now time.Time) Passive {
	return Passive{ToUser: m.FromUserName, FromUser: m.ToUserName, CreateTime: now.Unix()}
}

// MaxArticles is the number of articles that a news answer to m may hold: one
// in answer to a message, up to eight in answer to an event.
func (m *Message) MaxArticles() int {
	if m.MsgType == TypeEvent {
		return maxArticles
	}
	return 1
}

// Encode writes the answer as the XML that WeChat wants, not yet encrypted.
// "]]>" inside a text is split over two CDATA blocks and control characters are
// left out, so that no text can break the document. The error (fault.Invalid)
// names the field that is missing or too long.
func (p Passive) Encode() ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var b strings.Builder
	b.Grow(512 + len(p.Content))
	b.WriteString("<xml>")
	writeCDATA(&b, "ToUserName", p.ToUser)
	b.WriteByte('\n')
	writeCDATA(&b, "FromUserName", p.FromUser)
	b.WriteString("\n<CreateTime>")
	b.WriteString(strconv.FormatInt(p.CreateTime, 10))
	b.WriteString("</CreateTime>\n")
	writeCDATA(&b, "MsgType", p.Type)
	b.WriteByte('\n')
	p.writeBody(&b)
	b.WriteString("</xml>")
	return []byte(b.String()), nil
}

func (p Passive) writeBody(b *strings.Builder) {
	switch p.Type {
	case "text":
		writeCDATA(b, "Content", p.Content)
	case "image":
		writeGroup(b, "Image", pair{"MediaId", p.MediaID})
	case "voice":
		writeGroup(b, "Voice", pair{"MediaId", p.MediaID})
	case "video":
		writeGroup(b, "Video", pair{"MediaId", p.MediaID}, pair{"Title", p.Title}, pair{"Description", p.Description})
	case "music":
		writeGroup(b, "Music", pair{"Title", p.Title}, pair{"Description", p.Description},
			pair{"MusicUrl", p.MusicURL}, pair{"HQMusicUrl", p.HQMusicURL}, pair{"ThumbMediaId", p.ThumbMediaID})
	case "news":
		b.WriteString("<ArticleCount>" + strconv.Itoa(len(p.Articles)) + "</ArticleCount>\n<Articles>")
		for _, a := range p.Articles {
			b.WriteString("<item>")
			writeCDATA(b, "Title", a.Title)
			writeCDATA(b, "Description", a.Description)
			writeCDATA(b, "PicUrl", a.PicURL)
			writeCDATA(b, "Url", a.URL)
			b.WriteString("</item>")
		}
		b.WriteString("</Articles>")
	case TransferToDesk:
		if p.KfAccount == "" {
			return
		}
		writeGroup(b, "TransInfo", pair{"KfAccount", p.KfAccount})
	}
	b.WriteByte('\n')
}

func (p Passive) check() error {
	if !IsOpenID(p.ToUser) || !IsOpenID(p.FromUser) {
		return passiveError("to_user", "both user names must be ids of 1 to %d letters, digits, - and _", maxOpenID)
	}
	if p.CreateTime <= 0 {
		return passiveError("create_time", "it must be seconds since 1970")
	}
	switch p.Type {
	case "text":
		return p.checkText()
	case "image", "voice", "video":
		if p.MediaID == "" {
			return passiveError("media_id", "an answer of type %s needs it", p.Type)
		}
	case "music":
		if p.MusicURL == "" || p.ThumbMediaID == "" {
			return passiveError("music_url", "an answer of type music needs it and a thumb_media_id")
		}
	case "news":
		if n := len(p.Articles); n < 1 || n > maxArticles {
			return passiveError("articles", "an answer of type news has %d and needs 1 to %d", n, maxArticles)
		}
	case TransferToDesk:
	default:
		return passiveError("type", "%q cannot be answered with; use text, image, voice, video, music, news or %s", p.Type, TransferToDesk)
	}
	return nil
}

func (p Passive) checkText() error {
	if p.Content == "" {
		return passiveError("content", "an answer of type text needs it")
	}
	if len(p.Content) > MaxText {
		return passiveError("content", "it has %d bytes, the limit is %d", len(p.Content), MaxText)
	}
	return nil
}

func passiveError(field, format string, args ...any) error {
	return fault.New(fault.Invalid, "encode passive answer", field+": "+format, args...).WithField(field)
}

type pair struct{ name, value string }

// writeGroup writes an element with children; children without text are left
// out, since all that may be empty is optional.
func writeGroup(b *strings.Builder, name string, pairs ...pair) {
	b.WriteString("<" + name + ">")
	for _, p := range pairs {
		if p.value != "" {
			writeCDATA(b, p.name, p.value)
		}
	}
	b.WriteString("</" + name + ">")
}

func writeCDATA(b *strings.Builder, name, text string) {
	b.WriteString("<" + name + "><![CDATA[")
	b.WriteString(strings.ReplaceAll(clean(text), "]]>", splitCDATA))
	b.WriteString("]]></" + name + ">")
}
