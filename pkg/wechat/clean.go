package wechat

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// unescape resolves the five named entities and character references. What it
// does not know stays as it was typed: a custom entity is never expanded.
func unescape(s string) string {
	if strings.IndexByte(s, '&') < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for {
		i := strings.IndexByte(s, '&')
		if i < 0 {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		s = s[i:]
		// Looking no further than the longest reference keeps this linear.
		end := strings.IndexByte(s[:min(len(s), maxReference)], ';')
		if end < 0 {
			b.WriteByte('&')
			s = s[1:]
			continue
		}
		if text, ok := entity(s[1:end]); ok {
			b.WriteString(text)
			s = s[end+1:]
			continue
		}
		b.WriteByte('&')
		s = s[1:]
	}
}

// maxReference is the length of the longest reference that is resolved.
const maxReference = len("&#x10FFFF;")

func entity(name string) (string, bool) {
	switch name {
	case "lt":
		return "<", true
	case "gt":
		return ">", true
	case "amp":
		return "&", true
	case "quot":
		return `"`, true
	case "apos":
		return "'", true
	}
	digits, ok := strings.CutPrefix(name, "#")
	if !ok {
		return "", false
	}
	base := 10
	if hex, ok := strings.CutPrefix(digits, "x"); ok {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, 32)
	if err != nil || n > utf8.MaxRune {
		return "", false
	}
	return string(rune(n)), true
}

// isClean reports whether s can go into JSON, SQL and logs as it is: valid
// UTF-8 without control characters besides tab and line ends.
func isClean(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 && c != '\t' && c != '\n' && c != '\r' {
			return false
		}
	}
	return utf8.ValidString(s)
}

// clean makes any bytes fit for isClean: control characters are left out and
// each run of bytes that is no UTF-8 becomes one U+FFFD. It works on values and
// never on documents: leaving a byte out of a document could make a tag.
func clean(s string) string {
	if isClean(s) {
		return s
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' {
			return -1
		}
		return r
	}, s)
}
