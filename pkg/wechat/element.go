package wechat

import (
	"strconv"
	"strings"
)

// Element is one element of a message with what it holds.
type Element struct {
	nodes []node // the children and their children
	depth int    // of the children
}

// Get returns the text of the element at path, below e. At each step the first
// element of the name is taken. It returns "" if there is none.
func (e Element) Get(path ...string) string {
	for len(path) > 1 {
		child, ok := e.first(path[0])
		if !ok {
			return ""
		}
		e, path = child, path[1:]
	}
	if len(path) == 0 {
		return ""
	}
	for i := range e.nodes {
		if n := &e.nodes[i]; n.depth == e.depth && n.name == path[0] {
			return n.value
		}
	}
	return ""
}

// All returns every child of the given name, in document order.
func (e Element) All(name string) []Element {
	var out []Element
	for i := range e.nodes {
		if n := &e.nodes[i]; n.depth == e.depth && n.name == name {
			out = append(out, e.child(i))
		}
	}
	return out
}

func (e Element) first(name string) (Element, bool) {
	for i := range e.nodes {
		if n := &e.nodes[i]; n.depth == e.depth && n.name == name {
			return e.child(i), true
		}
	}
	return Element{}, false
}

// child is the element of the node at i.
func (e Element) child(i int) Element {
	end := i + 1
	for end < len(e.nodes) && e.nodes[end].depth > e.depth {
		end++
	}
	return Element{nodes: e.nodes[i+1 : end], depth: e.depth + 1}
}

// int reads a whole number that may have spaces around it; it is 0 if there is
// none.
func (e Element) int(path ...string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(e.Get(path...)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Root returns the whole message as an element.
func (m *Message) Root() Element { return Element{nodes: m.nodes, depth: 1} }

// Get returns the text of an element by its path below the root, for example
// Get("PicUrl") or Get("ScanCodeInfo", "ScanResult"); "" if there is none.
func (m *Message) Get(path ...string) string { return m.Root().Get(path...) }

// Fields returns every leaf by its path, names joined by dots. An element that
// is there again gets its number: List.TemplateId, List.2.TemplateId. The
// header elements and what has a field of its own in Message are left out.
func (m *Message) Fields() map[string]string {
	fields := map[string]string{}
	m.Root().collect("", m.hasOwn, fields)
	return fields
}

// hasOwn tells that a top-level element has a field of its own in Message.
func (m *Message) hasOwn(name string) bool {
	switch name {
	case "ToUserName", "FromUserName", "CreateTime", "MsgType":
		return true
	case "Event", "EventKey", "MsgID":
		return m.MsgType == TypeEvent
	case "MsgId":
		return m.MsgType != TypeEvent
	case "Content":
		return m.MsgType == TypeText
	}
	return false
}

// collect puts the leaves into fields. skip leaves out the first element of a
// name; it is nil below the top.
func (e Element) collect(prefix string, skip func(string) bool, fields map[string]string) {
	for i := range e.nodes {
		n := &e.nodes[i]
		if n.depth != e.depth {
			continue
		}
		c := e.count(n.name, i)
		if c == 1 && n.leaf && skip != nil && skip(n.name) {
			continue
		}
		path := prefix + n.name
		if c > 1 {
			path += "." + strconv.Itoa(c)
		}
		if n.leaf {
			fields[path] = n.value
			continue
		}
		e.child(i).collect(path+".", nil, fields)
	}
}

// count is how many elements of this name there are up to the one at i. There
// are at most a few hundred elements, and usually a handful.
func (e Element) count(name string, i int) int {
	c := 0
	for j := range e.nodes[:i+1] {
		if n := &e.nodes[j]; n.depth == e.depth && n.name == name {
			c++
		}
	}
	return c
}
