package wechat

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
)

// progress records how far a request came. What it is for: a request that got
// no connection was certainly not sent and may go elsewhere, while one of which
// a single byte may have left must never be repeated blindly.
type progress struct {
	connected atomic.Bool
	wrote     atomic.Bool
}

func (p *progress) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:      func(httptrace.GotConnInfo) { p.connected.Store(true) },
		WroteHeaders: func() { p.wrote.Store(true) },
		WroteRequest: func(httptrace.WroteRequestInfo) { p.wrote.Store(true) },
	})
}

// maybeSent reports whether any of the request may have left. When the time is
// up on a connection, the writer may still be at it, so that counts as sent.
func (p *progress) maybeSent(ctx context.Context) bool {
	return p.wrote.Load() || p.connected.Load() && ctx.Err() != nil
}

// causeError is the cause of a failed request in words without an address.
// Go's own error prints the whole URL, and WeChat's calls carry the access
// token and the secret in it (S51).
type causeError struct {
	text  string
	cause error // only causes without a text of their own to leak, or nil
}

func (e *causeError) Error() string { return e.text }
func (e *causeError) Unwrap() error { return e.cause }

// redact turns a transport's error into one that is safe to print. Known causes
// get words of ours; an unknown one keeps its text without the secrets.
func redact(err error, secrets []string) error {
	var outer *url.Error
	for errors.As(err, &outer) {
		err = outer.Err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &causeError{"it took too long", context.DeadlineExceeded}
	case errors.Is(err, context.Canceled):
		return &causeError{"it was cancelled", context.Canceled}
	}
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &dns):
		return &causeError{text: "the name of the host does not resolve; check DNS and the base URL"}
	case errors.As(err, &certificate):
		return &causeError{text: "the host's TLS certificate is not valid; check the base URL and the system's certificates"}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &causeError{text: "connection refused"}
	case errors.Is(err, syscall.ECONNRESET):
		return &causeError{text: "connection reset"}
	}
	return &causeError{text: cut(clean(hide(err.Error(), secrets)), maxReason)}
}

// hide takes secrets out of a text, in the forms that an address gives them too.
func hide(text string, secrets []string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "[redacted]")
			text = strings.ReplaceAll(text, url.QueryEscape(s), "[redacted]")
		}
	}
	return text
}
