package engine

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"tidegate/pkg/wire"
)

// subject is what of a callback rules look at. A nil pointer says that the
// callback has no such thing: an empty scene is not the same as none.
type subject struct {
	msgType, event             string
	text, key, scene, menuItem *string
	answerable                 bool
}

func subjectOf(c *wire.Callback) subject {
	s := subject{msgType: c.MsgType, event: c.Event, answerable: answerable(c)}
	switch {
	case c.MsgType == "event" && keyed[c.Event]:
		s.key = &c.EventKey
	case c.MsgType == "event":
		s.scene = sceneOf(c)
	case c.MsgType == "text":
		s.text = &c.Content
		if v, ok := c.Fields["bizmsgmenuid"]; ok {
			id := v // memory only where there is one
			s.menuItem = &id
		}
	case c.MsgType == "voice":
		if v, ok := c.Fields["Recognition"]; ok && v != "" {
			said := v
			s.text = &said
		}
	}
	return s
}

// sceneOf is the scene of a QR code: the key of SCAN, or of subscribe without
// its prefix, which is taken off exactly once (wechat.md 3.2).
func sceneOf(c *wire.Callback) *string {
	switch c.Event {
	case "SCAN":
		return &c.EventKey
	case "subscribe":
		if scene, ok := strings.CutPrefix(c.EventKey, "qrscene_"); ok {
			return &scene
		}
	}
	return nil
}

// matcher holds the conditions of one rule; all that are set must hold.
type matcher struct {
	byDefault                  bool
	msgTypes, events           map[string]bool
	text, key, scene, menuItem *words
}

// matches names the first condition that does not hold, or gives "" and the
// groups of the regular expression.
func (m *matcher) matches(s subject) (why string, groups []string) {
	switch {
	case m.byDefault && s.answerable:
		return "", nil
	case m.byDefault:
		return "default", nil
	case m.msgTypes != nil && !m.msgTypes[s.msgType]:
		return "message_type", nil
	case m.events != nil && (s.msgType != "event" || !m.events[s.event]):
		return "event", nil
	}
	for _, c := range [...]struct {
		name string
		w    *words
		s    *string
	}{{"text", m.text, s.text}, {"menu_key", m.key, s.key}, {"scene", m.scene, s.scene}, {"menu_item", m.menuItem, s.menuItem}} {
		if c.w == nil {
			continue
		}
		if c.s == nil {
			return c.name, nil
		}
		ok, g := c.w.match(*c.s)
		if !ok {
			return c.name, nil
		}
		if g != nil {
			groups = g
		}
	}
	return "", groups
}

// named gives the named groups of the matcher's expressions that took part.
// Groups are those of the last expression, which named looks for in the same
// order.
func (m *matcher) named(groups []string) map[string]string {
	out := map[string]string{}
	for _, w := range [...]*words{m.menuItem, m.scene, m.key, m.text} {
		if w == nil || w.pattern == nil {
			continue
		}
		for i, name := range w.pattern.SubexpNames() {
			if name != "" && i < len(groups) && groups[i] != "" && len(groups[i]) <= maxVariable {
				out[name] = groups[i]
			}
		}
		break
	}
	return out
}

// words is one condition on a text: any of equals, prefix or contains, or a
// regular expression, or anything at all.
type words struct {
	any                      bool
	fold                     bool
	equals, prefix, contains []string // lower case if fold
	pattern                  *regexp.Regexp
}

// match tests a text; surrounding white space does not count, since phones
// add it. The expression is RE2, linear in its input, and the input is cut.
func (w *words) match(s string) (bool, []string) {
	if w.any {
		return true, nil
	}
	s = strings.TrimSpace(s)
	if w.pattern != nil {
		groups := w.pattern.FindStringSubmatch(cut(s, maxMatched))
		return groups != nil, groups
	}
	if w.fold {
		s = strings.ToLower(s)
	}
	for _, e := range w.equals {
		if s == e {
			return true, nil
		}
	}
	for _, p := range w.prefix {
		if strings.HasPrefix(s, p) {
			return true, nil
		}
	}
	for _, c := range w.contains {
		if strings.Contains(s, c) {
			return true, nil
		}
	}
	return false, nil
}

// cut shortens s to at most n bytes without splitting a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
