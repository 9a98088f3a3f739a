package wechat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"tidegate/pkg/fault"
)

const (
	// maxAnswer bounds an answer of WeChat in bytes. The largest real one, a page
	// of 10,000 openids, has about 320 KB.
	maxAnswer = 1 << 20
	// defaultTimeout bounds one request, connection included.
	defaultTimeout = 5 * time.Second
	// defaultConnect bounds making a connection: short enough that a host which
	// does not answer leaves time for the next.
	defaultConnect = 2 * time.Second
	// avoidFor is how long a host that could not be reached is tried last.
	avoidFor = 30 * time.Second
	// maxToken bounds an access token; WeChat says to reserve 512 characters.
	maxToken = 2048
)

// DefaultBaseURLs returns WeChat's hosts in the order of preference: the
// nearest one, then the one for disasters. Tokens are valid on both.
func DefaultBaseURLs() []string {
	return []string{"https://api.weixin.qq.com", "https://api2.weixin.qq.com"}
}

// Options say where and how WeChat is called. The zero value calls WeChat.
type Options struct {
	// BaseURLs are tried in order; the next one only when a request could not
	// even leave for the one before. Empty means DefaultBaseURLs.
	BaseURLs []string `koanf:"base_urls"`
	// Timeout bounds one request, connection included; 0 means 5 s.
	Timeout time.Duration `koanf:"timeout"`
}

// Validate reports what cannot work.
func (o Options) Validate() error {
	for _, base := range o.BaseURLs {
		if _, err := parseBase(base); err != nil {
			return err
		}
	}
	if o.Timeout < 0 {
		return fmt.Errorf("wechat api: timeout is %s; use 0 (the default, %s) or a positive duration", o.Timeout, defaultTimeout)
	}
	return nil
}

// parseBase accepts scheme and host, nothing else. The error does not repeat
// the value, which may hold credentials.
func parseBase(base string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSuffix(base, "/"))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" ||
		u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("wechat api: a base URL must be scheme and host, such as https://api.weixin.qq.com")
	}
	return u, nil
}

// Client calls WeChat. It keeps no token, retries nothing and limits no rate:
// what a second try may do depends on more than a client can see. It may be
// used by many goroutines.
type Client struct {
	lines   Lines
	timeout time.Duration
}

// NewClient prepares a client that looks after its lines itself. transport may
// be nil for one with limits that suit WeChat; see NewLine.
func NewClient(transport http.RoundTripper, o Options) (*Client, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if len(o.BaseURLs) == 0 {
		o.BaseURLs = DefaultBaseURLs()
	}
	if transport == nil {
		transport = NewTransport(nil, defaultConnect)
	}
	lines, err := newFixed(o.BaseURLs, transport)
	if err != nil {
		return nil, err
	}
	return NewClientBy(lines, o.Timeout), nil
}

// NewClientBy prepares a client whose lines somebody else looks after. timeout
// bounds one call, over all lines that are tried; 0 means 5 s.
func NewClientBy(lines Lines, timeout time.Duration) *Client {
	if timeout == 0 {
		timeout = defaultTimeout
	}
	return &Client{lines: lines, timeout: timeout}
}

// CloseIdle drops connections that no request uses.
func (c *Client) CloseIdle() { c.lines.CloseIdle() }

// call makes one call and reads the answer into out. secrets must not appear
// in an error. The error is an *APIError, or a fault.Invalid if the request
// cannot be built.
func (c *Client) call(ctx context.Context, api API, query url.Values, body any, out outcomeOf, secrets ...string) error {
	var payload []byte
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
		var err error
		if payload, err = encodeJSON(body); err != nil {
			return fault.New(fault.Invalid, "call "+string(api), "%w", err)
		}
	}
	target := api.Path()
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	what := callOf(ctx)
	var failed *APIError
	for _, l := range c.lines.Order(what.Account) {
		what.Line = l.Name
		status, text, err := l.roundTrip(bounded, method, target, payload)
		if err == nil {
			c.lines.Told(l, Answered, nil)
			return withoutSecrets(judge(api, status, text, out), secrets)
		}
		why := redact(err.cause, append(secrets, l.secrets...))
		failed = &APIError{API: api, HTTPStatus: status, Ambiguous: err.sent, NotSent: !err.sent, Err: why}
		if ctx.Err() != nil {
			break // the caller has left: that says nothing about the line
		}
		c.lines.Told(l, err.came(), why)
		if err.sent || bounded.Err() != nil {
			break
		}
	}
	return failed
}

// withoutSecrets takes out of WeChat's prose what it may have quoted: it goes
// into receipts (S51).
func withoutSecrets(err error, secrets []string) error {
	var e *APIError
	if errors.As(err, &e) {
		e.Msg = hide(e.Msg, secrets)
	}
	return err
}

// transportError is a request without an answer. met says that there was a
// connection; sent, that any of it may have reached the other side.
type transportError struct {
	met, sent bool
	cause     error
}

func (e *transportError) came() Came {
	if e.met {
		return Lost
	}
	return Unreached
}

// roundTrip sends one request and reads the answer whole.
func (l *Line) roundTrip(ctx context.Context, method, target string, payload []byte) (int, []byte, *transportError) {
	var way progress
	req, err := http.NewRequestWithContext(way.watch(ctx), method, l.base+target, bytes.NewReader(payload))
	if err != nil {
		return 0, nil, &transportError{cause: err}
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
	}
	req.Header.Set("User-Agent", "tidegate")
	resp, err := l.http.Do(req)
	if err != nil {
		return 0, nil, &transportError{met: way.connected.Load(), sent: way.maybeSent(ctx), cause: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return resp.StatusCode, nil, &transportError{met: true, sent: true, cause: err}
	}
	if len(text) > maxAnswer {
		return resp.StatusCode, nil, &transportError{met: true, sent: true, cause: fmt.Errorf("the answer is longer than %d bytes", maxAnswer)}
	}
	return resp.StatusCode, text, nil
}

// judge decides what an answer means. The body decides, not the HTTP status:
// WeChat answers errors with 200, and a gateway in front of it answers 5xx in
// HTML, in which case nobody knows whether the call came through.
func judge(api API, status int, body []byte, out outcomeOf) error {
	err := decodeJSON(body, out)
	if err != nil {
		e := &APIError{API: api, HTTPStatus: status, Err: err}
		// A 4xx or 3xx without JSON was written by something that did not hand
		// the call on.
		e.Ambiguous = status < 300 || status >= 500
		return e
	}
	code, msg := out.outcome()
	if code == 0 && status >= 300 {
		return &APIError{API: api, HTTPStatus: status, Ambiguous: status >= 500, Err: errors.New("an HTTP error without an errcode")}
	}
	action := ActionOf(code, api)
	if action == ActionNone || action == ActionSuccess {
		return nil
	}
	return &APIError{API: api, Code: code, Msg: msg, HTTPStatus: status, Ambiguous: action == ActionRetry && api.Sends()}
}
