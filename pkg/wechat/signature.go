package wechat

import (
	"crypto/sha1"
	"crypto/subtle"
	"encoding/hex"
	"slices"
)

// Signature returns the signature that WeChat defines over parts: the parts
// sorted bytewise, joined without a separator, hashed with SHA-1, in lower-case
// hex. The GET check and plain callbacks sign (token, timestamp, nonce);
// encrypted callbacks and replies add the base64 text as a fourth part.
//
// SHA-1 is WeChat's choice and cannot be changed from our side.
func Signature(parts ...string) string {
	text := signature(nil, parts...)
	return string(text[:])
}

// signature is Signature with the base64 text, if there is one, as it stands in
// the body. It keeps the usual call off the heap: four parts are the most that
// the protocol has, and a message of usual size fits into the local array.
func signature(sealed []byte, parts ...string) (text [signatureLength]byte) {
	var few [4]string
	sorted := append(few[:0], parts...)
	slices.Sort(sorted)
	var usual [1536]byte
	all := usual[:0]
	placed := false
	for _, p := range sorted {
		if !placed && string(sealed) < p {
			all, placed = append(all, sealed...), true
		}
		all = append(all, p...)
	}
	if !placed {
		all = append(all, sealed...)
	}
	sum := sha1.Sum(all)
	hex.Encode(text[:], sum[:])
	return text
}

// signatureLength is the length of a signature in its only accepted form.
const signatureLength = 2 * sha1.Size

// isSignature reports whether s has the exact form of a signature. Upper case,
// spaces and other lengths are refused, so that a signature has one spelling (S2).
func isSignature(s string) bool {
	if len(s) != signatureLength {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// sameText compares in constant time (S4); only the length of b shows.
func sameText(a [signatureLength]byte, b string) bool {
	return subtle.ConstantTimeCompare(a[:], []byte(b)) == 1
}
