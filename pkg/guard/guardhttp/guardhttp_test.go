package guardhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidegate/pkg/guard"
	"tidegate/pkg/guard/guardhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// upstream is the system behind: it counts its calls by path.
type upstream struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]int
	seen  http.Header // of the last request
	query string
	in    atomic.Int64
	peak  atomic.Int64
	serve http.HandlerFunc
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{calls: map[string]int{}}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := u.in.Add(1)
		defer u.in.Add(-1)
		for p := u.peak.Load(); n > p && !u.peak.CompareAndSwap(p, n); p = u.peak.Load() {
		}
		u.mu.Lock()
		u.calls[r.URL.Path]++
		u.seen, u.query = r.Header.Clone(), r.URL.RawQuery
		serve, number := u.serve, u.calls[r.URL.Path]
		u.mu.Unlock()
		if serve != nil {
			serve(w, r)
			return
		}
		fmt.Fprintf(w, "%s %s %d", r.Method, r.URL.Path, number)
	}))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) does(h http.HandlerFunc) { u.mu.Lock(); u.serve = h; u.mu.Unlock() }
func (u *upstream) called(path string) int  { u.mu.Lock(); defer u.mu.Unlock(); return u.calls[path] }

// front is the proxy in front of it, in protection from the first request on.
func front(t *testing.T, u *upstream, change func(*guard.Config, *guardhttp.Config)) *httptest.Server {
	gc, hc := guard.DefaultConfig(), guardhttp.DefaultConfig()
	gc.Backend, gc.Threshold, gc.TTL = "native", 0, time.Minute
	hc.Upstream = u.URL
	hc.Routes = []guardhttp.Route{
		{Match: "/seats/{train}", Class: guardhttp.Shared, Query: []string{"date"}, Headers: []string{"Accept-Language"}},
		{Match: "/bill", Class: guardhttp.Personal, Headers: []string{"Authorization"}},
	}
	hc.Writes = []guardhttp.Write{{Match: "POST /seats/{train}/choose", Paths: []string{"/seats/{train}"}}}
	if change != nil {
		change(&gc, &hc)
	}
	g, err := guard.New(gc, guard.Deps{})
	require.NoError(t, err)
	h, err := guardhttp.New(hc, g, nil)
	require.NoError(t, err)
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.Close(); h.Close(); g.Close() })
	return s
}

type got struct {
	status int
	header http.Header
	body   string
}

func do(t testing.TB, s *httptest.Server, method, path string, headers ...string) got {
	req, err := http.NewRequestWithContext(context.Background(), method, s.URL+path, nil)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := s.Client().Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return got{resp.StatusCode, resp.Header, string(body)}
}

func TestReadsAreSharedAndWritesInvalidate(t *testing.T) {
	u := newUpstream(t)
	s := front(t, u, nil)
	first := do(t, s, "GET", "/seats/7?date=1&tracking=x")
	require.Equal(t, "GET /seats/7 1", first.body)
	require.Equal(t, "local", first.header.Get("X-Guard"))
	require.Equal(t, "date=1", u.query, "what is not part of the key is not sent on")
	again := do(t, s, "GET", "/seats/7?tracking=y&date=1")
	require.Equal(t, first.body, again.body)
	require.Equal(t, "0", again.header.Get("Age"))
	require.Equal(t, 1, u.called("/seats/7"))
	require.Equal(t, "GET /seats/7 2", do(t, s, "GET", "/seats/7?date=2").body, "another key")
	require.Equal(t, "GET /seats/7 3", do(t, s, "GET", "/seats/7?date=1", "Accept-Language", "zh").body)
	require.Equal(t, "zh", u.seen.Get("Accept-Language"))

	posted := do(t, s, "POST", "/seats/7/choose")
	require.Equal(t, "pass", posted.header.Get("X-Guard"))
	require.Equal(t, "POST /seats/7/choose 1", posted.body)
	require.Equal(t, "GET /seats/7 4", do(t, s, "GET", "/seats/7?date=1").body, "all variants are fetched anew")
	require.Equal(t, "GET /seats/7 5", do(t, s, "GET", "/seats/7?date=2").body)

	u.does(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "taken", http.StatusConflict) })
	require.Equal(t, http.StatusConflict, do(t, s, "POST", "/seats/7/choose").status)
	u.does(nil)
	require.Equal(t, "GET /seats/7 4", do(t, s, "GET", "/seats/7?date=1").body, "a write that was refused changed nothing")
}

// What must never be shared, each with the reason in its name.
func TestNotShared(t *testing.T) {
	for name, c := range map[string]struct {
		path    string
		headers []string
		serve   http.HandlerFunc
	}{
		"no route":                    {path: "/other"},
		"a login outside of the key":  {path: "/seats/1", headers: []string{"Authorization", "Bearer x"}},
		"a cookie outside of the key": {path: "/seats/1", headers: []string{"Cookie", "sid=1"}},
		"a part of an answer":         {path: "/seats/1", headers: []string{"Range", "bytes=0-1"}},
		"a query nobody can read":     {path: "/seats/1?date=%zz"},
		"the answer sets a cookie":    {path: "/seats/1", serve: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Set-Cookie", "sid=1") }},
		"the answer says no-store":    {path: "/seats/1", serve: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Cache-Control", "max-age=5, No-Store") }},
		"the answer says private":     {path: "/seats/1", serve: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Cache-Control", "private") }},
		"the answer varies by all":    {path: "/seats/1", serve: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Vary", "*") }},
		"the answer is a refusal":     {path: "/seats/1", serve: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }},
		"personal by default":         {path: "/bill", headers: []string{"Authorization", "Bearer x"}},
		"personal of nobody":          {path: "/bill"},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t)
			u.does(c.serve)
			s := front(t, u, nil)
			path, _, _ := strings.Cut(c.path, "?")
			for i := range 3 {
				r := do(t, s, "GET", c.path, c.headers...)
				require.Equal(t, "pass", r.header.Get("X-Guard"))
				require.Equal(t, i+1, u.called(path))
			}
		})
	}
}

func TestPersonalValuesAreOfOnePerson(t *testing.T) {
	u := newUpstream(t)
	u.does(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "private")
		fmt.Fprint(w, r.Header.Get("Authorization"))
	})
	s := front(t, u, func(g *guard.Config, _ *guardhttp.Config) {
		g.CachePersonal, g.Key = true, "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="
	})
	for range 2 {
		for _, who := range []string{"Bearer a", "Bearer b"} {
			r := do(t, s, "GET", "/bill", "Authorization", who)
			require.Equal(t, who, r.body)
			require.Equal(t, "local", r.header.Get("X-Guard"))
		}
	}
	require.Equal(t, 2, u.called("/bill"))
}

// In front of a slow system: native concurrency is at most the number of
// resources, and the gate's for what is not shared.
func TestNativeConcurrencyIsBounded(t *testing.T) {
	u := newUpstream(t)
	u.does(func(w http.ResponseWriter, r *http.Request) {
		<-time.After(20 * time.Millisecond)
		fmt.Fprint(w, r.URL.Path)
	})
	s := front(t, u, func(g *guard.Config, _ *guardhttp.Config) { g.TTL, g.Gate, g.Nodes = 30*time.Millisecond, 50, 1 })
	const resources = 5
	run := func(path func(i int) string, users int) {
		var wg sync.WaitGroup
		for i := range users {
			wg.Go(func() {
				for range 10 {
					r := do(t, s, "GET", path(i))
					assert.Equal(t, path(i), r.body)
				}
			})
		}
		wg.Wait()
	}
	run(func(i int) string { return fmt.Sprint("/seats/", i%resources) }, 100)
	require.LessOrEqual(t, u.peak.Load(), int64(resources))
	t.Logf("100 users, %d resources: at most %d calls at once", resources, u.peak.Load())
	run(func(int) string { return "/other" }, 100)
	require.LessOrEqual(t, u.peak.Load(), int64(50))
	require.Greater(t, u.peak.Load(), int64(resources), "the gate was used")
}

func TestASystemThatFails(t *testing.T) {
	u := newUpstream(t)
	u.does(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "too much", http.StatusServiceUnavailable)
	})
	s := front(t, u, func(g *guard.Config, _ *guardhttp.Config) {
		g.BreakAfter, g.BreakFor, g.FailTTL = 2, time.Minute, time.Minute
	})
	r := do(t, s, "GET", "/seats/1")
	require.Equal(t, http.StatusServiceUnavailable, r.status)
	require.Equal(t, "too much\n", r.body, "whose fetch it was gets the answer as it is")
	r = do(t, s, "GET", "/seats/1")
	require.Equal(t, "shed", r.header.Get("X-Guard"))
	require.Equal(t, http.StatusServiceUnavailable, r.status)
	require.NotEmpty(t, r.header.Get("Retry-After"))
	require.Contains(t, r.body, "failed a moment ago")
	require.Equal(t, 1, u.called("/seats/1"))
	require.Equal(t, "too much\n", do(t, s, "POST", "/x").body)
	r = do(t, s, "POST", "/x")
	require.Equal(t, "shed", r.header.Get("X-Guard"))
	require.Contains(t, r.body, "in a row")
	require.Equal(t, 1, u.called("/x"))

	u.Close()
	s = front(t, u, nil)
	require.Equal(t, http.StatusBadGateway, do(t, s, "GET", "/other").status)
	r = do(t, s, "GET", "/seats/1")
	require.Equal(t, http.StatusBadGateway, r.status)
	require.NotContains(t, r.body, u.Listener.Addr().String(), "where the system is, is nobody's business")
}

func TestLargeAnswersPassThrough(t *testing.T) {
	u := newUpstream(t)
	body := strings.Repeat("x", 5000)
	u.does(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
	s := front(t, u, func(g *guard.Config, _ *guardhttp.Config) { g.MaxValue = 1000 })
	for range 3 {
		r := do(t, s, "GET", "/seats/1")
		require.Equal(t, body, r.body)
		require.Equal(t, "pass", r.header.Get("X-Guard"))
	}
	require.Equal(t, 4, u.called("/seats/1"), "one attempt to share it, then each for itself")
}

func TestInputsAreLimited(t *testing.T) {
	u := newUpstream(t)
	s := front(t, u, func(_ *guard.Config, h *guardhttp.Config) { h.MaxRequest = 10 })
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/x", strings.NewReader("more than ten bytes"))
	require.NoError(t, err)
	resp, err := s.Client().Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	pr, pw := io.Pipe() // a body without a length
	go func() { _, _ = io.WriteString(pw, "more than ten bytes"); _ = pw.Close() }()
	req, err = http.NewRequestWithContext(t.Context(), "POST", s.URL+"/x", pr)
	require.NoError(t, err)
	resp, err = s.Client().Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	require.Equal(t, http.StatusNotImplemented, do(t, s, "GET", "/seats/1", "Connection", "upgrade", "Upgrade", "websocket").status)
	require.Equal(t, "pass", do(t, s, "GET", "/seats/"+strings.Repeat("a", 5000)).header.Get("X-Guard"), "a key that is too long is not shared")
}

func TestHeadAndEscapedPaths(t *testing.T) {
	u := newUpstream(t)
	s := front(t, u, nil)
	require.Equal(t, "GET /seats/a/b 1", do(t, s, "GET", "/seats/a%2Fb").body)
	require.Equal(t, "GET /seats/a/b 1", do(t, s, "GET", "/seats/a%2Fb").body)
	r := do(t, s, "HEAD", "/seats/a%2Fb")
	require.Equal(t, http.StatusOK, r.status)
	require.Empty(t, r.body)
	require.Equal(t, 2, u.called("/seats/a/b"), "HEAD is a resource of its own")
}
