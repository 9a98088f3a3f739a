package wechat

import "strings"

// Limits of a document's structure (S21). The largest real ones have 5 levels
// and below 100 elements.
const (
	maxDepth    = 8
	maxElements = 500
	maxTagName  = 64
)

// node is one element of a document. The nodes stand in document order, so a
// node's children are those behind it that are deeper, up to the first that is
// not. Depth 1 is a child of the root.
type node struct {
	name  string
	value string
	depth int
	leaf  bool
}

// scanner reads a document into nodes. It is no XML parser and must not become
// one: it knows elements, text, the five named entities and CDATA. Everything
// else (attributes, comments, instructions, declarations) is never written by
// WeChat and makes the document untrustworthy.
type scanner struct {
	s     string // what follows the root's start tag
	pos   int
	nodes []node
	open  []int // indexes of the open containers
	event bool  // MsgType was read and is event
	typed bool  // MsgType was read
	// freeAt is the number of nodes that were read before the first free text.
	freeAt int
}

// scanDocument reads the children of the root. A reason means that reading
// stopped there; the nodes in front of that place are still good.
func scanDocument(s string) (*scanner, Reason) {
	sc := &scanner{s: s, nodes: make([]node, 0, 12), freeAt: -1}
	for {
		sc.skipSpace()
		if sc.pos >= len(sc.s) {
			return sc, QuarantineTruncated
		}
		if sc.s[sc.pos] != '<' {
			return sc, QuarantineStructure
		}
		if strings.HasPrefix(sc.s[sc.pos:], "</") {
			done, reason := sc.closeTag()
			if done || reason != "" {
				return sc, reason
			}
			continue
		}
		if reason := sc.element(); reason != "" {
			return sc, reason
		}
	}
}

// closeTag reads an end tag. It is done at the root's, behind which only white
// space may stand: a second document there would be somebody's forgery (S22).
func (sc *scanner) closeTag() (done bool, reason Reason) {
	sc.pos += 2
	want := "xml"
	if n := len(sc.open); n > 0 {
		want = sc.nodes[sc.open[n-1]].name
	}
	if !strings.HasPrefix(sc.s[sc.pos:], want) {
		return false, QuarantineStructure
	}
	sc.pos += len(want)
	sc.skipSpace()
	if sc.pos >= len(sc.s) {
		return false, QuarantineTruncated
	}
	if sc.s[sc.pos] != '>' {
		return false, QuarantineStructure
	}
	sc.pos++
	if n := len(sc.open); n > 0 {
		sc.open = sc.open[:n-1]
		return false, ""
	}
	sc.skipSpace()
	if sc.pos != len(sc.s) {
		return true, QuarantineStructure
	}
	return true, ""
}

// element reads a start tag and, if the element is a leaf, all of it.
func (sc *scanner) element() Reason {
	name, empty, reason := sc.startTag()
	if reason != "" {
		return reason
	}
	depth := len(sc.open) + 1
	if len(sc.nodes) == maxElements || depth+1 > maxDepth {
		return QuarantineLimits
	}
	free := sc.isFreeText(name)
	if free && sc.freeAt < 0 {
		sc.freeAt = len(sc.nodes)
	}
	sc.nodes = append(sc.nodes, node{name: name, depth: depth, leaf: true})
	n := &sc.nodes[len(sc.nodes)-1]
	if empty {
		return ""
	}
	if free && sc.freeText(n) {
		return ""
	}
	reason = sc.content(n)
	if depth == 1 && name == "MsgType" && !sc.typed {
		sc.typed, sc.event = true, strings.TrimSpace(n.value) == "event"
	}
	return reason
}

// startTag reads "<Name>" or "<Name/>".
func (sc *scanner) startTag() (name string, empty bool, reason Reason) {
	start := sc.pos + 1
	i := start
	for i < len(sc.s) && i-start <= maxTagName && isNameByte(sc.s[i]) {
		i++
	}
	name = sc.s[start:i]
	if name == "" || len(name) > maxTagName || name[0] == '-' || name[0] == '.' {
		return "", false, QuarantineStructure
	}
	sc.pos = i
	sc.skipSpace()
	if empty = sc.pos < len(sc.s) && sc.s[sc.pos] == '/'; empty {
		sc.pos++
	}
	switch {
	case sc.pos >= len(sc.s):
		return "", false, QuarantineTruncated
	case sc.s[sc.pos] != '>':
		return "", false, QuarantineStructure
	}
	sc.pos++
	return name, empty, ""
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
}

// content reads what follows a start tag. If the first thing besides white
// space is another element, the node is a container and stays open.
func (sc *scanner) content(n *node) Reason {
	var parts []string // only when the text comes in several pieces
	text, pieces := "", 0
	add := func(s string) {
		if pieces++; pieces == 1 {
			text = s
			return
		}
		if parts == nil {
			parts = append(parts, text)
		}
		parts = append(parts, s)
	}
	for {
		rest := sc.s[sc.pos:]
		i := strings.IndexByte(rest, '<')
		if i < 0 {
			return QuarantineTruncated
		}
		plain := rest[:i]
		rest = rest[i:]
		switch {
		case strings.HasPrefix(rest, "<![CDATA["):
			if plain != "" {
				add(unescape(plain))
			}
			end := strings.Index(rest, "]]>")
			if end < 0 {
				return QuarantineTruncated
			}
			add(rest[len("<![CDATA["):end])
			sc.pos += i + end + len("]]>")
		case strings.HasPrefix(rest, "</"):
			if plain != "" {
				add(unescape(plain))
			}
			sc.pos += i
			if parts != nil {
				text = strings.Join(parts, "")
			}
			n.value = text
			return sc.closeLeaf(n.name)
		case pieces == 0 && isSpace(plain):
			n.leaf = false
			sc.open = append(sc.open, len(sc.nodes)-1)
			sc.pos += i
			return ""
		default:
			return QuarantineStructure
		}
	}
}

func (sc *scanner) closeLeaf(name string) Reason {
	rest := sc.s[sc.pos+2:]
	if !strings.HasPrefix(rest, name) {
		return QuarantineStructure
	}
	sc.pos += 2 + len(name)
	sc.skipSpace()
	if sc.pos >= len(sc.s) {
		return QuarantineTruncated
	}
	if sc.s[sc.pos] != '>' {
		return QuarantineStructure
	}
	sc.pos++
	return ""
}

// isFreeText reports whether the element that starts here holds words of a
// user. Which elements do depends on where they stand, since events have
// elements of the same names that are not written by users.
func (sc *scanner) isFreeText(name string) bool {
	switch len(sc.open) {
	case 0:
		if sc.event {
			return false
		}
		switch name {
		case "Content", "Recognition", "Label", "Title", "Description", "Url", "PagePath", "ThumbUrl":
			return true
		}
	case 1:
		parent := sc.nodes[sc.open[0]].name
		return parent == "ScanCodeInfo" && name == "ScanResult" ||
			parent == "SendLocationInfo" && (name == "Label" || name == "Poiname")
	}
	return false
}

// freeText reads an element of user's words. WeChat does not split "]]>" in
// them, so what looks like the end of the element may have been typed by the
// user, with elements of his own choice behind it. The element therefore ends
// at the last place in the document that ends an element of this name: all
// that a user can reach that way is more of his own text (3.4). It reports
// false when the text is not one CDATA block.
func (sc *scanner) freeText(n *node) bool {
	rest := sc.s[sc.pos:]
	if !strings.HasPrefix(rest, "<![CDATA[") {
		return false
	}
	rest = rest[len("<![CDATA["):]
	end := lastClose(rest, n.name)
	if end < 0 {
		return false
	}
	n.value = rest[:end]
	if strings.Contains(n.value, splitCDATA) {
		// A sender that does split "]]>" writes it in this way.
		n.value = strings.ReplaceAll(n.value, splitCDATA, "]]>")
	}
	sc.pos += len("<![CDATA[") + end + len("]]></") + len(n.name) + len(">")
	return true
}

// splitCDATA is "]]>" as it is written inside CDATA by those who take care.
const splitCDATA = "]]]]><![CDATA[>"

// lastClose finds the last "]]></name>" in s.
func lastClose(s, name string) int {
	for end := len(s); ; {
		i := strings.LastIndex(s[:end], "]]></")
		if i < 0 {
			return -1
		}
		tail := s[i+len("]]></"):]
		if strings.HasPrefix(tail, name) && strings.HasPrefix(tail[len(name):], ">") {
			return i
		}
		end = i
	}
}

func (sc *scanner) skipSpace() {
	for sc.pos < len(sc.s) && isSpaceByte(sc.s[sc.pos]) {
		sc.pos++
	}
}

func isSpaceByte(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func isSpace(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isSpaceByte(s[i]) {
			return false
		}
	}
	return true
}
