package outhttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"syscall"
	"time"

	"tidegate/pkg/fault"
)

// The bounds of an exchange.
const (
	DefaultTimeout     = 5 * time.Second
	DefaultMaxResponse = 1 << 20
	maxHeaders         = 64 << 10
	defaultConns       = 8 // to one host: most uses call few addresses, seldom
)

// Options say what one use of the client may do. The zero value reaches public
// addresses only.
type Options struct {
	// Allow names what may be reached although it is not public: ranges,
	// addresses, host names.
	Allow []string
	// Timeout bounds one exchange, from looking up the name to the last byte of
	// the answer. Default 5 s.
	Timeout time.Duration
	// MaxResponse bounds the body of an answer; a longer one is an error.
	// Default 1 MiB.
	MaxResponse int64
	// CAFile holds PEM certificates that are trusted instead of the system's.
	CAFile string
	// Conns bounds the connections to one host, and with it the calls at once.
	// Default 8.
	Conns int
	// Resolver looks names up; nil is the system's.
	Resolver *net.Resolver
}

// Client calls addresses within its options. It is safe for concurrent use.
type Client struct {
	opt    Options
	allow  allowList
	http   *http.Client
	resolv *net.Resolver
}

// New checks the options. Errors are of configuration (fault.Invalid).
func New(o Options) (*Client, error) {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxResponse == 0 {
		o.MaxResponse = DefaultMaxResponse
	}
	idle := o.Conns // a use that says how many wants them kept
	if o.Conns <= 0 {
		o.Conns, idle = defaultConns, 1
	}
	c := &Client{opt: o, resolv: o.Resolver}
	if c.resolv == nil {
		c.resolv = net.DefaultResolver
	}
	var err error
	if c.allow, err = parseAllow(o.Allow); err != nil {
		return nil, fault.Wrap(fault.Invalid, "", err)
	}
	roots, err := readRoots(o.CAFile)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, "", err)
	}
	c.http = &http.Client{
		Timeout:       o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  nil, // not the environment's either (S45)
			DialContext:            c.dial,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
			TLSHandshakeTimeout:    o.Timeout,
			DisableCompression:     true, // a small answer stays small (S46)
			MaxResponseHeaderBytes: maxHeaders,
			MaxConnsPerHost:        o.Conns,
			MaxIdleConnsPerHost:    idle,
			IdleConnTimeout:        30 * time.Second,
		},
	}
	return c, nil
}

func readRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca_file %s holds no certificate in PEM form", file)
	}
	return pool, nil
}

// Close gives idle connections back.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Check tells what is wrong with an address as it is written, without a look-up:
// for settings, at start. Its errors quote nothing of the address.
func (c *Client) Check(raw string) error {
	u, err := parse(raw)
	if err != nil {
		return fault.Wrap(fault.Invalid, "", err)
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		return fault.Wrap(fault.Invalid, "", permit(a, c.allow.ranges))
	}
	return nil
}

// dial connects to a host whose every address is permitted. The first look-up
// refuses names that point inside; the dialler asks again for each address it
// connects to, since the name may resolve differently by then (S40).
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, err := hostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Resolver: c.resolv}
	if c.allow.hosts[host] {
		return d.DialContext(ctx, network, address)
	}
	if _, err := netip.ParseAddr(host); err != nil {
		found, err := c.resolv.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, err
		}
		for _, a := range found {
			if err := permit(a, c.allow.ranges); err != nil {
				return nil, err
			}
		}
	}
	d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		a, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("unexpected address: %w", err)
		}
		return permit(a.Addr(), c.allow.ranges)
	}
	return d.DialContext(ctx, network, address)
}

// Do makes one call. Errors: fault.Invalid if the address or a header is wrong
// or leads inside (then also ErrBlocked), fault.Unavailable if nothing or too
// much came back.
func (c *Client) Do(ctx context.Context, r Request) (Answer, error) {
	where := "call " + Redact(r.URL)
	u, err := parse(r.URL)
	if err != nil {
		return Answer{}, fault.Wrap(fault.Invalid, where, err)
	}
	req, err := request(ctx, r, u)
	if err != nil {
		return Answer{}, fault.Wrap(fault.Invalid, where, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return Answer{}, c.explain(where, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.opt.MaxResponse+1))
	switch {
	case err != nil:
		return Answer{}, c.explain(where, err)
	case int64(len(body)) > c.opt.MaxResponse:
		return Answer{}, fault.New(fault.Unavailable, where, "the answer is longer than %d bytes", c.opt.MaxResponse)
	}
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// explain gives an error its kind and takes the URL out of it.
func (c *Client) explain(where string, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // u itself quotes the whole URL
	}
	var network net.Error
	switch {
	case errors.Is(err, ErrBlocked):
		return fault.Wrap(fault.Invalid, where, err)
	case errors.Is(err, context.Canceled):
		return fault.Wrap(fault.Unavailable, where, err)
	case errors.As(err, &network) && network.Timeout():
		return fault.New(fault.Unavailable, where, "no whole answer within %s", c.opt.Timeout)
	}
	return fault.Wrap(fault.Unavailable, where, err)
}
