package run

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// HTTPConfig bounds what a client can make a server hold. Zero values take
// the defaults of DefaultHTTPConfig, except where 0 is off; Validate has what
// else each may be.
type HTTPConfig struct {
	// Addr is host:port; port 0 takes a free one.
	Addr string `koanf:"addr"`
	// ReadHeaderTimeout, ReadTimeout and WriteTimeout bound one request.
	ReadHeaderTimeout time.Duration `koanf:"read_header_timeout"`
	ReadTimeout       time.Duration `koanf:"read_timeout"`
	WriteTimeout      time.Duration `koanf:"write_timeout"`
	// IdleTimeout bounds an unused kept-alive connection.
	IdleTimeout time.Duration `koanf:"idle_timeout"`
	// MaxHeaderBytes bounds the request line and headers.
	MaxHeaderBytes int `koanf:"max_header_bytes"`
	// MaxConnections bounds open connections; further ones wait in the
	// kernel's backlog.
	MaxConnections int `koanf:"max_connections"`
	// MaxConnectionsPerAddress bounds those of one address; further ones are
	// closed at once. 0 is off.
	MaxConnectionsPerAddress int `koanf:"max_connections_per_address"`
	// TrustedProxies are the addresses of load balancers in front: their
	// X-Forwarded-For is believed, and their connections are not counted per
	// address.
	TrustedProxies []string `koanf:"trusted_proxies"`
	// DrainTimeout bounds how long a stop waits for requests in flight.
	DrainTimeout time.Duration `koanf:"drain_timeout"`
	// CertFile and KeyFile switch TLS on.
	CertFile string `koanf:"cert_file"`
	KeyFile  string `koanf:"key_file"`
}

// DefaultHTTPConfig holds reliability.md 4c's numbers (S29–S33).
func DefaultHTTPConfig() HTTPConfig {
	return HTTPConfig{
		ReadHeaderTimeout: 2 * time.Second,
		ReadTimeout:       4 * time.Second,
		WriteTimeout:      5 * time.Second,
		IdleTimeout:       75 * time.Second,
		MaxHeaderBytes:    8 << 10,
		MaxConnections:    10000,
		DrainTimeout:      8 * time.Second,

		MaxConnectionsPerAddress: 1000,
	}
}

// HTTPOption changes how a server is built.
type HTTPOption func(*httpOptions)

type httpOptions struct {
	strict bool
	report func(reason string)
}

// maxHeaders is how many headers a strict server takes in one request.
const maxHeaders = 100

// Strict is for a port that strangers reach and that takes one kind of request:
// MaxHeaderBytes is exact, there are at most 100 headers, and what a server in
// front could read otherwise than we do is refused (chunks, bare line feeds,
// folded headers, two lengths). report, which may be nil, gets a reason of the
// closed set Reason… for each request or connection that the handler never sees.
func Strict(report func(reason string)) HTTPOption {
	return func(o *httpOptions) { o.strict, o.report = true, report }
}

// HTTPServer is an HTTP/1.1 server as a Service. It listens from New on, so
// that its address is known and early clients wait instead of failing.
type HTTPServer struct {
	name  string
	ln    net.Listener
	srv   *http.Server
	drain time.Duration
	bye   *goodbye
	front *front // nil: net/http takes every connection itself
	// behind is where net/http finds what the front does not serve.
	behind net.Listener
}

// NewHTTPServer opens the listener. HTTP/2 stays off: its floods (S34) buy
// nothing on these ports.
func NewHTTPServer(name string, c HTTPConfig, h http.Handler, l *zap.Logger, options ...HTTPOption) (*HTTPServer, error) {
	var o httpOptions
	for _, set := range options {
		set(&o)
	}
	if o.report == nil {
		o.report = func(string) {}
	}
	c = withDefaults(c)
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	ln, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return nil, fmt.Errorf("%s: listen on %s: %w (is another process using the port?)", name, c.Addr, err)
	}
	trusted, _ := c.Proxies() // Validate has read it
	ln = patientListener{newLimitListener(ln, c.MaxConnections, c.MaxConnectionsPerAddress, trusted, o.report)}
	if c.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			_ = ln.Close()
			return nil, fmt.Errorf("%s: load certificate %s: %w", name, c.CertFile, err)
		}
		ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	srv := &http.Server{
		Handler:           lastWhenChunked(h),
		ReadHeaderTimeout: c.ReadHeaderTimeout,
		ReadTimeout:       c.ReadTimeout,
		WriteTimeout:      c.WriteTimeout,
		IdleTimeout:       c.IdleTimeout,
		MaxHeaderBytes:    c.MaxHeaderBytes,
		Protocols:         protocols,
		ErrorLog:          log.New(zapWriter{l.Named(name)}, "", 0),

		DisableGeneralOptionsHandler: true,
	}
	if o.strict {
		srv.Handler, srv.ConnContext = refuseFlawed(h), withWatched
		srv.MaxHeaderBytes = max(c.MaxHeaderBytes-headerSlack, 1)
	}
	bye := newGoodbye()
	srv.Handler, srv.ConnState = bye.over(srv.Handler), bye.track
	s := &HTTPServer{name: name, ln: ln, drain: c.DrainTimeout, srv: srv, bye: bye}
	if o.strict {
		s.front = newFront(c, bye.over(h), bye, srv.ErrorLog)
		s.behind = watchListener{Listener: &handedListener{f: s.front, addr: ln.Addr()}, maxHeaders: maxHeaders, maxBytes: c.MaxHeaderBytes, report: o.report}
	}
	return s, nil
}

// headerSlack is what net/http adds to its MaxHeaderBytes for its own buffer.
const headerSlack = 4096

// lastWhenChunked closes the connection behind a chunked request. net/http
// takes a request that has both a length and chunks and forgets the length; a
// proxy in front that went by the length would have us read the rest as the
// next client's request (S32).
func lastWhenChunked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

func withDefaults(c HTTPConfig) HTTPConfig {
	d := DefaultHTTPConfig()
	pick := func(v *time.Duration, def time.Duration) {
		if *v == 0 {
			*v = def
		}
	}
	pick(&c.ReadHeaderTimeout, d.ReadHeaderTimeout)
	pick(&c.ReadTimeout, d.ReadTimeout)
	pick(&c.WriteTimeout, d.WriteTimeout)
	pick(&c.IdleTimeout, d.IdleTimeout)
	pick(&c.DrainTimeout, d.DrainTimeout)
	if c.MaxHeaderBytes == 0 {
		c.MaxHeaderBytes = d.MaxHeaderBytes
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = d.MaxConnections
	}
	return c
}

// Name implements Service.
func (s *HTTPServer) Name() string { return s.name }

// Addr is the address that it listens on, with the real port.
func (s *HTTPServer) Addr() string { return s.ln.Addr().String() }

// Run serves until ctx ends. Then it refuses new connections, lets the clients
// put away the ones they keep, and waits for the requests in flight.
func (s *HTTPServer) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- s.serve() }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
	defer cancel()
	err := s.ln.Close()
	if serveErr := <-failed; !errors.Is(serveErr, net.ErrClosed) {
		err = errors.Join(err, serveErr)
	}
	s.bye.say(stop, s.drain/2)
	if s.front != nil {
		err = errors.Join(err, s.front.stop(stop))
	}
	if late := s.srv.Shutdown(stop); late != nil {
		err = errors.Join(err, late, s.srv.Close())
	}
	return err
}

// serve takes connections until the listener is closed.
func (s *HTTPServer) serve() error {
	if s.front == nil {
		return s.srv.Serve(s.ln)
	}
	go func() { _ = s.srv.Serve(s.behind) }() // Shutdown ends it
	return s.front.accept(s.ln)
}

// Close ends a server that was never run.
func (s *HTTPServer) Close() error {
	err := s.ln.Close() // net/http knows it only once it serves
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return errors.Join(s.srv.Close(), err)
}

type zapWriter struct{ l *zap.Logger }

// Write logs what net/http has to say: noise of clients, and the panic of a
// handler, whose value is left out because it may quote the request.
func (z zapWriter) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("http: panic serving")) {
		_, stack, _ := bytes.Cut(p, []byte("\ngoroutine "))
		z.l.Error("request handler panicked; its connection was closed", zap.ByteString("stack", bytes.TrimSpace(stack)))
		return len(p), nil
	}
	z.l.Debug("http server", zap.ByteString("line", bytes.TrimSpace(p)))
	return len(p), nil
}
