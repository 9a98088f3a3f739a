package wechat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"tidegate/pkg/fault"
)

const (
	// maxAnswer bounds an answer of WeChat in bytes. The largest real one, a page
	// of 10,000 openids, has about 320 KB.
	maxAnswer = 1 << 20
	// defaultTimeout bounds one request, connection included.
	defaultTimeout = 5 * time.Second
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
	http    *http.Client
	hosts   []*host
	timeout time.Duration
	now     func() time.Time
}

// host is one base URL and the time until which it is tried last.
type host struct {
	base    string
	avoided atomic.Int64 // Unix nanoseconds
}

// NewClient prepares a client. transport may be nil for one with limits that
// suit WeChat; another one must report its progress through net/http/httptrace,
// as *http.Transport and what wraps it do, since NotSent is decided from that.
// Redirects are never followed: the token is in the address.
func NewClient(transport http.RoundTripper, o Options) (*Client, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if len(o.BaseURLs) == 0 {
		o.BaseURLs = DefaultBaseURLs()
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if transport == nil {
		transport = defaultTransport()
	}
	c := &Client{timeout: o.Timeout, now: time.Now, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	for _, base := range o.BaseURLs {
		u, err := parseBase(base)
		if err != nil {
			return nil, err
		}
		c.hosts = append(c.hosts, &host{base: u.String()})
	}
	return c, nil
}

// defaultTransport keeps enough idle connections for the highest send rates and
// drops them before WeChat's side does: a request on a connection that is being
// closed is one whose outcome nobody knows.
func defaultTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil // a proxy would be an address that the configuration does not name (S45)
	// Short enough that a host which does not answer leaves time for the next.
	t.DialContext = watchSends((&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext)
	t.TLSHandshakeTimeout = 2 * time.Second
	t.MaxIdleConns = 256
	t.MaxIdleConnsPerHost = 256
	t.IdleConnTimeout = 30 * time.Second
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

// CloseIdle drops connections that no request uses.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

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
	var failed *APIError
	for _, h := range c.order() {
		status, text, err := c.roundTrip(bounded, method, h.base+target, payload)
		if err == nil {
			return judge(api, status, text, out)
		}
		failed = &APIError{API: api, HTTPStatus: status, Ambiguous: err.sent, NotSent: !err.sent, Err: redact(err.cause, secrets)}
		if err.sent || ctx.Err() != nil {
			break
		}
		h.avoided.Store(c.now().Add(avoidFor).UnixNano())
		if bounded.Err() != nil {
			break
		}
	}
	return failed
}

// order returns the hosts, those that were away a moment ago last.
func (c *Client) order() []*host {
	now := c.now().UnixNano()
	ordered := make([]*host, 0, len(c.hosts))
	var late []*host
	for _, h := range c.hosts { // one look at each: others may mark them meanwhile
		if h.avoided.Load() <= now {
			ordered = append(ordered, h)
		} else {
			late = append(late, h)
		}
	}
	return append(ordered, late...)
}

// transportError is a request without an answer. sent says whether any of it
// may have reached the other side.
type transportError struct {
	sent  bool
	cause error
}

// roundTrip sends one request and reads the answer whole.
func (c *Client) roundTrip(ctx context.Context, method, address string, payload []byte) (int, []byte, *transportError) {
	var way progress
	req, err := http.NewRequestWithContext(way.watch(ctx), method, address, bytes.NewReader(payload))
	if err != nil {
		return 0, nil, &transportError{cause: err}
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
	}
	req.Header.Set("User-Agent", "tidegate")
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, &transportError{sent: way.maybeSent(ctx), cause: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return resp.StatusCode, nil, &transportError{sent: true, cause: err}
	}
	if len(text) > maxAnswer {
		return resp.StatusCode, nil, &transportError{sent: true, cause: fmt.Errorf("the answer is longer than %d bytes", maxAnswer)}
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
