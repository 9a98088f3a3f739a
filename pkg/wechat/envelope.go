package wechat

import (
	"bytes"
)

// MaxBody is the largest callback body that is looked at, in bytes (D1). The
// door answers 413 above it.
const MaxBody = 64 << 10

var (
	encryptOpen  = []byte("<Encrypt>")
	encryptClose = []byte("</Encrypt>")
	cdataOpen    = []byte("<![CDATA[")
	cdataClose   = []byte("]]>")
	byteOrder    = []byte("\xef\xbb\xbf")
	declaration  = []byte("<?xml")
	declEnd      = []byte("?>")
)

// encryptTexts returns the texts of the Encrypt elements that may be the real
// one, the most likely first. In compatible mode the user's own words stand in
// the same document, outside the ciphertext, so a follower can write an Encrypt
// element of his own there. WeChat writes the real one behind all others; the
// first is looked at as well, in case that order changes. The msg_signature
// decides between them, so neither choice can let anything in, and a follower's
// forgery cannot keep the real one out.
func encryptTexts(body []byte) [][]byte {
	first := bytes.Index(body, encryptOpen)
	if first < 0 {
		return nil
	}
	// Usually there is one, and searching forwards is many times faster than
	// bytes.LastIndex.
	last := first
	for {
		i := bytes.Index(body[last+1:], encryptOpen)
		if i < 0 {
			break
		}
		last += 1 + i
	}
	texts := make([][]byte, 0, 2)
	if t := encryptText(body[last+len(encryptOpen):]); len(t) > 0 {
		texts = append(texts, t)
	}
	if first != last {
		if t := encryptText(body[first+len(encryptOpen):]); len(t) > 0 {
			texts = append(texts, t)
		}
	}
	return texts
}

// encryptText reads the content of one Encrypt element: base64 with or without
// CDATA around it. White space around the text is not part of what is signed.
func encryptText(rest []byte) []byte {
	end := bytes.Index(rest, encryptClose)
	if end < 0 {
		return nil
	}
	text := bytes.TrimSpace(rest[:end])
	if inner, ok := bytes.CutPrefix(text, cdataOpen); ok {
		if inner, ok = bytes.CutSuffix(inner, cdataClose); !ok {
			return nil
		}
		text = bytes.TrimSpace(inner)
	}
	ok := true
	for _, c := range text {
		ok = ok && inBase64[c]
	}
	if !ok {
		return nil
	}
	return text
}

// inBase64 has the bytes of base64 and its padding.
var inBase64 = func() (in [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=" {
		in[c] = true
	}
	return in
}()

// prolog is what stands in front of the root element.
type prolog int

const (
	prologClean    prolog = iota
	prologMissing         // there is no root element <xml>
	prologDoctype         // a declaration such as <!DOCTYPE
	prologEncoding        // an encoding other than UTF-8
)

var (
	rootOpen      = []byte("<xml>")
	utf8Names     = [][]byte{[]byte("utf-8"), []byte("utf8"), []byte("us-ascii")}
	encodingField = []byte("encoding")
)

// readProlog checks what precedes the root element and returns the content
// behind its start tag. Only a byte order mark, white space and an XML
// declaration in UTF-8 may stand there. Anything that starts with "<!" is
// refused on sight (S17 to S19), even though Go's decoder would not follow it,
// so that no later change of the decoder can open that door again. A user
// cannot reach this place: his text comes behind the root.
func readProlog(doc []byte) ([]byte, prolog) {
	doc = bytes.TrimPrefix(doc, byteOrder)
	doc = bytes.TrimLeft(doc, " \t\r\n")
	if bytes.HasPrefix(doc, declaration) {
		end := bytes.Index(doc, declEnd)
		if end < 0 {
			return nil, prologMissing
		}
		if !isUTF8Declaration(doc[:end]) {
			return nil, prologEncoding
		}
		doc = bytes.TrimLeft(doc[end+len(declEnd):], " \t\r\n")
	}
	switch {
	case bytes.HasPrefix(doc, rootOpen):
		return doc[len(rootOpen):], prologClean
	case bytes.HasPrefix(doc, []byte("<!")):
		return nil, prologDoctype
	case isUTF16(doc):
		return nil, prologEncoding
	}
	return nil, prologMissing
}

// isUTF8Declaration reports whether an XML declaration names UTF-8 or nothing.
func isUTF8Declaration(decl []byte) bool {
	decl = bytes.ToLower(decl)
	i := bytes.Index(decl, encodingField)
	if i < 0 {
		return true
	}
	value := bytes.Trim(decl[i+len(encodingField):], " \t\r\n=\"'")
	for _, name := range utf8Names {
		if bytes.HasPrefix(value, name) {
			return true
		}
	}
	return false
}

func isUTF16(doc []byte) bool {
	return bytes.HasPrefix(doc, []byte("\xff\xfe")) || bytes.HasPrefix(doc, []byte("\xfe\xff"))
}
