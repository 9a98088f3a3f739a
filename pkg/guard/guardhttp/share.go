package guardhttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"

	"tidegate/pkg/fault"
	"tidegate/pkg/guard"
)

// match is a pattern that a request met.
type match[T any] struct {
	what   T
	values *http.Request // has the values of the pattern's names
}

// catcher is the writer that find gives to a mux: what the mux itself answers (a
// redirect, "not found") goes nowhere.
type catcher struct{ header http.Header }

func (c catcher) Header() http.Header         { return c.header }
func (c catcher) Write(b []byte) (int, error) { return len(b), nil }
func (c catcher) WriteHeader(int)             {}

// find asks a mux which of our patterns a request meets.
func find[T http.Handler](mux *http.ServeMux, r *http.Request) (m match[T], ok bool) {
	handler, pattern := mux.Handler(r)
	if m.what, ok = handler.(T); !ok || pattern == "" {
		return m, false
	}
	m.values = r.Clone(r.Context())
	mux.ServeHTTP(catcher{http.Header{}}, m.values)
	return m, true
}

// asking is a request that may be answered with a shared value.
type asking struct {
	key      string
	personal bool
	url      *url.URL
	header   http.Header
	route    route
}

// shareable finds out whether a request may be, and under which key. What it
// depends on is all that will be sent on.
func (h *Handler) shareable(r *http.Request) (a asking, ok bool) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.ContentLength != 0 || r.Header.Get("Range") != "" {
		return a, false
	}
	m, ok := find[route](h.routes, r)
	if !ok {
		return a, false
	}
	a.route, a.personal, a.header = m.what, m.what.Class == Personal, http.Header{}
	for _, name := range []string{"Authorization", "Cookie"} {
		if r.Header.Get(name) != "" && !has(m.what.Headers, name) {
			return a, false
		}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return a, false
	}
	if !slices.Contains(m.what.Query, "*") {
		for name := range query {
			if !slices.Contains(m.what.Query, name) {
				delete(query, name)
			}
		}
	}
	var known bool
	variant := r.Method + "\n" + r.URL.EscapedPath() + "\n" + query.Encode()
	names := slices.Clone(m.what.Headers)
	sort.Strings(names)
	for _, name := range names {
		for _, v := range r.Header.Values(name) {
			a.header.Add(name, v)
			variant += "\n" + name + ":" + v
			known = known || v != ""
		}
	}
	if a.personal && !known {
		return a, false // nobody in particular: not to be mixed with others of that kind
	}
	a.key = guard.Variant(r.URL.Path, variant)
	a.url = h.target(r.URL)
	a.url.RawQuery = query.Encode()
	return a, len(a.key) <= guard.MaxKey
}

func has(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// share answers with what the guard gives.
func (h *Handler) share(w http.ResponseWriter, r *http.Request, a asking) {
	begun := false // the fetch ran for this caller and has answered
	fetch := func(ctx context.Context) ([]byte, error) {
		if guard.Direct(ctx) {
			return h.stream(ctx, w, r, a, &begun)
		}
		return h.collect(ctx, r, a)
	}
	do := h.guard.Do
	if a.personal {
		do = h.guard.Personal
	}
	res, err := do(r.Context(), a.key, fetch)
	var answer *failure
	switch {
	case begun && err != nil && !errors.As(err, &answer):
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	case begun:
	case errors.As(err, &answer):
		send(w, answer.answer, res)
	case err != nil:
		h.refuse(w, res.How, err)
	default:
		v, err := decode(res.Value)
		if err != nil {
			h.refuse(w, res.How, err)
			return
		}
		send(w, v, res)
	}
}

// send writes an answer with where it came from.
func send(w http.ResponseWriter, v answer, res guard.Result) {
	copyHeader(w.Header(), v.Header)
	w.Header().Set("X-Guard", string(res.How))
	w.Header().Set("Age", strconv.FormatInt(int64(res.Age.Seconds()), 10))
	w.WriteHeader(v.Status)
	_, _ = w.Write(v.body) // the client went away: nobody is left to tell
}

// ask sends the request on.
func (h *Handler) ask(ctx context.Context, r *http.Request, a asking) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, a.url.String(), http.NoBody)
	if err != nil {
		return nil, fault.New(fault.Invalid, "upstream", "the address cannot be asked for")
	}
	req.Header = a.header.Clone()
	req.Header.Set("User-Agent", "tidegate-guard")
	if h.cfg.PreserveHost {
		req.Host = r.Host
	}
	resp, err := h.transport.RoundTrip(req)
	if err != nil {
		return nil, noAnswer(err)
	}
	dropHops(resp.Header)
	return resp, nil
}

// collect fetches for all: the answer as a value, if it may be one.
func (h *Handler) collect(ctx context.Context, r *http.Request, a asking) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	resp, err := h.ask(ctx, r, a)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // the body was read as far as wanted
	limit := int64(h.guard.MaxValue())
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, noAnswer(err)
	case int64(len(body)) > limit:
		return nil, guard.ErrTooLarge
	}
	v := answer{Status: resp.StatusCode, Header: resp.Header, body: body}
	switch {
	case v.Status >= 500 || v.Status == http.StatusTooManyRequests:
		return nil, &failure{v}
	case !a.mayShare(resp):
		return v.encode(), guard.ErrNoStore
	}
	return v.encode(), nil
}

// stream fetches for one caller and hands the answer on as it comes; what may be
// shared is kept as a value on the way.
func (h *Handler) stream(ctx context.Context, w http.ResponseWriter, r *http.Request, a asking, begun *bool) ([]byte, error) {
	resp, err := h.ask(ctx, r, a)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // the body was read as far as wanted
	copyHeader(w.Header(), resp.Header)
	w.Header().Set("X-Guard", string(guard.Pass))
	w.Header().Set("Age", "0")
	*begun = true
	w.WriteHeader(resp.StatusCode)
	keep := &limited{most: h.guard.MaxValue()}
	to := &client{w: w}
	_, err = io.Copy(io.MultiWriter(to, keep), resp.Body)
	switch {
	case to.err != nil:
		return nil, fault.New(fault.Final, "client", "it went away")
	case err != nil:
		return nil, noAnswer(err)
	}
	v := answer{Status: resp.StatusCode, Header: resp.Header, body: keep.Bytes()}
	switch {
	case unavailable(v.Status):
		return nil, &failure{v}
	case keep.over || !a.mayShare(resp):
		return nil, guard.ErrNoStore
	}
	return v.encode(), nil
}

// client tells an error of the client from one of the system behind.
type client struct {
	w   io.Writer
	err error
}

// Write passes on.
func (c *client) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.err = err
	return n, err
}

// limited keeps what is written to it, or nothing if that is too much.
type limited struct {
	bytes.Buffer
	most int
	over bool
}

// Write never fails: the client's copy goes on.
func (l *limited) Write(b []byte) (int, error) {
	if l.over || l.Len()+len(b) > l.most {
		l.over = true
		l.Reset()
		return len(b), nil
	}
	return l.Buffer.Write(b)
}

// failure is an answer that says that the system behind is not well. The caller
// whose fetch it was gets it as it is.
type failure struct{ answer answer }

// Error tells the status.
func (f *failure) Error() string {
	return "upstream answered with status " + strconv.Itoa(f.answer.Status)
}
