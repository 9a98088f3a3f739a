package wechat

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// Line is one way to WeChat: an address of WeChat's, and how to get there. Its
// connections are its own.
type Line struct {
	Name string // for receipts, metrics and people
	base string
	http *http.Client
	// secrets are what the way there needs and no error may show.
	secrets []string
}

// NewLine prepares a line. transport must report its progress through
// net/http/httptrace, as *http.Transport and what wraps it do, since NotSent is
// decided from that. Redirects are never followed: the token is in the address.
func NewLine(name, baseURL string, transport http.RoundTripper, secrets ...string) (*Line, error) {
	u, err := parseBase(baseURL)
	if err != nil {
		return nil, err
	}
	return &Line{Name: name, base: u.String(), secrets: secrets, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// CloseIdle drops connections that no request uses.
func (l *Line) CloseIdle() { l.http.CloseIdleConnections() }

// Reach asks for nothing, without a token, to see whether WeChat can be reached.
// reached says that a connection came about, and TLS where it is asked for; then
// err, if there is one, says that nobody answered on it.
func (l *Line) Reach(ctx context.Context) (reached bool, err error) {
	_, _, failed := l.roundTrip(ctx, http.MethodHead, "/", nil)
	if failed == nil {
		return true, nil
	}
	return failed.met, redact(failed.cause, l.secrets)
}

// Came is what came of a request by a line, as far as the line is concerned.
type Came int

// What can come of a request.
const (
	// Unreached: no connection came about. Nothing was sent.
	Unreached Came = iota
	// Lost: there was a connection and no whole answer on it.
	Lost
	// Answered, whatever the answer says.
	Answered
)

// Lines says by which lines a call may go, and hears what came of it. It is used
// by many goroutines and must not wait.
type Lines interface {
	// Order gives the lines in the order in which to try them. account is that of
	// the Call in the context, empty where there is none.
	Order(account string) []*Line
	// Told hears of each request. why is safe to print; it is nil for Answered.
	Told(l *Line, came Came, why error)
	// CloseIdle drops connections that no request uses.
	CloseIdle()
}

// Call tells a client for which account it is called, and the caller by which
// line the last request of the call went.
type Call struct {
	Account string
	Line    string // empty before there was a request
}

type callKey struct{}

// WithCall puts a call into the context. Each call has one of its own.
func WithCall(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

func callOf(ctx context.Context) *Call {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		return c
	}
	return &Call{}
}

// NewTransport is a transport with limits that suit WeChat: it keeps enough idle
// connections for the highest send rates and drops them before WeChat's side
// does, because a request on a connection that is being closed is one whose
// outcome nobody knows. proxy may be nil; connect bounds making a connection.
func NewTransport(proxy *url.URL, connect time.Duration) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil // one from the environment would be an address that the configuration does not name (S45)
	if proxy != nil {
		t.Proxy = http.ProxyURL(proxy)
	}
	t.DialContext = watchSends((&net.Dialer{Timeout: connect, KeepAlive: 15 * time.Second}).DialContext)
	t.TLSHandshakeTimeout = connect
	t.MaxIdleConns = 256
	t.MaxIdleConnsPerHost = 256
	t.IdleConnTimeout = 30 * time.Second
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

// fixed is the lines of a client that has nobody to look after them: they are
// tried in order, those that were away a moment ago last.
type fixed struct {
	hosts []*host
	now   func() time.Time
}

// host is one line and the time until which it is tried last.
type host struct {
	*Line
	avoided atomic.Int64 // Unix nanoseconds
}

func newFixed(bases []string, transport http.RoundTripper) (*fixed, error) {
	f := &fixed{now: time.Now}
	for _, base := range bases {
		u, err := parseBase(base)
		if err != nil {
			return nil, err
		}
		l, err := NewLine(u.Host, base, transport)
		if err != nil {
			return nil, err
		}
		f.hosts = append(f.hosts, &host{Line: l})
	}
	return f, nil
}

// Order implements Lines.
func (f *fixed) Order(string) []*Line {
	now := f.now().UnixNano()
	ordered := make([]*Line, 0, len(f.hosts))
	var late []*Line
	for _, h := range f.hosts { // one look at each: others may mark them meanwhile
		if h.avoided.Load() <= now {
			ordered = append(ordered, h.Line)
		} else {
			late = append(late, h.Line)
		}
	}
	return append(ordered, late...)
}

// Told implements Lines.
func (f *fixed) Told(l *Line, came Came, why error) {
	if came != Unreached || errors.Is(why, context.Canceled) {
		return
	}
	for _, h := range f.hosts {
		if h.Line == l {
			h.avoided.Store(f.now().Add(avoidFor).UnixNano())
		}
	}
}

// CloseIdle implements Lines.
func (f *fixed) CloseIdle() {
	for _, h := range f.hosts {
		h.Line.CloseIdle()
	}
}
