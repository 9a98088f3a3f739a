package backend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/fault"
)

// failure says beside its fault whether the back end may have acted.
type failure struct {
	error
	mayHaveActed bool
}

// Unwrap lets fault.KindOf see the fault.
func (f *failure) Unwrap() error { return f.error }

// status is the HTTP status behind a failure, for the retry policy.
type status struct {
	error
	code int
}

// Unwrap lets fault.KindOf see the fault.
func (s *status) Unwrap() error { return s.error }

// idempotent are the methods that may be repeated whatever the back end does
// with the key (RFC 9110, 9.2.2).
var idempotent = map[string]bool{http.MethodGet: true, http.MethodPut: true, http.MethodDelete: true}

// again decides whether another try can help and do no harm.
func (c *Client) again(method string, err error) bool {
	var f *failure
	if !errors.As(err, &f) {
		return false
	}
	if f.mayHaveActed && !idempotent[method] && c.cfg.IgnoresKey {
		return false
	}
	var s *status
	if errors.As(err, &s) {
		return c.retry[s.code]
	}
	kind := fault.KindOf(err)
	return kind == fault.Unavailable || kind == fault.Ambiguous
}

// backoff is a random pause up to a bound that doubles with each try ("full
// jitter": callers that failed together do not come back together), but not
// below what the back end asked for.
func (c *Client) backoff(n int, asked time.Duration) time.Duration {
	bound := c.cfg.BackoffMax
	if n < 30 && c.cfg.BackoffMin<<(n-1) < bound {
		bound = c.cfg.BackoffMin << (n - 1)
	}
	return min(max(rand.N(bound+1), asked), c.cfg.BackoffMax)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// broken classifies an exchange that gave no answer. The error of net/http is
// not wrapped: it prints the URL, which may name a follower (S51).
func (c *Client) broken(err error) error {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return &failure{fault.New(fault.Unavailable, c.op(), "cannot connect: is base_url right and the back end running?"), false}
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return &failure{fault.New(fault.Unavailable, c.op(), "the host of base_url is not found"), false}
	}
	if text := err.Error(); strings.Contains(text, "tls: ") || strings.Contains(text, "x509: ") {
		return &failure{fault.New(fault.Final, c.op(), "the TLS connection is refused: check the certificate, ca_file and that TLS 1.2 is spoken"), false}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || timedOut(err) {
		return &failure{fault.New(fault.Ambiguous, c.op(), "no answer in time"), true}
	}
	return &failure{fault.New(fault.Ambiguous, c.op(), "the connection broke before the answer"), true}
}

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// refused classifies an answer that is no success.
func (c *Client) refused(res *http.Response) error {
	code := res.StatusCode
	if code >= 200 && code <= 299 {
		return nil
	}
	kind, acted := fault.Final, false
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		kind = fault.Denied
	case code == http.StatusNotFound || code == http.StatusGone:
		kind = fault.NotFound
	case code == http.StatusConflict:
		kind = fault.Conflict
	case code == http.StatusTooManyRequests:
		kind = fault.Limited
	case code == http.StatusServiceUnavailable:
		kind = fault.Unavailable
	case code >= 500:
		kind, acted = fault.Ambiguous, true
	}
	text := "it answered with status %d"
	if code >= 300 && code <= 399 {
		text = "it answered with status %d, and redirects are not followed: put the final address into base_url"
	}
	f := fault.New(kind, c.op(), text, code)
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		f = f.WithRetryAfter(time.Duration(min(s, 3600)) * time.Second)
	}
	return &failure{&status{f, code}, acted}
}

// read takes the body of an answer.
func (c *Client) read(res *http.Response) ([]byte, error) {
	if e := res.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, &failure{fault.New(fault.Final, c.op(), "it answered compressed although that was not asked for"), true}
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, c.cfg.MaxResponse+1))
	switch {
	case int64(len(body)) > c.cfg.MaxResponse:
		return nil, &failure{fault.New(fault.Final, c.op(), "%d bytes: %w", c.cfg.MaxResponse, errCut), true}
	case err != nil && (errors.Is(err, context.DeadlineExceeded) || timedOut(err)):
		return nil, &failure{fault.New(fault.Ambiguous, c.op(), "the answer did not end in time"), true}
	case err != nil:
		return nil, &failure{fault.New(fault.Ambiguous, c.op(), "the answer broke off"), true}
	}
	return body, nil
}

// decoded reads the JSON of an answer, whatever its Content-Type says: many
// systems send JSON as text/plain.
func (c *Client) decoded(body []byte) (any, error) {
	answer, err := decode(body)
	if err != nil {
		return nil, fault.New(fault.Final, c.op(), "its answer is no JSON: %w", err)
	}
	return answer, nil
}

const maxDepth = 64

var (
	errNotJSON = errors.New("it does not parse")
	errDeep    = errors.New("it is nested deeper than 64")
)

// decode reads exactly one JSON value; an empty body is nil.
func decode(body []byte) (any, error) {
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\xEF\xBB\xBF")))
	if len(body) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, errNotJSON // the decoder's own text may quote the answer
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errNotJSON
	}
	return numbers(v, 0)
}

// numbers turns numbers into what templates can compare: int64 where that is
// exact, so that 64-bit ids survive (T52), else float64.
func numbers(v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	var err error
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			if v[k], err = numbers(v[k], depth+1); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = numbers(v[i], depth+1); err != nil {
				return nil, err
			}
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") && !math.IsInf(f, 0) {
			return f, nil
		}
	}
	return v, nil
}
