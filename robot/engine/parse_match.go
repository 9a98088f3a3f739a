package engine

import (
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

var typeName = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`)

// match reads the conditions of a rule.
func (r *reader) match(n *yaml.Node, subject string) matcher {
	f := r.mapping(n, subject, "text", "menu_key", "event", "scene", "menu_item", "message_type", "default")
	var m matcher
	if len(f) == 0 {
		r.fail(n, "%s: give at least one condition, or \"default: true\"", subject)
	}
	if d := f["default"]; d != nil {
		m.byDefault = r.flag(d, subject+": default")
		if !m.byDefault || len(f) > 1 {
			r.fail(d, "%s: default: true stands alone and matches every message and every event that can be answered", subject)
		}
		return m
	}
	if e := f["event"]; e != nil {
		m.events = r.types(e, subject+": event")
	}
	if t := f["message_type"]; t != nil {
		m.msgTypes = r.types(t, subject+": message_type")
	}
	for _, w := range []struct {
		key string
		out **words
	}{{"text", &m.text}, {"menu_key", &m.key}, {"scene", &m.scene}, {"menu_item", &m.menuItem}} {
		if at := f[w.key]; at != nil {
			*w.out = r.words(at, subject+": "+w.key)
		}
	}
	r.possible(n, &m, subject)
	return m
}

// possible refuses conditions that no callback can meet together.
func (r *reader) possible(n *yaml.Node, m *matcher, subject string) {
	message := m.text != nil || m.menuItem != nil
	event := m.events != nil || m.key != nil || m.scene != nil
	switch {
	case message && event, m.key != nil && m.scene != nil:
		r.fail(n, "%s: text and menu_item are of messages, event, menu_key and scene of events; no callback meets them together: make two rules", subject)
	case event && m.msgTypes != nil && !m.msgTypes["event"]:
		r.fail(n, "%s: an event has the message_type event: remove message_type", subject)
	case m.key != nil && m.events != nil && !overlap(m.events, keyed):
		r.fail(n, "%s: none of these events has a menu_key: use CLICK or another event of a menu button", subject)
	case m.scene != nil && m.events != nil && !m.events["SCAN"] && !m.events["subscribe"]:
		r.fail(n, "%s: only SCAN and subscribe have a scene", subject)
	}
}

func overlap(a, b map[string]bool) bool {
	for k := range a {
		if b[k] {
			return true
		}
	}
	return false
}

func (r *reader) types(n *yaml.Node, subject string) map[string]bool {
	out := map[string]bool{}
	for _, t := range r.texts(n, subject) {
		if !typeName.MatchString(t) {
			r.fail(n, "%s: %q is no name of WeChat's: write it as in its documentation, such as text, CLICK or subscribe", subject, cut(t, 64))
		}
		out[t] = true
	}
	return out
}

// words reads one condition on a text.
func (r *reader) words(n *yaml.Node, subject string) *words {
	f := r.mapping(n, subject, "equals", "prefix", "contains", "regexp", "any", "ignore_case")
	w := &words{}
	if c := f["ignore_case"]; c != nil {
		w.fold = r.flag(c, subject+": ignore_case")
	}
	for _, l := range []struct {
		key string
		out *[]string
	}{{"equals", &w.equals}, {"prefix", &w.prefix}, {"contains", &w.contains}} {
		if at := f[l.key]; at != nil {
			*l.out = r.texts(at, subject+": "+l.key)
		}
	}
	for _, list := range [][]string{w.equals, w.prefix, w.contains} {
		for i := range list {
			if list[i] = strings.TrimSpace(list[i]); w.fold {
				list[i] = strings.ToLower(list[i])
			}
		}
	}
	if p := f["regexp"]; p != nil {
		w.pattern = r.pattern(p, subject+": regexp", w.fold)
	}
	if a := f["any"]; a != nil {
		w.any = r.flag(a, subject+": any")
	}
	lists := f["equals"] != nil || f["prefix"] != nil || f["contains"] != nil
	if n.Kind == yaml.MappingNode && count(lists, f["regexp"] != nil, w.any) != 1 {
		r.fail(n, "%s: give equals, prefix or contains, or else regexp, or else any: true", subject)
	}
	return w
}

// pattern compiles a regular expression of RE2, which takes time linear in
// its input whatever a follower writes.
func (r *reader) pattern(n *yaml.Node, subject string, fold bool) *regexp.Regexp {
	s, ok := r.text(n, subject)
	if !ok {
		return nil
	}
	if len(s) > maxPattern {
		r.fail(n, "%s: the expression has %d bytes, at most %d are allowed", subject, len(s), maxPattern)
		return nil
	}
	if fold {
		s = "(?i)" + s
	}
	p, err := regexp.Compile(s)
	if err != nil {
		r.fail(n, "%s: %s: RE2 syntax is expected, without look-around and back references", subject, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		return nil
	}
	return p
}

func count(on ...bool) (n int) {
	for _, b := range on {
		if b {
			n++
		}
	}
	return n
}
