package engine

import (
	"gopkg.in/yaml.v3"
)

// replies reads one reply or a list of them.
func (r *reader) replies(n *yaml.Node, subject string, sc scope) []reply {
	items := r.list(n)
	if len(items) == 0 || len(items) > MaxReplies {
		r.fail(n, "%s: give 1 to %d replies: WeChat takes no more after one message", subject, MaxReplies)
		return nil
	}
	out := make([]reply, 0, len(items))
	for _, item := range items {
		out = append(out, r.reply(item, subject, sc))
	}
	return out
}

func (r *reader) reply(n *yaml.Node, subject string, sc scope) reply {
	f := r.mapping(n, subject, "text", "image", "news", "menu")
	if n.Kind == yaml.MappingNode && len(f) != 1 {
		r.fail(n, "%s: each reply is exactly one of text, image, news or menu", subject)
		return reply{}
	}
	switch {
	case f["text"] != nil:
		t := r.chatText(f["text"], subject+": text", sc)
		return reply{kind: "text", text: t}
	case f["image"] != nil:
		return reply{kind: "image", image: r.inLanguages(f["image"], subject+": image", func(n *yaml.Node, subject string) *tmpl {
			t := r.template(n, subject, inValue, sc)
			if t != nil && t.static && !validMediaID(t.source) {
				r.fail(n, "%s: write the media_id of an uploaded image", subject)
			}
			return t
		})}
	case f["news"] != nil:
		return reply{kind: "news", news: r.news(f["news"], subject+": news", sc)}
	case f["menu"] != nil:
		return reply{kind: "msgmenu", menu: r.menu(f["menu"], subject+": menu", sc)}
	}
	return reply{}
}

// chatText reads a text, in one or several languages.
func (r *reader) chatText(n *yaml.Node, subject string, sc scope) *tmpl {
	return r.inLanguages(n, subject, func(n *yaml.Node, subject string) *tmpl { return r.oneChatText(n, subject, sc) })
}

// oneChatText reads a text; one without templates must fit as it is.
func (r *reader) oneChatText(n *yaml.Node, subject string, sc scope) *tmpl {
	t := r.template(n, subject, inText, sc)
	if t == nil || !t.static {
		return t
	}
	if len(t.source) > MaxText {
		r.fail(n, "%s: the text has %d bytes, WeChat takes %d: make two replies", subject, len(t.source), MaxText)
	}
	if t.source == "" {
		r.fail(n, "%s: the text is empty: write it, or use silence: true", subject)
	}
	return t
}

func (r *reader) news(n *yaml.Node, subject string, sc scope) *newsReply {
	f := r.mapping(n, subject, "title", "description", "url", "pic_url")
	var out newsReply
	for _, t := range []struct {
		key  string
		out  **tmpl
		link bool
	}{{"title", &out.title, false}, {"description", &out.description, false}, {"url", &out.url, true}, {"pic_url", &out.picURL, true}} {
		at := f[t.key]
		switch {
		case at == nil && (t.key == "title" || t.key == "url"):
			r.fail(n, "%s: %s is missing", subject, t.key)
		case at == nil:
		case t.link:
			*t.out = r.inLanguages(at, subject+": "+t.key, func(n *yaml.Node, subject string) *tmpl { return r.link(n, subject, sc) })
		default:
			*t.out = r.chatText(at, subject+": "+t.key, sc)
		}
	}
	return &out
}

// link reads an address. If the rule writes the beginning of it, values in it
// are escaped; if the whole address is one value, it is checked instead.
func (r *reader) link(n *yaml.Node, subject string, sc scope) *tmpl {
	p := inQuery
	if len(n.Value) > 1 && n.Value[:2] == "{{" {
		p = inValue
	}
	t := r.template(n, subject, p, sc)
	if t != nil && t.static {
		if err := checkLink(t.source); err != nil {
			r.fail(n, "%s: %v", subject, err)
		}
	}
	return t
}

func (r *reader) menu(n *yaml.Node, subject string, sc scope) *menuReply {
	f := r.mapping(n, subject, "head", "items", "tail")
	var out menuReply
	if f["head"] != nil {
		out.head = r.chatText(f["head"], subject+": head", sc)
	}
	if f["tail"] != nil {
		out.tail = r.chatText(f["tail"], subject+": tail", sc)
	}
	items := f["items"]
	if items == nil || items.Kind != yaml.SequenceNode || len(items.Content) == 0 || len(items.Content) > maxMenuItems {
		r.fail(n, "%s: items: write a list of 1 to %d items, each {id: …, text: …}", subject, maxMenuItems)
		return &out
	}
	seen := map[string]bool{}
	for _, item := range items.Content {
		out.items = append(out.items, r.menuLine(item, subject+": items", seen, sc))
	}
	return &out
}

func (r *reader) menuLine(n *yaml.Node, subject string, seen map[string]bool, sc scope) menuLine {
	f := r.mapping(n, subject, "id", "text")
	if n.Kind == yaml.MappingNode && (f["id"] == nil || f["text"] == nil) {
		r.fail(n, "%s: each item has an id and a text", subject)
	}
	var line menuLine
	if f["text"] != nil {
		line.text = r.chatText(f["text"], subject+": text", sc)
	}
	if f["id"] == nil {
		return line
	}
	line.id, _ = r.text(f["id"], subject+": id")
	switch {
	case !menuItemID.MatchString(line.id):
		r.fail(f["id"], "%s: id: use up to 64 letters, digits, _ and -", subject)
	case seen[line.id]:
		r.fail(f["id"], "%s: the id %q is there twice: choose another", subject, line.id)
	}
	seen[line.id] = true
	return line
}
