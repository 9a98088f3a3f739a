package sqldb

import "strings"

// rebind turns $1 into ?1 for SQLite, which would otherwise number $-names by
// first appearance and so swap arguments silently. Text in quotes, quoted
// names and comments stay as they are.
func rebind(q string) string {
	if !strings.Contains(q, "$") {
		return q
	}
	var b strings.Builder
	b.Grow(len(q))
	for i := 0; i < len(q); {
		n := skipQuoted(q[i:])
		switch {
		case n > 0:
			b.WriteString(q[i : i+n])
			i += n
		case q[i] == '$' && i+1 < len(q) && q[i+1] >= '0' && q[i+1] <= '9':
			b.WriteByte('?')
			i++
		default:
			b.WriteByte(q[i])
			i++
		}
	}
	return b.String()
}

// skipQuoted is the length of the string, quoted name or comment at the head
// of s, or 0. A doubled quote inside simply starts the next quoted piece.
func skipQuoted(s string) int {
	var from int
	var end string
	switch {
	case s[0] == '\'' || s[0] == '"':
		from, end = 1, s[:1]
	case strings.HasPrefix(s, "--"):
		from, end = 2, "\n"
	case strings.HasPrefix(s, "/*"):
		from, end = 2, "*/"
	default:
		return 0
	}
	if i := strings.Index(s[from:], end); i >= 0 {
		return from + i + len(end)
	}
	return len(s)
}
