package wire

import (
	"encoding/base64"
	"slices"
	"strconv"
	"unicode/utf8"
)

// appender is a letter that writes its own JSON. Those that are made for every
// callback do: encoding/json costs four times as much.
type appender interface {
	// sizeHint is about how long the JSON will be.
	sizeHint() int
	// appendJSON writes exactly what encoding/json would, without escaping HTML.
	appendJSON(b []byte) []byte
}

func (c *Callback) sizeHint() int {
	n := 640 + len(c.Identity) + len(c.EventKey) + len(c.Content) + base64.StdEncoding.EncodedLen(len(c.Body))
	for k, v := range c.Fields {
		n += len(k) + len(v) + 8
	}
	return n
}

func (c *Callback) appendJSON(b []byte) []byte {
	b = appendText(append(b, `{"id":`...), c.ID)
	b = appendText(append(b, `,"identity_hash":`...), c.IdentityHash)
	b = appendText(append(b, `,"identity":`...), c.Identity)
	b = appendText(append(b, `,"account":`...), c.Account)
	b = appendText(append(b, `,"openid":`...), c.OpenID)
	b = appendOptional(b, `,"to_user":`, c.ToUser)
	b = appendText(append(b, `,"msg_type":`...), c.MsgType)
	b = appendOptional(b, `,"event":`, c.Event)
	b = appendOptional(b, `,"event_key":`, c.EventKey)
	b = appendOptional(b, `,"msg_id":`, c.MsgID)
	b = strconv.AppendInt(append(b, `,"create_time":`...), c.CreateTime, 10)
	b = appendOptional(b, `,"content":`, c.Content)
	b = appendFields(b, c.Fields)
	b = strconv.AppendInt(append(b, `,"received_at":`...), c.ReceivedAt, 10)
	b = appendOptional(b, `,"answered":`, c.Answered)
	if c.Unchecked {
		b = append(b, `,"unchecked":true`...)
	}
	b = appendOptional(b, `,"quarantine":`, c.Quarantined)
	if len(c.Body) > 0 {
		b = base64.StdEncoding.AppendEncode(append(b, `,"body":"`...), c.Body)
		b = append(b, '"')
	}
	b = appendOptional(b, `,"traceparent":`, c.TraceParent)
	b = appendOptional(b, `,"replay_of":`, c.ReplayOf)
	return append(b, '}')
}

func appendOptional(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return appendText(append(b, name...), value)
}

// appendFields writes the map with its names in order, so that equal letters
// are equal bytes.
func appendFields(b []byte, fields map[string]string) []byte {
	if len(fields) == 0 {
		return b
	}
	var few [16]string
	names := few[:0]
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	b = append(b, `,"fields":{`...)
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, name)
		b = appendText(append(b, ':'), fields[name])
	}
	return append(b, '}')
}

// appendText writes a JSON string. Runs of bytes that need nothing done are
// copied whole. What is no UTF-8 becomes U+FFFD; the two line ends that
// JavaScript knows and JSON does not are escaped, as encoding/json does.
func appendText(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			b = append(b, s[start:i]...)
			if e := shortEscape(c); e != 0 {
				b = append(b, '\\', e)
			} else {
				b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
			}
			i++
			start = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = append(append(b, s[start:i]...), `\ufffd`...)
			start = i + n
		case r == '\u2028' || r == '\u2029':
			b = append(append(b, s[start:i]...), `\u202`...)
			b = append(b, digits[r&15])
			start = i + n
		}
		i += n
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// shortEscape is the letter of a two-character escape, or 0.
func shortEscape(c byte) byte {
	switch c {
	case '"', '\\':
		return c
	case '\b':
		return 'b'
	case '\f':
		return 'f'
	case '\n':
		return 'n'
	case '\r':
		return 'r'
	case '\t':
		return 't'
	}
	return 0
}
