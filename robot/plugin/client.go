package plugin

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/outhttp"
	"tidegate/pkg/wire"
	"tidegate/robot/engine"
)

// Limiter gives permits (pkg/ratelimit).
type Limiter interface {
	Acquire(ctx context.Context, priority int) (release func(), err error)
}

// Options are what a client works with beside its configuration.
type Options struct {
	Limiter  Limiter
	Metrics  *Metrics
	Now      func() time.Time // nil is the real clock; it stamps signatures
	Resolver *net.Resolver    // nil is the system's
}

// Client asks one engine. It is safe for concurrent use.
type Client struct {
	cfg     Config
	http    *outhttp.Client
	secrets [][]byte
	o       Options
}

// New makes a client. The limiter holds the caps of the same configuration.
func New(cfg Config, o Options) (*Client, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fault.Wrap(fault.Invalid, "engine "+cfg.Name, err)
	}
	h, err := cfg.client(o.Resolver)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, "engine "+cfg.Name, err)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	c := &Client{cfg: cfg, http: h, o: o}
	for _, s := range []string{cfg.Secret, cfg.PrevSecret} {
		if b, _ := secretBytes(s); len(b) > 0 { // checked by Validate
			c.secrets = append(c.secrets, b)
		}
	}
	return c, nil
}

// client makes the HTTP client of the configuration and checks the address as
// it is written.
func (c Config) client(r *net.Resolver) (*outhttp.Client, error) {
	h, err := outhttp.New(outhttp.Options{
		Allow: c.Allow, Timeout: c.Timeout, MaxResponse: c.MaxResponse, CAFile: c.CAFile, Resolver: r, Conns: c.Concurrency,
	})
	if err != nil {
		return nil, err
	}
	if err := h.Check(c.URL); err != nil {
		return nil, invalid("url", "%w", err)
	}
	return h, nil
}

// Close gives idle connections back.
func (c *Client) Close() { c.http.Close() }

// Ask asks the engine what to do with a callback. It returns by the end of ctx.
//
// Kinds of errors: Unavailable (nothing came back, or it says "not now"),
// Limited (429, or no permit in time), Denied (401, 403), Final (any other
// answer that is not one of an engine), Invalid (the address may not be
// reached).
func (c *Client) Ask(ctx context.Context, cb *wire.Callback, a *engine.Ask) (engine.Said, error) {
	body, err := letterOf(cb, a)
	if err != nil {
		return engine.Said{}, fault.Wrap(fault.Internal, c.op(), err)
	}
	for n := 1; ; n++ {
		said, err := c.once(ctx, cb, body)
		kind := fault.KindOf(err)
		if err == nil || n >= c.cfg.Attempts || ctx.Err() != nil || kind != fault.Unavailable && kind != fault.Limited {
			return said, err
		}
		if !pause(ctx, min(max(fault.RetryAfter(err), 100*time.Millisecond), time.Second)) {
			return said, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// once takes a permit and makes one try.
func (c *Client) once(ctx context.Context, cb *wire.Callback, body []byte) (said engine.Said, err error) {
	if c.o.Limiter != nil {
		release, err := c.o.Limiter.Acquire(ctx, 0)
		if err != nil {
			c.o.Metrics.asked(c.cfg.Name, "no_permit", 0)
			return said, fault.New(fault.Limited, c.op(), "no permit in time: %w", err)
		}
		defer release()
	}
	began := time.Now()
	said, err = c.try(ctx, cb, body)
	result := "ok"
	if err != nil {
		result = fault.KindOf(err).String()
	}
	c.o.Metrics.asked(c.cfg.Name, result, time.Since(began))
	return said, err
}

func (c *Client) try(ctx context.Context, cb *wire.Callback, body []byte) (engine.Said, error) {
	if err := kafka.Owned(ctx); err != nil {
		return engine.Said{}, fault.Wrap(fault.Unavailable, c.op(), err)
	}
	a, err := c.http.Do(ctx, outhttp.Request{Method: http.MethodPost, URL: c.cfg.URL, Header: c.headers(cb, body), Body: body})
	if err != nil {
		if errors.Is(err, outhttp.ErrBlocked) {
			return engine.Said{}, fault.New(fault.Invalid, c.op(), "its address is not public: name it in allow if it is meant (robot.engines)")
		}
		return engine.Said{}, fault.New(fault.Unavailable, c.op(), "no whole answer came back in %s and %d bytes", c.cfg.Timeout, c.cfg.MaxResponse)
	}
	if err := c.refused(a); err != nil {
		return engine.Said{}, err
	}
	if a.Status == http.StatusNoContent {
		return engine.Said{}, nil
	}
	if e := a.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return engine.Said{}, fault.New(fault.Final, c.op(), "it answered compressed although that was not asked for")
	}
	said, err := read(a.Body)
	if err != nil {
		return engine.Said{}, fault.New(fault.Final, c.op(), "its answer cannot be used: %w", err)
	}
	return said, nil
}

func (c *Client) op() string { return "ask engine " + c.cfg.Name }

// headers signs the request as Standard Webhooks are signed.
func (c *Client) headers(cb *wire.Callback, body []byte) http.Header {
	stamp := strconv.FormatInt(c.o.Now().Unix(), 10)
	signatures := ""
	for _, s := range c.secrets {
		m := hmac.New(sha256.New, s)
		m.Write([]byte(cb.ID + "." + stamp + "."))
		m.Write(body)
		if signatures != "" {
			signatures += " "
		}
		signatures += "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
	}
	h := http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json"}, "User-Agent": {"tidegate"},
		"Webhook-Id": {cb.ID}, "Webhook-Timestamp": {stamp}, "Webhook-Signature": {signatures},
	}
	if cb.TraceParent != "" {
		h.Set("Traceparent", cb.TraceParent)
	}
	return h
}

// refused classifies an answer that is no success.
func (c *Client) refused(a outhttp.Answer) error {
	kind := fault.Final
	switch code := a.Status; {
	case code == http.StatusOK || code == http.StatusNoContent:
		return nil
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		kind = fault.Denied
	case code == http.StatusTooManyRequests:
		kind = fault.Limited
	case code == http.StatusServiceUnavailable:
		kind = fault.Unavailable
	case code >= 300 && code <= 399:
		return fault.New(kind, c.op(), "it answered with status %d, and redirects are not followed: put the final address into url", code)
	}
	f := fault.New(kind, c.op(), "it answered with status %d", a.Status)
	if s, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && s > 0 {
		f = f.WithRetryAfter(time.Duration(min(s, 3600)) * time.Second)
	}
	return f
}

// Metrics of all engines. Labels are configured names and closed sets.
type Metrics struct {
	tries   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// NewMetrics registers the metrics; a nil registry keeps them private.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		tries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_engine_requests_total", Help: "Requests to external engines, by result: ok, no_permit or a kind of fault.",
		}, []string{"engine", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidegate_engine_request_seconds", Help: "Time of one request to an external engine.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"engine"}),
	}
	if r != nil {
		r.MustRegister(m.tries, m.seconds)
	}
	return m
}

func (m *Metrics) asked(name, result string, took time.Duration) {
	m.tries.WithLabelValues(name, result).Inc()
	if took > 0 {
		m.seconds.WithLabelValues(name).Observe(took.Seconds())
	}
}
