package sender

import (
	"strings"
	"unicode/utf8"
)

// maxPart is the length of a text in bytes that WeChat takes at once (wechat.md
// 4.2).
const maxPart = 2048

// maxParts bounds the messages that one reply may become: a window has five.
const maxParts = 5

// split cuts a text into parts that WeChat takes, in order, at the end of a line
// or a word where one is near, never inside a rune or the tag of a link. It
// reports false if there would be too many.
func split(text string) (parts []string, ok bool) {
	text = strings.Trim(text, " \n")
	for len(text) > maxPart {
		if len(parts) == maxParts-1 {
			return nil, false
		}
		n := cut(text)
		parts = append(parts, strings.TrimRight(text[:n], " \n"))
		text = strings.TrimLeft(text[n:], " \n")
	}
	return append(parts, text), true
}

// cut is where a part of a text that is too long ends.
func cut(text string) int {
	n := maxPart
	for n > maxPart-utf8.UTFMax && !utf8.RuneStart(text[n]) {
		n--
	}
	head := text[:n]
	if open := strings.LastIndexByte(head, '<'); open > strings.LastIndexByte(head, '>') && open > maxPart/2 {
		return open
	}
	const near = maxPart * 3 / 4
	for _, end := range []string{"\n", "。", " "} {
		if i := strings.LastIndex(head, end); i >= near {
			return i + len(end)
		}
	}
	return n
}
