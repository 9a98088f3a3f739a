package wire

import (
	"bytes"
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// reader is a letter whose usual JSON is read without encoding/json, which reads
// every byte three times and costs a robot a quarter of all its work (D5). What is
// unusual in any way (a name that is not known, a null, a fraction, a lone
// surrogate, bytes that are no UTF-8) is left to encoding/json, so that both agree
// on everything, errors included.
type reader interface {
	// field gives where the value of a name goes, nil for a name that is not known:
	// *string, *int64, *bool, *[]byte or *map[string]string.
	field(name []byte) any
}

func (c *Callback) field(name []byte) any {
	switch string(name) {
	case "id":
		return &c.ID
	case "identity_hash":
		return &c.IdentityHash
	case "identity":
		return &c.Identity
	case "account":
		return &c.Account
	case "openid":
		return &c.OpenID
	case "to_user":
		return &c.ToUser
	case "msg_type":
		return &c.MsgType
	case "event":
		return &c.Event
	case "event_key":
		return &c.EventKey
	case "msg_id":
		return &c.MsgID
	case "create_time":
		return &c.CreateTime
	case "content":
		return &c.Content
	case "fields":
		return &c.Fields
	case "received_at":
		return &c.ReceivedAt
	case "answered":
		return &c.Answered
	case "unchecked":
		return &c.Unchecked
	case "quarantine":
		return &c.Quarantined
	case "body":
		return &c.Body
	case "traceparent":
		return &c.TraceParent
	case "replay_of":
		return &c.ReplayOf
	}
	return nil
}

// scan walks over one JSON value. Every method reports whether it has read what
// was there; after a no the value is encoding/json's.
type scan struct {
	b []byte
	i int

	// The letter's plain texts are gathered and become parts of one string at the
	// end: one block of memory instead of ten.
	texts [24]gathered
	n     int
	total int
}

// gathered is a text to be, and where it lies in b.
type gathered struct {
	to       *string
	from, up int
}

// read fills l from a JSON object. After a no l holds anything.
func read(value []byte, l reader) bool {
	s := scan{b: value}
	s.space()
	if !s.object(func(name []byte) bool { return s.value(l.field(name)) }) {
		return false
	}
	s.space()
	if s.i != len(s.b) {
		return false
	}
	s.hand()
	return true
}

// gather keeps a text for hand, and takes care of one that came twice.
func (s *scan) gather(to *string, from, up int) bool {
	for i := range s.texts[:s.n] {
		if g := &s.texts[i]; g.to == to {
			s.total += up - from - (g.up - g.from)
			g.from, g.up = from, up
			return true
		}
	}
	if s.n == len(s.texts) {
		return false
	}
	s.texts[s.n] = gathered{to, from, up}
	s.n++
	s.total += up - from
	return true
}

// drop forgets a text that has come again in another way.
func (s *scan) drop(to *string) {
	for i := range s.texts[:s.n] {
		if s.texts[i].to == to {
			s.total -= s.texts[i].up - s.texts[i].from
			s.n--
			s.texts[i] = s.texts[s.n]
			return
		}
	}
}

// hand gives the gathered texts to their places.
func (s *scan) hand() {
	var b strings.Builder
	b.Grow(s.total)
	for _, g := range s.texts[:s.n] {
		b.Write(s.b[g.from:g.up])
	}
	all := b.String()
	for _, g := range s.texts[:s.n] {
		n := g.up - g.from
		*g.to, all = all[:n], all[n:]
	}
}

func (s *scan) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\n' || s.b[s.i] == '\t' || s.b[s.i] == '\r') {
		s.i++
	}
}

func (s *scan) take(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// object hands each name to member, which reads the value.
func (s *scan) object(member func(name []byte) bool) bool {
	if !s.take('{') {
		return false
	}
	s.space()
	if s.take('}') {
		return true
	}
	for {
		name, plain := s.plain()
		if !plain {
			return false
		}
		s.space()
		if !s.take(':') {
			return false
		}
		s.space()
		if !member(name) {
			return false
		}
		s.space()
		if s.take('}') {
			return true
		}
		if !s.take(',') {
			return false
		}
		s.space()
	}
}

func (s *scan) value(to any) (ok bool) {
	switch to := to.(type) {
	case *string:
		begin := s.i
		if in, plain := s.plain(); plain {
			return s.gather(to, s.i-1-len(in), s.i-1)
		}
		s.i = begin
		if *to, ok = s.escaped(); ok {
			s.drop(to)
		}
	case *int64:
		*to, ok = s.number()
	case *bool:
		*to, ok = s.truth()
	case *[]byte:
		*to, ok = s.base64()
	case *map[string]string:
		ok = s.fields(to)
	}
	return ok
}

// plain reads a string that needs nothing done and gives the bytes in it.
func (s *scan) plain() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	from, ascii := s.i, true
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; {
		case c == '"':
			in := s.b[from:s.i]
			s.i++
			return in, ascii || utf8.Valid(in)
		case c == '\\' || c < ' ':
			return nil, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, false
}

// text reads any string.
func (s *scan) text() (string, bool) {
	begin := s.i
	if in, ok := s.plain(); ok {
		return string(in), true
	}
	s.i = begin
	return s.escaped()
}

// escaped reads a string with escapes in it.
func (s *scan) escaped() (string, bool) {
	if !s.take('"') {
		return "", false
	}
	out := make([]byte, 0, 64)
	for s.i < len(s.b) {
		c := s.b[s.i]
		s.i++
		switch {
		case c == '"':
			return string(out), utf8.Valid(out)
		case c < ' ':
			return "", false
		case c != '\\':
			out = append(out, c)
		default:
			r, ok := s.escape()
			if !ok {
				return "", false
			}
			out = utf8.AppendRune(out, r)
		}
	}
	return "", false
}

// escape reads what is behind a backslash.
func (s *scan) escape() (rune, bool) {
	if s.i >= len(s.b) {
		return 0, false
	}
	c := s.b[s.i]
	s.i++
	switch c {
	case '"', '\\', '/':
		return rune(c), true
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	case 'u':
		return s.unicode()
	}
	return 0, false
}

// unicode reads four hexadecimal digits. Halves of a pair are left to
// encoding/json.
func (s *scan) unicode() (rune, bool) {
	if s.i+4 > len(s.b) {
		return 0, false
	}
	var r rune
	for _, c := range s.b[s.i : s.i+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	s.i += 4
	return r, r < 0xd800 || r > 0xdfff
}

// number reads a whole number of up to 18 digits.
func (s *scan) number() (n int64, ok bool) {
	negative := s.take('-')
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		n = n*10 + int64(s.b[s.i]-'0')
		if s.i++; s.i-from > 18 {
			return 0, false
		}
	}
	digits := s.i - from
	if digits == 0 || digits > 1 && s.b[from] == '0' {
		return 0, false
	}
	if s.i < len(s.b) && (s.b[s.i] == '.' || s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		return 0, false
	}
	if negative {
		n = -n
	}
	return n, true
}

func (s *scan) truth() (is, ok bool) {
	for _, word := range [...]string{"true", "false"} {
		if len(s.b)-s.i >= len(word) && string(s.b[s.i:s.i+len(word)]) == word {
			s.i += len(word)
			return word == "true", true
		}
	}
	return false, false
}

// base64 needs no look at each byte: the decoder refuses what does not belong
// there, except for line ends, which a JSON string cannot hold.
func (s *scan) base64() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	n := bytes.IndexByte(s.b[s.i:], '"')
	if n < 0 {
		return nil, false
	}
	in := s.b[s.i : s.i+n]
	s.i += n + 1
	if bytes.IndexByte(in, '\n') >= 0 || bytes.IndexByte(in, '\r') >= 0 {
		return nil, false
	}
	out := make([]byte, base64.StdEncoding.DecodedLen(n))
	n, err := base64.StdEncoding.Decode(out, in)
	return out[:n], err == nil
}

// fields reads an object of strings into what is there already.
func (s *scan) fields(to *map[string]string) bool {
	if *to == nil {
		*to = map[string]string{}
	}
	return s.object(func(name []byte) bool {
		key := string(name)
		v, ok := s.text()
		(*to)[key] = v
		return ok
	})
}
