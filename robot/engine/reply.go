package engine

import (
	"fmt"
	"net/url"
	"strings"

	"tidegate/pkg/wire"
)

// reply is one reply of a rule; kind names the field that is set.
type reply struct {
	kind  string // text, image, news, msgmenu: the types of wire.Content
	text  *tmpl
	image *tmpl
	news  *newsReply
	menu  *menuReply
}

type newsReply struct{ title, description, url, picURL *tmpl }

type menuReply struct {
	head, tail *tmpl
	items      []menuLine
}

type menuLine struct {
	id   string
	text *tmpl
}

// render fills in one reply. A text that comes out empty is left out: that is
// how a rule with a condition stays silent. note says what was adapted.
func (r *reply) render(d *data) (content *wire.Content, note string, err error) {
	c := wire.Content{Type: r.kind}
	switch r.kind {
	case "text":
		c.Text, note, err = chatText(r.text, d)
		if err != nil || strings.TrimSpace(c.Text) == "" {
			return nil, "", err
		}
	case "image":
		c.MediaID, err = r.image.render(d)
		if err == nil && !validMediaID(c.MediaID) {
			err = fmt.Errorf("the media id is empty or no media id")
		}
	case "news":
		c.News, err = r.news.render(d)
	case "msgmenu":
		c.Menu, note, err = r.menu.render(d)
	}
	if err != nil {
		return nil, "", err
	}
	return &c, note, nil
}

func (n *newsReply) render(d *data) (*wire.Article, error) {
	var a wire.Article
	for _, f := range [...]struct {
		t    *tmpl
		out  *string
		link bool
	}{{n.title, &a.Title, false}, {n.description, &a.Description, false}, {n.url, &a.URL, true}, {n.picURL, &a.PicURL, true}} {
		if f.t == nil {
			continue
		}
		s, err := f.t.render(d)
		if err != nil {
			return nil, err
		}
		if *f.out = cut(s, MaxText); f.link {
			if err := checkLink(s); err != nil {
				return nil, err
			}
		}
	}
	if strings.TrimSpace(a.Title) == "" {
		return nil, fmt.Errorf("the title of the article is empty")
	}
	return &a, nil
}

func (m *menuReply) render(d *data) (*wire.Menu, string, error) {
	var out wire.Menu
	var note, n string
	var err error
	if m.head != nil {
		if out.Head, note, err = chatText(m.head, d); err != nil {
			return nil, "", err
		}
	}
	if m.tail != nil {
		if out.Tail, n, err = chatText(m.tail, d); err != nil {
			return nil, "", err
		}
		note += n
	}
	for _, line := range m.items {
		text, n, err := chatText(line.text, d)
		if err != nil {
			return nil, "", err
		}
		note += n
		if strings.TrimSpace(text) != "" {
			out.Items = append(out.Items, wire.MenuItem{ID: line.id, Text: text})
		}
	}
	if len(out.Items) == 0 {
		return nil, "", fmt.Errorf("every item of the menu is empty")
	}
	if note != "" {
		note = "was cut"
	}
	return &out, note, nil
}

// chatText renders a text and cuts it to what WeChat takes.
func chatText(t *tmpl, d *data) (text, note string, err error) {
	s, err := t.render(d)
	if err != nil || len(s) <= MaxText {
		return s, "", err
	}
	const ellipsis = "…"
	return cut(s, MaxText-len(ellipsis)) + ellipsis, fmt.Sprintf("was cut from %d to %d bytes", len(s), MaxText), nil
}

// checkLink takes absolute http and https addresses only.
func checkLink(s string) error {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || len(s) > MaxText {
		return fmt.Errorf("an address must be absolute, http or https, without a user name and at most %d bytes", MaxText)
	}
	return nil
}

func validMediaID(s string) bool {
	if s == "" || len(s) > 256 {
		return false
	}
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return true
}
