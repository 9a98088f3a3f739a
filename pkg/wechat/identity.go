package wechat

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// Identity names a message or event in a way that is the same for every repeat
// of it and different for any other. Repeats carry a fresh query string and
// fresh ciphertext, so nothing of those is in it (T5).
type Identity struct {
	// Text is the canonical form: kind and parts joined by colons, each part
	// escaped so that no part can hold a colon of its own. It is printable
	// ASCII without spaces, braces and slashes.
	Text string
	// MsgID is WeChat's id of the message that a receipt reports on; else "".
	MsgID string
}

// maxPart bounds a part of an identity. Longer ones (an EventKey may be a long
// address) are replaced by their hash.
const maxPart = 128

// Identities returns the identities of m for one of our accounts, in document
// order: one per List item of a subscription report, else exactly one.
//
//	msg:account:openid:MsgId                        messages
//	event:account:openid:CreateTime:Event:EventKey  events, plus what tells apart
//	                                                two of them in one second
//	receipt:account:Event:MsgID:openid              reports about sends
//	raw:account:SHA-256 of the document             quarantined, and messages without id
//
// MsgId alone is not unique over users, and openid with CreateTime is not
// unique over events; both have lost messages elsewhere.
func (m *Message) Identities(account string) []Identity {
	if m.hash != "" {
		return []Identity{{Text: identityText("raw", account, m.hash)}}
	}
	if m.MsgType != TypeEvent {
		return []Identity{{Text: identityText("msg", account, m.FromUserName, m.MsgID)}}
	}
	if !isReceiptEvent(m.Event) {
		return []Identity{{Text: m.eventIdentity(account)}}
	}
	if m.Event != EventSubscribeMsgSent {
		return []Identity{{Text: identityText("receipt", account, m.Event, m.MsgID, m.FromUserName), MsgID: m.MsgID}}
	}
	items := m.list()
	out := make([]Identity, 0, len(items))
	for i, it := range items {
		out = append(out, m.itemIdentity(account, i, it))
	}
	return out
}

// itemIdentity is the identity of one item. An item without an id, which was
// never seen but would not be impossible, is told apart by its place.
func (m *Message) itemIdentity(account string, i int, it Element) Identity {
	id := strings.TrimSpace(it.Get("MsgID"))
	if id != "" {
		return Identity{Text: identityText("receipt", account, m.Event, id, m.FromUserName), MsgID: id}
	}
	return Identity{Text: identityText("receipt", account, m.Event, "", m.FromUserName,
		strconv.FormatInt(m.CreateTime, 10), strings.TrimSpace(it.Get("TemplateId")), strconv.Itoa(i))}
}

// eventIdentity adds to the usual key what distinguishes events of one user in
// one second: the card, the user that an authorization report is about, the
// publication, and the templates that a subscription event decides on.
func (m *Message) eventIdentity(account string) string {
	parts := []string{account, m.FromUserName, strconv.FormatInt(m.CreateTime, 10), m.Event, m.EventKey}
	for _, name := range [...]string{"UserCardCode", "OpenID", "openid"} {
		if v := m.Get(name); v != "" {
			parts = append(parts, v)
		}
	}
	if m.Event == EventPublished {
		parts = append(parts, m.Get("PublishEventInfo", "publish_id"))
	}
	for _, c := range m.Choices() {
		parts = append(parts, c.TemplateID+"="+c.Status)
	}
	return identityText("event", parts...)
}

func identityText(kind string, parts ...string) string {
	n := len(kind)
	for _, p := range parts {
		n += 1 + len(p)
	}
	b := make([]byte, 0, n+16)
	b = append(b, kind...)
	for _, p := range parts {
		b = append(b, ':')
		b = appendPart(b, p)
	}
	return string(b)
}

// appendPart escapes everything but letters, digits and _ - . = @ as %XX. A
// long part becomes ~ and its SHA-256; a tilde is itself escaped, so the two
// forms cannot be confused.
func appendPart(b []byte, part string) []byte {
	if len(part) > maxPart {
		sum := sha256.Sum256([]byte(part))
		return hex.AppendEncode(append(b, '~'), sum[:])
	}
	const digits = "0123456789ABCDEF"
	for i := 0; i < len(part); i++ {
		c := part[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9',
			c == '_', c == '-', c == '.', c == '=', c == '@':
			b = append(b, c)
		default:
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return b
}
