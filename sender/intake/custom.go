package intake

import (
	"strings"
	"unicode/utf8"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/wire"
)

// Limits of customer-service messages.
const (
	// maxText is what always fits into the five messages that a long text may become,
	// wherever words and lines end.
	maxText      = 7500 // bytes
	maxTitle     = 200
	maxMediaID   = 256
	maxMenuItems = 20
)

// checkCustom looks at a customer-service message: exactly one content, and none of
// what belongs to templates.
func (r *Request) checkCustom() error {
	for _, f := range []struct {
		name string
		is   bool
	}{
		{"template_id", r.TemplateID != ""}, {"data", len(r.Data) > 0}, {"url", r.URL != ""}, {"page", r.Page != ""},
		{"mini_app_id", r.MiniAppID != ""}, {"mini_path", r.MiniPath != ""},
	} {
		if f.is {
			return invalid(f.name, "a message of kind %q has none: put what it says into content", wire.PushCustom)
		}
	}
	switch {
	case r.Content == nil:
		return invalid("content", `give what the message says, for example {"type": "text", "text": "…"}`)
	case r.Class != "" && r.Class != wire.PreferDuplicate && r.Class != wire.PreferLoss:
		return invalid("class", "use %q (default) or %q: what to do when it is not known whether it was sent", wire.PreferDuplicate, wire.PreferLoss)
	}
	return checkContent(r.Content)
}

// parts says which field of a content each type fills.
func parts(c *wire.Content) map[string]bool {
	return map[string]bool{
		"text": c.Text != "", "media_id": c.MediaID != "", "video": c.Video != nil,
		"music": c.Music != nil, "news": c.News != nil, "menu": c.Menu != nil,
	}
}

// contentField is data: the type of a content, and the field that it fills.
func contentField(kind string) string {
	switch kind {
	case "image", "voice":
		return "media_id"
	case "msgmenu":
		return "menu"
	case "text", "video", "music", "news":
		return kind
	}
	return ""
}

func checkContent(c *wire.Content) error {
	want := contentField(c.Type)
	if want == "" {
		return invalid("content.type", "use text, image, voice, video, music, news or msgmenu")
	}
	all := parts(c)
	if !all[want] {
		return invalid("content."+want, "a content of type %s needs it", c.Type)
	}
	for _, field := range []string{"text", "media_id", "video", "music", "news", "menu"} {
		if all[field] && field != want {
			return invalid("content."+field, "a content of type %s has none", c.Type)
		}
	}
	switch want {
	case "text":
		return checkText("content.text", c.Text)
	case "media_id":
		return checkMedia("content.media_id", c.MediaID)
	case "video":
		return first(checkMedia("content.video.media_id", c.Video.MediaID),
			words("content.video.title", c.Video.Title), words("content.video.description", c.Video.Description))
	case "music":
		return checkMusic(c.Music)
	case "news":
		return checkNews(c.News)
	}
	return checkMenu(c.Menu)
}

func checkText(field, s string) error {
	if strings.TrimSpace(s) == "" {
		return invalid(field, "it is blank")
	}
	if len(s) > maxText || !text(s, maxText, true) {
		return invalid(field, "%d bytes: at most %d are possible, and of control characters only line breaks", len(s), maxText)
	}
	return nil
}

func checkMedia(field, id string) error {
	if id == "" || !printable(id, maxMediaID) {
		return invalid(field, "give the id of what was uploaded to WeChat: 1 to %d printable ASCII characters", maxMediaID)
	}
	return nil
}

func checkMusic(m *wire.Music) error {
	return first(addressIn("content.music.url", m.URL, true), addressIn("content.music.hq_url", m.HQURL, false), checkMedia("content.music.thumb_media_id", m.ThumbMediaID),
		words("content.music.title", m.Title), words("content.music.description", m.Description))
}

func checkNews(a *wire.Article) error {
	if a.Title == "" {
		return invalid("content.news.title", "give a title")
	}
	return first(addressIn("content.news.url", a.URL, false), addressIn("content.news.pic_url", a.PicURL, false),
		words("content.news.title", a.Title), words("content.news.description", a.Description))
}

func checkMenu(m *wire.Menu) error {
	if len(m.Items) == 0 || len(m.Items) > maxMenuItems {
		return invalid("content.menu.items", "%d items: 1 to %d are possible", len(m.Items), maxMenuItems)
	}
	for _, item := range m.Items {
		if item.ID == "" || !printable(item.ID, 64) || item.Text == "" || !text(item.Text, maxTitle, false) {
			return invalid("content.menu.items", "each item needs an id of 1 to 64 printable ASCII characters and a text of 1 to %d characters", maxTitle)
		}
	}
	return first(words("content.menu.head", m.Head), words("content.menu.tail", m.Tail))
}

func words(field, s string) error {
	if !text(s, maxValue, true) {
		return invalid(field, "%d characters: at most %d are possible, and of control characters only line breaks", utf8.RuneCountInString(s), maxValue)
	}
	return nil
}

func addressIn(field, u string, needed bool) error {
	if u == "" && !needed {
		return nil
	}
	if err := checkURL(u); err != nil {
		return fault.New(fault.Invalid, field, "give an absolute address of at most %d bytes that begins with http:// or https://", maxURL).WithField(field)
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkCallback holds an address against what outhttp would call: the caller learns
// now that nobody will ever be told there.
func (in *Intake) checkCallback(address string) error {
	if address == "" {
		return nil
	}
	if len(address) > maxURL {
		return invalid("callback_url", "%d bytes: at most %d are possible", len(address), maxURL)
	}
	if err := in.hooks.Check(address); err != nil {
		return fault.New(fault.Invalid, "callback_url", "%w", err).WithField("callback_url")
	}
	return nil
}

// mayUse holds a push against the templates of the key.
func mayUse(app api.App, r *Request) error {
	if app.MayUse(r.TemplateID) {
		return nil
	}
	if r.Kind == wire.PushCustom {
		return fault.New(fault.Denied, "kind", "this key may send with its templates only").WithField("kind")
	}
	return fault.New(fault.Denied, "template_id", "this key may not use the template %s", r.TemplateID).WithField("template_id")
}
