package redis

import "strings"

// Key joins parts with colons. Colons, braces, percent signs, blanks and
// control bytes inside a part are written as %XX, so that different parts never
// give the same key and nothing from outside can choose the cluster slot.
//
// The format on the server is <prefix>:<part>:<part>…; the client adds the prefix.
func Key(parts ...string) string {
	var b strings.Builder
	size := len(parts)
	for _, p := range parts {
		size += len(p)
	}
	b.Grow(size) // what must be escaped is rare
	for i, p := range parts {
		if i > 0 {
			b.WriteByte(':')
		}
		escape(&b, p)
	}
	return b.String()
}

// Tag is Key with a hash tag in front: {tag}:<part>:<part>…. All keys of one
// script must carry the same tag; one tag for everything would put all load on
// one cluster slot, so a tag names one thing (an account, a lease, a user).
func Tag(tag string, parts ...string) string {
	var b strings.Builder
	size := len("{}") + len(tag) + len(parts)
	for _, p := range parts {
		size += len(p)
	}
	b.Grow(size)
	b.WriteByte('{')
	escape(&b, tag)
	b.WriteByte('}')
	for _, p := range parts {
		b.WriteByte(':')
		escape(&b, p)
	}
	return b.String()
}

// tagOf is the part of a key that a cluster hashes: what stands in the first
// braces, or the whole key.
func tagOf(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

func escape(b *strings.Builder, s string) {
	const hex = "0123456789ABCDEF"
	plain := 0 // where what has not been written yet begins
	for i := 0; i < len(s); i++ {
		if c := s[i]; c <= ' ' || c == ':' || c == '{' || c == '}' || c == '%' || c == 0x7f {
			b.WriteString(s[plain:i])
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
			plain = i + 1
		}
	}
	b.WriteString(s[plain:])
}
