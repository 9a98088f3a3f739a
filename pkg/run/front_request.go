package run

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
)

// plainRequest reads the request at the beginning of b, and says how long it is.
// Nil says that it is not whole, or in any way unusual: then nothing is known about
// it, and net/http is to judge. What is taken here is a small part of what is
// valid: GET without a body or POST with a length, HTTP/1.1, one host, header names
// of letters, digits and hyphens, printable values, no word about how the body or
// the connection is to be handled except "keep-alive".
func plainRequest(b []byte, maxHeader int) (r *http.Request, size int) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 || end+4 > maxHeader {
		return nil, 0
	}
	head := string(b[:end+2]) // everything below is a part of it: one block of memory
	line, rest, _ := strings.Cut(head, "\r\n")
	method, target, ok := requestLine(line)
	if !ok {
		return nil, 0
	}
	h := plainHead{length: -1, header: make(http.Header, 12)}
	for rest != "" {
		line, rest, _ = strings.Cut(rest, "\r\n")
		if h.lines++; h.lines > maxHeaders || !h.take(line) {
			return nil, 0
		}
	}
	if h.host == "" || (h.length < 0) == (method == http.MethodPost) {
		return nil, 0
	}
	body := b[end+4:]
	if h.length > len(body) {
		return nil, 0
	}
	u, err := url.ParseRequestURI(target)
	if err != nil || u.Host != "" {
		return nil, 0
	}
	if p := h.header["Pragma"]; len(p) > 0 && p[0] == "no-cache" && h.header["Cache-Control"] == nil {
		h.header["Cache-Control"] = p[:1:1] // as net/http reads it (RFC 7234, 5.4)
	}
	r = &http.Request{
		Method: method, URL: u, RequestURI: target, Host: h.host, Header: h.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}
	if h.length > 0 {
		r.ContentLength = int64(h.length)
		r.Body = &frontBody{left: body[:h.length]}
	}
	return r, end + 4 + max(h.length, 0)
}

// requestLine takes "GET /path HTTP/1.1" apart.
func requestLine(line string) (method, target string, ok bool) {
	method, line, _ = strings.Cut(line, " ")
	if method != http.MethodPost && method != http.MethodGet {
		return "", "", false
	}
	target, ok = strings.CutSuffix(line, " HTTP/1.1")
	if !ok || target == "" || target[0] != '/' {
		return "", "", false
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return "", "", false
		}
	}
	return method, target, true
}

// plainHead is what the lines of the header say.
type plainHead struct {
	lines  int
	host   string
	length int // -1 while there is none
	header http.Header
}

func (h *plainHead) take(line string) bool {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !plainName(name) {
		return false
	}
	value = strings.Trim(value, " \t")
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	switch name {
	case "Host":
		if h.host != "" || !plainHost(value) {
			return false
		}
		h.host = value
		return true // net/http keeps it out of the header
	case "Content-Length":
		if h.length >= 0 || !h.setLength(value) {
			return false
		}
	case "Connection":
		if !strings.EqualFold(value, "keep-alive") {
			return false
		}
	case "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Expect", "Http2-Settings":
		return false
	}
	h.header[name] = append(h.header[name], value)
	return true
}

func (h *plainHead) setLength(digits string) bool {
	if len(digits) == 0 || len(digits) > 5 { // more does not fit into the buffer
		return false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return false
		}
	}
	n, err := strconv.Atoi(digits)
	h.length = n
	return err == nil
}

func plainName(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-':
		default:
			return false
		}
	}
	return name != ""
}

func plainHost(host string) bool {
	for i := range len(host) {
		switch c := host[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.', c == ':', c == '[', c == ']':
		default:
			return false
		}
	}
	return host != ""
}
