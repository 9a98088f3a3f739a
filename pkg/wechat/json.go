package wechat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// encodeJSON writes v the way WeChat wants it: UTF-8 without any \u escape.
// An escaped ampersand or angle bracket reaches the user as such, and some
// calls refuse the escapes altogether (47002). Go's encoder keeps escaping
// U+2028, U+2029 and bad UTF-8 even when told not to escape HTML, so what is
// left is turned back here; control characters, which JSON could not hold
// otherwise, are left out, as everywhere in this package.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode JSON: %w", err)
	}
	out := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if !bytes.Contains(out, []byte(`\u`)) {
		return out, nil
	}
	return plainText(out), nil
}

// plainText replaces \uXXXX by the character. It steps over other escapes in
// pairs, so that an escaped backslash in front of a u is not taken for one.
func plainText(in []byte) []byte {
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); i++ {
		if in[i] != '\\' || i+1 >= len(in) {
			out = append(out, in[i])
			continue
		}
		if in[i+1] != 'u' || i+6 > len(in) {
			out = append(out, in[i], in[i+1])
			i++
			continue
		}
		n, err := strconv.ParseUint(string(in[i+2:i+6]), 16, 32)
		if err == nil && n >= 0x20 {
			out = utf8.AppendRune(out, rune(n))
		}
		i += 5
	}
	return out
}

// answer is what every answer of WeChat holds.
type answer struct {
	Code wholeNumber `json:"errcode"`
	Msg  prose       `json:"errmsg"`
}

func (a *answer) outcome() (int, string) { return int(a.Code), string(a.Msg) }

// outcomeOf is what a call reads its answer into.
type outcomeOf interface {
	outcome() (code int, msg string)
}

var errNotJSON = errors.New("the answer is no JSON object; something between WeChat and us may have written it")

// decodeJSON reads an answer. Only an object is one: null, a bare word or a
// list would otherwise leave errcode 0 and pass for a success.
func decodeJSON(body []byte, into outcomeOf) error {
	body = bytes.TrimSpace(bytes.TrimPrefix(body, byteOrder))
	if len(body) == 0 || body[0] != '{' {
		return errNotJSON
	}
	if err := json.Unmarshal(body, into); err != nil {
		// The cause may quote the answer, which may quote what we sent.
		return errNotJSON
	}
	return nil
}

// wholeNumber reads a whole number that may stand in quotes.
type wholeNumber int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *wholeNumber) UnmarshalJSON(b []byte) error {
	s := strings.TrimSpace(strings.Trim(string(b), `"`))
	if s == "" || s == "null" {
		*n = 0
		return nil
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return errors.New("not a whole number")
	}
	*n = wholeNumber(v)
	return nil
}

// idText reads an id that is a number or a text, and keeps it as text: numbers
// may exceed what a float holds, and some ids became words over the years. Zero
// is no id. What is no id at all reads as none: a message that was accepted must
// not count as failed because of it.
type idText string

// UnmarshalJSON implements json.Unmarshaler.
func (t *idText) UnmarshalJSON(b []byte) error {
	s := strings.TrimSpace(string(looseText(b)))
	isNumber := isDigits(s)
	if s == "0" || !isMsgID(s) || (!isNumber && b[0] != '"') {
		s = ""
	}
	*t = idText(s)
	return nil
}

// prose reads errmsg, whatever WeChat puts there.
type prose string

// UnmarshalJSON implements json.Unmarshaler.
func (p *prose) UnmarshalJSON(b []byte) error {
	*p = prose(cut(clean(string(looseText(b))), maxProse))
	return nil
}

// maxProse bounds an errmsg in bytes.
const maxProse = 1024

// looseText is the text of a JSON string, or any other JSON as it stands.
func looseText(b []byte) []byte {
	var s string
	if len(b) > 0 && b[0] == '"' && json.Unmarshal(b, &s) == nil {
		return []byte(s)
	}
	return b
}
