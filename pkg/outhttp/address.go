package outhttp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// maxURL bounds an address; no webhook is longer.
const maxURL = 2048

// parse reads an address and refuses every form that two readers could
// understand differently (S43, S44). Its errors quote nothing of it.
func parse(raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, fmt.Errorf("the URL has %d bytes; at most %d are taken", len(raw), maxURL)
	}
	for _, c := range []byte(raw) {
		if c <= ' ' || c == 0x7f || c == '\\' {
			return nil, errors.New("the URL holds a blank, a control character or a backslash")
		}
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("this is not a URL; write https://host/path")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("only http:// and https:// are called")
	case u.Opaque != "" || u.Host == "":
		return nil, errors.New("the URL names no host; write https://host/path")
	case u.User != nil:
		return nil, errors.New("the URL holds a login before the @; use a header")
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return nil, errors.New("the URL holds a #; it would never be sent")
	}
	if err := checkPort(u); err != nil {
		return nil, err
	}
	return u, checkHost(strings.ToLower(u.Hostname()))
}

func checkPort(u *url.URL) error {
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return errors.New("the port is not a number from 1 to 65535")
		}
		return nil
	}
	if strings.HasSuffix(u.Host, ":") {
		return errors.New("the port is empty")
	}
	return nil
}

// checkHost takes addresses in their one usual form and host names in ASCII.
// Refused are the spellings that some resolvers read as addresses (127.1,
// 0x7f000001, 2130706433), names with a dot at their end, which compare
// differently, and letters that only look like others: those are to be written
// in their xn-- form.
func checkHost(host string) error {
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return errors.New("the address names an interface; it leads to this network only")
		}
		return nil
	}
	if host == "" || len(host) > 253 {
		return errors.New("the host is empty or too long")
	}
	labels := strings.Split(host, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 {
			return errors.New("a part of the host between dots is empty or too long")
		}
		if i := strings.IndexFunc(l, notHost); i >= 0 {
			return errors.New("the host holds a character that host names do not have; write other alphabets as xn--…")
		}
	}
	if numeric(labels[len(labels)-1]) {
		return errors.New("the host is a number in a form that is not taken; write an address as 192.0.2.1")
	}
	return nil
}

func notHost(c rune) bool {
	return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_'
}

// numeric tells a last label that the C library takes for a part of an address.
func numeric(l string) bool {
	if hex, ok := strings.CutPrefix(l, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(l, "0123456789") == ""
}

// Redact names an address without what must not be seen: scheme and host only.
func Redact(raw string) string {
	u, err := parse(raw)
	if err != nil {
		return "(bad URL)"
	}
	return u.Scheme + "://" + u.Host
}

// hostPort splits what the dialler is given; it comes from net/http and is
// always well-formed.
func hostPort(address string) (host string, err error) {
	host, _, err = net.SplitHostPort(address)
	return strings.ToLower(host), err
}
