package wechat

import (
	"net/url"
	"strconv"
	"strings"
)

// Limits of the query string of a callback. WeChat's own stay below 400 bytes
// and 7 parameters.
const (
	maxQuery       = 2048
	maxQueryParams = 32
	maxNonce       = 128
	maxEchoStr     = 512
	// maxTimestampDigits leaves room for seconds far beyond any date and keeps
	// the number inside 64 bits.
	maxTimestampDigits = 12
	maxOpenID          = 64
)

// Query holds what WeChat puts behind the question mark of a callback.
// ParseQuery has checked the form of each field; none of it is authentic yet.
type Query struct {
	Signature    string // 40 lower-case hex characters, or empty
	MsgSignature string // 40 lower-case hex characters, or empty
	Timestamp    string // decimal digits, or empty
	Nonce        string // printable ASCII, or empty
	OpenID       string // the sender; absent on some pushes
	EncryptType  string // "", "raw" or "aes"
	EchoStr      string // GET check only
	HasEchoStr   bool
}

// ParseQuery reads a raw query string. It refuses what net/url would silently
// resolve in somebody's favour: a parameter given twice, names in encoded form,
// semicolons, control characters (S13), timestamps that are not plain digits
// (S6), signatures in another spelling (S2) and openids that could steer a key
// or a path (S28). Unknown parameters are allowed once each and ignored, since
// WeChat may add some. The error is a *Refusal.
func ParseQuery(raw string) (Query, error) {
	var q Query
	if len(raw) > maxQuery || strings.ContainsAny(raw, ";#") {
		return q, refuse(ReasonQuery)
	}
	var seen [maxQueryParams]string
	n := 0
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		if n == maxQueryParams || !isName(name) {
			return Query{}, refuse(ReasonQuery)
		}
		for _, s := range seen[:n] {
			if s == name {
				return Query{}, refuse(ReasonQuery)
			}
		}
		seen[n] = name
		n++
		value, err := url.QueryUnescape(value)
		if err != nil || !q.set(name, value) {
			return Query{}, refuse(ReasonQuery)
		}
	}
	return q, nil
}

// set stores a parameter and reports whether its value is in form. An empty
// value counts as absent.
func (q *Query) set(name, value string) bool {
	switch name {
	case "signature":
		q.Signature = value
		return value == "" || isSignature(value)
	case "msg_signature":
		q.MsgSignature = value
		return value == "" || isSignature(value)
	case "timestamp":
		q.Timestamp = value
		return value == "" || isTimestamp(value)
	case "nonce":
		q.Nonce = value
		return isPrintable(value, maxNonce)
	case "openid":
		q.OpenID = value
		return value == "" || IsOpenID(value)
	case "encrypt_type":
		q.EncryptType = value
		return value == "" || value == "aes" || value == "raw"
	case "echostr":
		q.EchoStr, q.HasEchoStr = value, true
		return isPrintable(value, maxEchoStr)
	}
	return true
}

// Seconds returns the timestamp as a number; it is 0 when there is none.
func (q Query) Seconds() int64 {
	n, err := strconv.ParseInt(q.Timestamp, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// IsOpenID reports whether s has the form of an openid: 1 to 64 letters,
// digits, underscores and hyphens. Nothing else may become part of a key (S28).
func IsOpenID(s string) bool {
	return len(s) > 0 && len(s) <= maxOpenID && isWord(s)
}

func isName(s string) bool { return len(s) > 0 && len(s) <= 64 && isWord(s) }

func isWord(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// isTimestamp accepts ASCII digits only: no sign, no exponent, no other script.
func isTimestamp(s string) bool {
	return len(s) <= maxTimestampDigits && isDigits(s)
}

func isDigits(s string) bool {
	if s == "" {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// isPrintable accepts printable ASCII up to limit bytes, also none at all.
func isPrintable(s string, limit int) bool {
	if len(s) > limit {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
