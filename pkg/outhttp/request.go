package outhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Request is one call.
type Request struct {
	Method string // default POST with a body, GET without
	URL    string
	Header http.Header
	Body   []byte
}

// Answer is what came back, whatever its status: also a redirect, which is
// never followed (S41).
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// ours are the headers that net/http writes itself, or that would change what a
// request is.
var ours = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Te", "Trailer", "Expect", "Accept-Encoding"}

// CheckHeader tells whether a header may be set for every call of a use.
func CheckHeader(name, value string) error {
	if name == "" || strings.IndexFunc(name, notName) >= 0 {
		return fmt.Errorf("header %.40q: a name has letters, digits and hyphens", name)
	}
	for _, o := range ours {
		if http.CanonicalHeaderKey(name) == o {
			return fmt.Errorf("header %s is set by the client itself", o)
		}
	}
	if strings.IndexFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) >= 0 {
		return fmt.Errorf("header %s: its value holds a control character", name)
	}
	return nil
}

func notName(c rune) bool { return c == '_' || notHost(c) && (c < 'A' || c > 'Z') }

func request(ctx context.Context, r Request, u *url.URL) (*http.Request, error) {
	method := r.Method
	switch {
	case method == "" && r.Body != nil:
		method = http.MethodPost
	case method == "":
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, errors.New("the method is not one of HTTP")
	}
	for name, values := range r.Header {
		for _, v := range values {
			if err := CheckHeader(name, v); err != nil {
				return nil, err
			}
			req.Header.Add(name, v)
		}
	}
	return req, nil
}
