package engine

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// valueError is an error that quotes no value.
type valueError struct{ text string }

func (e *valueError) Error() string { return e.text }

func bad(format string, args ...any) error { return &valueError{fmt.Sprintf(format, args...)} }

// anchor is text that may contain an anchor because link made it.
type anchor string

// plain writes a value as text. Lists and objects are refused: a reply with
// Go's notation of a map in it is never what somebody wanted.
func plain(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", bad("a value is null: use get or default")
	case string:
		return v, nil
	case anchor:
		return string(v), nil
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case json.Number:
		return v.String(), nil
	}
	return "", bad("a value is a list or an object: choose one of its fields")
}

// escapeText makes a value safe inside chat text: line breaks and tabs stay,
// other control characters and invisible direction marks go, and "<" before a
// letter or "/" becomes full width, so that no value can bring an anchor.
func escapeText(v any) (string, error) {
	s, err := plain(v)
	if _, ok := v.(anchor); ok || err != nil {
		return s, err
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case unicode.IsControl(r) || r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069:
		case r == '<' && opensTag(s[i+1:]):
			b.WriteRune('＜')
		default:
			b.WriteRune(r)
		}
	}
	return b.String(), nil
}

// opensTag looks past what a lenient reader could skip. It errs on the side
// of escaping: a value that ends in "<" may be followed by a letter of the
// template.
func opensTag(rest string) bool {
	for _, r := range rest {
		switch {
		case unicode.IsLetter(r) || r == '/' || r == '!' || r == '?':
			return true
		case unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			continue
		}
		return false
	}
	return true
}

func escapePath(v any) (string, error) {
	s, err := plain(v)
	return url.PathEscape(s), err
}

func escapeQuery(v any) (string, error) {
	s, err := plain(v)
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20"), err
}
