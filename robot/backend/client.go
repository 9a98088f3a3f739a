package backend

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/fault"
	"tidegate/pkg/guard"
)

// Request is one call. Path begins with "/" and is escaped already; it may
// carry a query. With XML it may lack the path: base_url is the whole address.
type Request struct {
	Method  string
	Path    string
	Body    []byte // JSON unless XML is set, or nil
	XML     bool   // body and answer are WeChat's XML
	Key     string // the callback's id, sent as Idempotency-Key; "" sends none
	Trace   string // W3C traceparent, or ""
	Timeout time.Duration
	// Before is asked right before each try leaves, behind every wait; its error
	// ends the call. nil is not asked.
	Before func() error
}

// Limiter gives permits (pkg/ratelimit).
type Limiter interface {
	Acquire(ctx context.Context, priority int) (release func(), err error)
}

// Client calls one back end. It is safe for concurrent use.
type Client struct {
	name    string
	cfg     Config
	base    *url.URL
	root    string // base as text, without a slash at its end
	tls     *tls.Config
	http    atomic.Pointer[connections]
	limiter Limiter
	retry   map[int]bool
	m       *Metrics
	waited  prometheus.Observer // those of the metrics that have no label but the name
	seconds prometheus.Observer
	running prometheus.Gauge
	pause   func(ctx context.Context, d time.Duration) error
}

// connections are a pool and how many it may have.
type connections struct {
	*http.Client
	most int
}

const (
	maxHeaderBytes = 64 << 10
	userAgent      = "tidegate"
	// wechatAgent is what WeChat says of itself; a server that is used to being
	// asked by WeChat may look at it.
	wechatAgent = "Mozilla/4.0"
)

// New makes a client. The limiter holds the caps of the same configuration
// (Config.Limit); metrics may be shared between back ends.
func New(cfg Config, limiter Limiter, m *Metrics) (*Client, error) {
	cfg = cfg.WithDefaults()
	name := cfg.Name
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("back end %s: %w", name, err)
	}
	base, err := cfg.base()
	if err != nil {
		return nil, fmt.Errorf("back end %s: %w", name, err)
	}
	tlsConfig, err := cfg.tls()
	if err != nil {
		return nil, fmt.Errorf("back end %s: %w", name, err)
	}
	c := &Client{name: name, cfg: cfg, base: base, root: strings.TrimRight(base.String(), "/"), tls: tlsConfig, limiter: limiter, m: m, pause: sleep, retry: map[int]bool{}}
	c.waited, c.seconds, c.running = m.waited.WithLabelValues(name), m.seconds.WithLabelValues(name), m.inFlight.WithLabelValues(name)
	c.http.Store(c.wide(cfg.Concurrency))
	for _, s := range cfg.RetryStatuses {
		c.retry[s] = true
	}
	return c, nil
}

// wide makes a pool of so many connections at most.
func (c *Client) wide(most int) *connections {
	t := &http.Transport{
		Proxy:                  nil, // a hop from the environment would go where nobody configured (S45)
		DialContext:            (&net.Dialer{Timeout: c.cfg.Timeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:        c.tls.Clone(),
		TLSHandshakeTimeout:    c.cfg.Timeout,
		ResponseHeaderTimeout:  c.cfg.Timeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConns:           most,
		MaxIdleConnsPerHost:    most,
		MaxConnsPerHost:        most,
		IdleConnTimeout:        60 * time.Second,
		DisableCompression:     true, // a small answer must not unfold into a large one (S46)
		ForceAttemptHTTP2:      true,
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &connections{&http.Client{Transport: t, CheckRedirect: stay}, most}
}

// Widen lets the back end be called over more connections, for a limiter that
// was raised above the configuration. Calls in flight end over the ones they
// have. It never makes them fewer: the limiter is what holds back. One caller at
// a time.
func (c *Client) Widen(most int) {
	if old := c.http.Load(); most > old.most {
		c.http.Store(c.wide(most))
		old.CloseIdleConnections()
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.Load().CloseIdleConnections() }

// Call does one call with its retries and gives the answer's JSON: objects as
// map[string]any, lists as []any, whole numbers that fit as int64, other
// numbers as float64, or as json.Number where float64 cannot hold them; nil
// for an empty body. It returns by the end of ctx.
//
// Kinds of errors: Unavailable (it certainly did not arrive, or the back end
// says "not now"), Limited (429), Ambiguous (it may have been done), Denied
// (401, 403), NotFound (404, 410), Conflict (409), Final (any other answer
// that is no success), Invalid (the request cannot be made).
func (c *Client) Call(ctx context.Context, r Request) (answer any, err error) {
	_, err = c.Exchange(ctx, func() (Request, error) { return r, nil }, func(body []byte) error {
		answer, err = c.decoded(body)
		return err
	})
	return answer, err
}

// Exchange is Call for who makes each try anew, or reads the answer in its own
// way: ask gives the request of a try, read looks at the body of a success. An
// error of read is the call's, and is not tried again unless its kind says that
// the back end may be well next time. It gives the body that read has taken.
//
// A try that never left does not take back what an earlier one may have done: then
// the error is that one's.
func (c *Client) Exchange(ctx context.Context, ask func() (Request, error), read func(body []byte) error) ([]byte, error) {
	var open error // of the last try that may have acted
	for n := 1; ; n++ {
		r, err := ask()
		if err != nil {
			if acted(open) {
				return nil, open
			}
			return nil, err
		}
		body, err := c.once(ctx, r, read)
		if err == nil {
			return body, nil
		}
		if acted(err) {
			open = err
		}
		if ctx.Err() != nil || n >= c.cfg.Attempts || !c.again(r.Method, err) {
			return nil, told(open, err)
		}
		c.m.retries.WithLabelValues(c.name).Inc()
		if c.pause(ctx, c.backoff(n, fault.RetryAfter(err))) != nil {
			return nil, told(open, err)
		}
	}
}

// acted tells that the back end may have done what a try asked for.
func acted(err error) bool {
	f := (*failure)(nil)
	return errors.As(err, &f) && f.mayHaveActed
}

// told chooses between the last error and that of an earlier try. What a back end
// answered for good is the answer; that it was not asked, or says "not now", is
// none to what was asked before.
func told(open, last error) error {
	if k := fault.KindOf(last); acted(open) && (k == fault.Limited || k == fault.Unavailable) {
		return open
	}
	return last
}

// once takes a permit and makes one try.
func (c *Client) once(ctx context.Context, r Request, read func([]byte) error) ([]byte, error) {
	asked := time.Now()
	release, err := c.limiter.Acquire(ctx, 0)
	if err != nil {
		c.m.tries.WithLabelValues(c.name, "no_permit").Inc()
		return nil, &failure{fault.New(fault.Limited, c.op(), "no permit in time: %w: %w", guard.ErrNotAsked, err), false}
	}
	defer release()
	began := time.Now()
	c.waited.Observe(began.Sub(asked).Seconds())
	c.running.Inc()
	defer c.running.Dec()
	body, err := c.try(ctx, r)
	if err == nil {
		if err = read(body); err != nil {
			err = &failure{err, true}
		}
	}
	c.seconds.Observe(time.Since(began).Seconds())
	c.m.tries.WithLabelValues(c.name, outcome(err)).Inc()
	return body, err
}

func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return fault.KindOf(err).String()
}

func (c *Client) try(ctx context.Context, r Request) ([]byte, error) {
	limit := c.cfg.Timeout
	if r.Timeout > 0 && r.Timeout < limit {
		limit = r.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if r.Before != nil {
		if err := r.Before(); err != nil {
			return nil, &failure{fault.New(fault.Unavailable, c.op(), "%w: %w", guard.ErrNotAsked, err), false}
		}
	}
	req, err := c.request(ctx, r)
	if err != nil {
		return nil, &failure{err, false}
	}
	res, err := c.http.Load().Do(req)
	if err != nil {
		return nil, c.broken(err)
	}
	defer res.Body.Close()
	if err := c.refused(res); err != nil {
		// Reading a little lets the connection be used again.
		_, _ = io.CopyN(io.Discard, res.Body, 4<<10)
		return nil, err
	}
	return c.read(res)
}

func (c *Client) request(ctx context.Context, r Request) (*http.Request, error) {
	path, query, _ := strings.Cut(r.Path, "?")
	var u *url.URL
	var err error
	switch {
	case path == "" && r.XML:
		whole := *c.base
		u = &whole
	case !strings.HasPrefix(path, "/"):
		return nil, fault.New(fault.Invalid, c.op(), "the path must begin with /")
	default:
		u, err = url.Parse(c.root + path)
	}
	if err != nil || u.Host != c.base.Host || u.Scheme != c.base.Scheme || u.User != nil {
		return nil, fault.New(fault.Invalid, c.op(), "the path does not fit behind base_url")
	}
	u.RawQuery, u.Fragment = query, ""
	var body io.Reader
	if r.Body != nil {
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, c.root, body)
	if err != nil {
		return nil, fault.New(fault.Invalid, c.op(), "the request cannot be made")
	}
	req.URL = u
	for name, value := range c.cfg.Headers {
		req.Header.Set(name, value)
	}
	if c.cfg.Authorization != "" {
		req.Header.Set("Authorization", c.cfg.Authorization)
	}
	c.headers(req, r)
	return req, nil
}

// headers sets what the client alone decides.
func (c *Client) headers(req *http.Request, r Request) {
	content, accept, agent := "application/json", "application/json", userAgent
	if r.XML {
		content, accept, agent = "text/xml", "*/*", wechatAgent
	}
	values := make([]string, 0, 5)
	set := func(name, value string) { // as Header.Set does, with one block of memory for all
		values = append(values, value)
		req.Header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	if r.Body != nil {
		set("Content-Type", content)
	}
	if r.Trace != "" {
		set("Traceparent", r.Trace)
	}
	set("Accept", accept)
	set("User-Agent", agent)
	switch {
	case r.Key == "":
	case !c.cfg.IgnoresKey || idempotent[r.Method]:
		set("Idempotency-Key", r.Key)
	default:
		// In its canonical spelling net/http would take the header as leave to
		// repeat the request by itself when a connection dies under it.
		set("idempotency-key", r.Key)
	}
}

func (c *Client) op() string { return "call back end " + c.name }

var errCut = errors.New("the answer is larger than max_response")
