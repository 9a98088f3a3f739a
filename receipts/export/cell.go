package export

import (
	"strings"
	"unicode"
)

// Cell keeps a spreadsheet from taking text for a formula, also behind blanks,
// quotes or a byte order mark, and in full-width signs (S55).
func Cell(s string) string {
	first := strings.TrimLeftFunc(s, func(c rune) bool {
		return unicode.IsSpace(c) || unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || c == '"' || c == '\''
	})
	if first != "" && strings.ContainsRune("=+-@＝＋－＠", []rune(first)[0]) || s != "" && strings.ContainsRune("\t\r\n", rune(s[0])) {
		return "'" + s
	}
	return s
}
