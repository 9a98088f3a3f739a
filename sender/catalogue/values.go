package catalogue

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// keyForm finds the keys in a template's text.
var keyForm = regexp.MustCompile(`\{\{\s*([A-Za-z][A-Za-z0-9_]*)\.DATA\s*\}\}`)

// maxKeys bounds what is read of one template.
const maxKeys = 64

// KeysOf finds the keys that a template's text names, each once.
func KeysOf(content string) []string {
	var keys []string
	seen := map[string]bool{}
	for _, m := range keyForm.FindAllStringSubmatch(content, maxKeys) {
		if !seen[m[1]] {
			seen[m[1]] = true
			keys = append(keys, m[1])
		}
	}
	return keys
}

// Wrong is why a push does not fit its template: the key at fault, "" for all of
// them, and what to do.
type Wrong struct{ Key, Why string }

// Check holds values against the template: its keys, and the lengths and forms that
// WeChat takes by the type in a key's name (wechat.md 4.4). nil means that they fit.
func (t Template) Check(data map[string]string) *Wrong {
	known := map[string]bool{}
	for _, k := range t.Keys {
		known[k] = true
		v, there := data[k]
		if !there || strings.TrimSpace(v) == "" {
			return &Wrong{k, "the template needs a value for it"}
		}
		if why := Misfit(k, v); why != "" {
			return &Wrong{k, why}
		}
	}
	odd := ""
	for k := range data {
		if !known[k] && (odd == "" || k < odd) {
			odd = k
		}
	}
	if odd != "" {
		return &Wrong{odd, fmt.Sprintf("the template has no such key; it has %s", strings.Join(t.Keys, ", "))}
	}
	return nil
}

// bound is what one type of value may be.
type bound struct {
	most int // characters
	form func(string) bool
	want string // the form in words
}

// boundOf is data: the documented limits by type.
func boundOf(kind string) (bound, bool) {
	switch kind {
	case "thing":
		return bound{20, nil, ""}, true
	case "number":
		return bound{32, func(s string) bool { return only(s, "0123456789.-") }, "digits"}, true
	case "letter":
		return bound{32, func(s string) bool { return strings.IndexFunc(s, notLetter) < 0 }, "letters"}, true
	case "character_string":
		return bound{32, func(s string) bool { return strings.IndexFunc(s, han) < 0 }, "digits, letters and symbols"}, true
	case "symbol", "phrase":
		return bound{5, nil, ""}, true
	case "phone_number":
		return bound{17, func(s string) bool { return only(s, "0123456789+- ") }, "digits, + and -"}, true
	case "car_number":
		return bound{8, nil, ""}, true
	case "amount":
		return bound{12, amount, "an amount with at most 10 digits and one sign of a currency in front or 元 behind it"}, true
	case "name":
		return bound{20, func(s string) bool { return utf8.RuneCountInString(s) <= 10 || strings.IndexFunc(s, han) < 0 }, "at most 10 Han characters, or 20 letters"}, true
	case "time", "date":
		return bound{32, func(s string) bool { return strings.ContainsAny(s, "0123456789") }, "a time, for example 2026年12月24日 18:00"}, true
	}
	return bound{}, false
}

var typedKey = regexp.MustCompile(`^([a-z_]+)[0-9]+$`)

// Misfit says why a value does not fit the type in its key's name, or "". Keys of
// no known type take anything.
func Misfit(key, value string) string {
	m := typedKey.FindStringSubmatch(key)
	if m == nil {
		return ""
	}
	b, known := boundOf(m[1])
	switch n := utf8.RuneCountInString(value); {
	case !known:
		return ""
	case n > b.most:
		return fmt.Sprintf("%d characters: WeChat takes at most %d for %s", n, b.most, m[1])
	case b.form != nil && !b.form(value):
		return fmt.Sprintf("WeChat takes %s for %s", b.want, m[1])
	}
	return ""
}

func only(s, of string) bool {
	return strings.Trim(s, of) == "" && strings.ContainsAny(s, "0123456789")
}

func han(r rune) bool { return unicode.Is(unicode.Han, r) }

func notLetter(r rune) bool { return !unicode.IsLetter(r) || han(r) }

// amount takes ¥12.50, -12.50, 12.50元, US$3.
func amount(s string) bool {
	digits := 0
	for _, r := range s {
		if r >= '0' && r <= '9' {
			digits++
		}
	}
	return digits > 0 && digits <= 10
}
