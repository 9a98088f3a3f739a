package backend_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/guard"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/robot/backend"
)

// shop is a back end that says how often it was asked what, with which keys.
type shop struct {
	*system
	mu    sync.Mutex
	asked map[string]int
	keys  map[string]string
}

func newShop(t *testing.T, answer func(path string, n int) (int, string)) *shop {
	t.Helper()
	s := &shop{asked: map[string]int{}, keys: map[string]string{}}
	s.system = serve(t, func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		what := r.Method + " " + r.URL.RequestURI()
		s.asked[what]++
		s.keys[what] = r.Header.Get("Idempotency-Key")
		n := s.asked[what]
		s.mu.Unlock()
		status, text := answer(r.URL.RequestURI(), n)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	})
	return s
}

func (s *shop) times(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[what]
}

func counting(path string, n int) (int, string) {
	return 200, fmt.Sprintf(`{"path":%q,"n":%d}`, path, n)
}

// robots are the guards of one back end in several processes over one Redis.
func robots(t *testing.T, s *shop, n int, change func(*backend.GuardConfig)) []*backend.Guarded {
	t.Helper()
	mem, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(mem.Close)
	rc := redis.DefaultConfig()
	rc.Addrs, rc.Prefix = []string{mem.Addr()}, "t"
	var out []*backend.Guarded
	for range n {
		c := config(s.URL)
		c.Attempts = 1
		c.Guard = backend.GuardConfig{Enabled: true, Threshold: -1, TTL: time.Minute}
		if change != nil {
			change(&c.Guard)
		}
		cl, _ := client(t, c)
		r, err := redis.Open(rc, zap.NewNop())
		require.NoError(t, err)
		g, err := backend.NewGuarded(c, cl, guard.Deps{Redis: r, Registerer: prometheus.NewRegistry()})
		require.NoError(t, err)
		t.Cleanup(func() { g.Close(); require.NoError(t, r.Close()) })
		out = append(out, g)
	}
	return out
}

func get(path string) backend.Request {
	return backend.Request{Method: "GET", Path: path, Key: "25770000000000000000001"}
}

var shared = backend.Use{Class: backend.Shared}

// Above the threshold everybody's answer is fetched once over all robots, in
// nobody's name; the paths keep their own answers whatever a rule calls them.
func TestSharedAnswersAreFetchedOnce(t *testing.T) {
	s := newShop(t, counting)
	nodes := robots(t, s, 3, nil)
	var wg sync.WaitGroup
	for i := range 150 {
		wg.Go(func() {
			path := []string{"/queue?branch=1", "/queue?branch=2"}[i%2]
			answer, _, err := nodes[i%3].Call(t.Context(), get(path), backend.Use{Class: backend.Shared, Resource: "queues"})
			if err != nil {
				t.Errorf("call: %v", err)
				return
			}
			if got := answer.(map[string]any)["path"]; got != path {
				t.Errorf("%s got the answer of %s", path, got)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, s.times("GET /queue?branch=1"))
	require.Equal(t, 1, s.times("GET /queue?branch=2"))
	require.Empty(t, s.keys["GET /queue?branch=1"], "a key would name one callback")
	_, note, err := nodes[0].Call(t.Context(), get("/queue?branch=1"), backend.Use{Class: backend.Shared, Resource: "queues"})
	require.NoError(t, err)
	require.Contains(t, note, "answer shared (hit, ")

	// A write voids what it changed, on every robot.
	_, _, err = nodes[1].Call(t.Context(), backend.Request{Method: "POST", Path: "/ticket", Key: "k"}, backend.Use{Changes: []string{"queues"}})
	require.NoError(t, err)
	answer, _, err := nodes[2].Call(t.Context(), get("/queue?branch=1"), backend.Use{Class: backend.Shared, Resource: "queues"})
	require.NoError(t, err)
	require.EqualValues(t, 2, answer.(map[string]any)["n"])
	require.Equal(t, "k", s.keys["POST /ticket"])
}

func TestBelowTheThresholdAnswersAreFresh(t *testing.T) {
	s := newShop(t, counting)
	nodes := robots(t, s, 1, func(g *backend.GuardConfig) { g.Threshold = 1000 })
	for i := range 10 {
		answer, note, err := nodes[0].Call(t.Context(), get("/x"), shared)
		require.NoError(t, err)
		require.EqualValues(t, i+1, answer.(map[string]any)["n"])
		require.Empty(t, note)
	}
}

// Personal answers are kept only where a rule says so, and then by person.
func TestPersonalAnswers(t *testing.T) {
	s := newShop(t, counting)
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	nodes := robots(t, s, 2, func(g *backend.GuardConfig) { g.Key = key })
	n := func(node int, path string, u backend.Use) int64 {
		answer, _, err := nodes[node].Call(t.Context(), get(path), u)
		require.NoError(t, err)
		return answer.(map[string]any)["n"].(int64)
	}
	for i := range int64(3) {
		require.Equal(t, i+1, n(0, "/bill", backend.Use{Class: backend.Personal, Person: "a/o1"}))
	}
	require.NotEmpty(t, s.keys["GET /bill"])
	kept := func(who string) backend.Use {
		return backend.Use{Class: backend.Personal, Cache: true, Person: who, Resource: "card"}
	}
	require.EqualValues(t, 1, n(0, "/card", kept("a/o1")))
	require.EqualValues(t, 1, n(1, "/card", kept("a/o1")))
	require.EqualValues(t, 2, n(1, "/card", kept("a/o2")), "nobody else's")
	require.EqualValues(t, 3, n(1, "/card", kept("b/o1")))
	_, _, err := nodes[1].Call(t.Context(), backend.Request{Method: "POST", Path: "/card", Key: "k"}, backend.Use{Person: "a/o1", Changes: []string{"card"}})
	require.NoError(t, err)
	require.EqualValues(t, 4, n(0, "/card", kept("a/o1")))
	require.EqualValues(t, 2, n(0, "/card", kept("a/o2")), "only his was changed")
}

// A failure keeps the others from trying for a while; what cannot be read is not
// shared; a write of which nobody knows voids as well.
func TestFailuresThroughTheGuard(t *testing.T) {
	s := newShop(t, func(path string, n int) (int, string) {
		switch {
		case path == "/down" || path == "/maybe":
			return 500, ""
		case path == "/garbage" && n == 1:
			return 200, "<html>"
		}
		return counting(path, n)
	})
	nodes := robots(t, s, 2, func(g *backend.GuardConfig) { g.FailTTL = time.Minute })
	_, _, err := nodes[0].Call(t.Context(), get("/down"), shared)
	require.Equal(t, fault.Ambiguous, fault.KindOf(err))
	_, _, err = nodes[1].Call(t.Context(), get("/down"), shared)
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.Positive(t, fault.RetryAfter(err))
	require.Equal(t, 1, s.times("GET /down"))
	_, _, err = nodes[0].Call(t.Context(), get("/garbage"), shared)
	require.Equal(t, fault.Final, fault.KindOf(err))
	_, _, err = nodes[1].Call(t.Context(), get("/garbage"), shared)
	require.NoError(t, err)

	_, _, err = nodes[0].Call(t.Context(), get("/seats"), backend.Use{Class: backend.Shared, Resource: "seats"})
	require.NoError(t, err)
	_, _, err = nodes[0].Call(t.Context(), backend.Request{Method: "POST", Path: "/maybe"}, backend.Use{Changes: []string{"seats"}})
	require.Equal(t, fault.Ambiguous, fault.KindOf(err))
	answer, _, err := nodes[1].Call(t.Context(), get("/seats"), backend.Use{Class: backend.Shared, Resource: "seats"})
	require.NoError(t, err)
	require.EqualValues(t, 2, answer.(map[string]any)["n"])
}

func TestGuardSettings(t *testing.T) {
	good := config("http://127.0.0.1:1")
	good.Guard = backend.GuardConfig{Enabled: true}
	require.NoError(t, good.Validate())
	for want, change := range map[string]func(*backend.Config){
		"set enabled: true":         func(c *backend.Config) { c.Guard = backend.GuardConfig{TTL: time.Second} },
		"-1 to share always":        func(c *backend.Config) { c.Guard.Threshold = -2 },
		"fetch_timeout: 1h0m0s":     func(c *backend.Config) { c.Guard.FetchTimeout = time.Hour },
		"32 random bytes in base64": func(c *backend.Config) { c.Guard.Key = "short" },
		"nodes: 51":                 func(c *backend.Config) { c.Guard.Nodes = 51 },
		"none of its answers": func(c *backend.Config) {
			c.Type, c.Bot = backend.TypeWeChat, backend.BotConfig{Token: "t", Mode: "plain"}
		},
	} {
		c := good
		change(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
}
