package guardhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/guard"
)

// Handler is the proxy. Close gives idle connections back.
type Handler struct {
	cfg       Config
	upstream  *url.URL
	guard     *guard.Guard
	log       *zap.Logger
	routes    *http.ServeMux
	writes    *http.ServeMux
	transport *http.Transport
	proxy     *httputil.ReverseProxy // for what only passes the gate
}

// maxHeader bounds the header of an answer in bytes.
const maxHeader = 64 << 10

// New makes the proxy in front of cfg.Upstream. An error is one of configuration.
func New(cfg Config, g *guard.Guard, l *zap.Logger) (*Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fault.Wrap(fault.Invalid, "guard proxy", err)
	}
	if l == nil {
		l = zap.NewNop()
	}
	h := &Handler{cfg: cfg, guard: g, log: l}
	h.upstream, _ = url.Parse(cfg.Upstream) // Validate has read both
	h.routes, h.writes, _ = cfg.tables()
	dial := &net.Dialer{Timeout: cfg.Timeout}
	h.transport = &http.Transport{
		Proxy: nil, DialContext: dial.DialContext, TLSHandshakeTimeout: cfg.Timeout,
		ResponseHeaderTimeout: cfg.Timeout, MaxResponseHeaderBytes: maxHeader,
		DisableCompression: true, MaxIdleConns: 1000, MaxIdleConnsPerHost: 1000, IdleConnTimeout: 30 * time.Second,
	}
	h.proxy = &httputil.ReverseProxy{
		Transport: h.transport, Rewrite: h.rewrite, ModifyResponse: h.modify, ErrorHandler: h.broken,
		ErrorLog: log.New(io.Discard, "", 0), // its lines quote addresses; broken sees the same errors
	}
	return h, nil
}

// Close gives idle connections back.
func (h *Handler) Close() { h.transport.CloseIdleConnections() }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Upgrade") != "":
		problem(w, http.StatusNotImplemented, guard.Shed, "upgrades are not passed on", 0)
		return
	case r.Method == http.MethodConnect || r.URL.Host != "" || !strings.HasPrefix(r.URL.Path, "/"):
		problem(w, http.StatusBadRequest, guard.Shed, "this is a proxy in front of one system, not a way to others", 0)
		return
	case r.ContentLength > h.cfg.MaxRequest:
		problem(w, http.StatusRequestEntityTooLarge, guard.Shed, fmt.Sprintf("a request has at most %d bytes", h.cfg.MaxRequest), 0)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, h.cfg.MaxRequest)
	if a, ok := h.shareable(r); ok {
		h.share(w, r, a)
		return
	}
	h.through(w, r)
}

// passing is the state of one request that only passes the gate.
type passing struct {
	status int // of the answer; 0 if there was none
	err    error
}

type passingKey struct{}

// through passes a request on within the gate, and invalidates what it changed.
func (h *Handler) through(w http.ResponseWriter, r *http.Request) {
	p := &passing{}
	res, err := h.guard.Through(r.Context(), func(ctx context.Context) error {
		h.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, passingKey{}, p)))
		if p.err == nil && unavailable(p.status) {
			return fault.New(fault.Unavailable, "upstream", "status %d", p.status)
		}
		return p.err
	})
	switch {
	case p.status == 0 && err != nil:
		h.refuse(w, res.How, err)
	case p.status != 0 && p.status < 400 || p.status == 0 && err == nil:
		h.changed(r)
	}
}

func (h *Handler) rewrite(pr *httputil.ProxyRequest) {
	pr.Out.URL = h.target(pr.In.URL)
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery
	if h.cfg.PreserveHost {
		pr.Out.Host = pr.In.Host
	} else {
		pr.Out.Host = ""
	}
	pr.SetXForwarded()
}

// target is the address at the system behind. The path goes on as it was written.
func (h *Handler) target(in *url.URL) *url.URL {
	u := *h.upstream
	u.RawPath = strings.TrimSuffix(h.upstream.EscapedPath(), "/") + in.EscapedPath()
	u.Path = strings.TrimSuffix(h.upstream.Path, "/") + in.Path
	return &u
}

func (h *Handler) modify(resp *http.Response) error {
	if p, ok := resp.Request.Context().Value(passingKey{}).(*passing); ok {
		p.status = resp.StatusCode
	}
	resp.Header.Set("X-Guard", string(guard.Pass))
	return nil
}

// broken is called when there was no answer; the guard's caller tells the client.
func (h *Handler) broken(_ http.ResponseWriter, r *http.Request, err error) {
	if p, ok := r.Context().Value(passingKey{}).(*passing); ok {
		p.err = noAnswer(err)
	}
}

// noAnswer classifies an exchange without an answer. The error of net/http is
// not wrapped: it may quote the whole address.
func noAnswer(err error) error {
	var tooLarge *http.MaxBytesError
	var dial *net.OpError
	var timeout net.Error
	switch {
	case errors.As(err, &tooLarge):
		return fault.New(fault.Invalid, "request", "a request has at most %d bytes", tooLarge.Limit)
	case errors.Is(err, context.Canceled):
		return fault.Wrap(fault.Unavailable, "upstream", context.Canceled)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fault.New(fault.Unavailable, "upstream", "cannot be reached")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fault.New(fault.Unavailable, "upstream", "did not answer in time")
	}
	return fault.New(fault.Unavailable, "upstream", "gave no whole answer")
}

// unavailable are the statuses by which a system says that it is not well.
func unavailable(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// changed invalidates what a write changed. The answer may be on its way to the
// client already, so a read that overtakes it may still see the value of before.
func (h *Handler) changed(r *http.Request) {
	m, ok := find[write](h.writes, r)
	if !ok {
		return
	}
	for _, pattern := range m.what.Paths {
		path := wildcard.ReplaceAllStringFunc(pattern, func(name string) string { return m.values.PathValue(name[1 : len(name)-1]) })
		// What is owed to the other nodes the guard pays, and it has logged that Redis is away.
		if err := h.guard.Invalidate(context.WithoutCancel(r.Context()), path); err != nil && !errors.Is(err, guard.ErrOwed) {
			h.log.Warn("a path that a write changed cannot be invalidated", zap.String("match", m.what.Match), zap.Error(err))
		}
	}
}

// refuse tells a client why there is no answer.
func (h *Handler) refuse(w http.ResponseWriter, how guard.How, err error) {
	status := http.StatusServiceUnavailable
	switch {
	case fault.KindOf(err) == fault.Invalid:
		status = http.StatusRequestEntityTooLarge
	case how != guard.Shed:
		status = http.StatusBadGateway
	}
	problem(w, status, how, err.Error(), fault.RetryAfter(err))
}

// problem answers in the form of RFC 9457.
func problem(w http.ResponseWriter, status int, how guard.How, detail string, again time.Duration) {
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(max(int((again+time.Second-1)/time.Second), 1)))
	}
	w.Header().Set("X-Guard", string(how))
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client went away: nobody is left to tell
		"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail,
	})
}
