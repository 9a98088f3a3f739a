//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/guard"
	"tidegate/test/chaos/herd"
)

// The scene of the guard's bars: 100 resources of a system whose calls take 60 ms,
// and longer in proportion above 40 at once.
const (
	guardResources = 100
	guardPace      = 60 * time.Millisecond
	guardBearable  = 40
	guardNodes     = 3
)

// guardWorld is processes of `tidegate guard` in front of one slow system, with
// users in the test's own process and a Redis that the test may kill.
type guardWorld struct {
	t      *testing.T
	herd   *herd.Herd
	redis  *herd.Engine
	system *slowSystem
	web    *http.Client
	fleets int
}

func newGuardWorld(t *testing.T) *guardWorld {
	w := &guardWorld{t: t, herd: herd.New(t), system: newSlowSystem(t)}
	w.redis = w.herd.Redis("../..")
	door := &http.Transport{MaxIdleConns: 0, MaxIdleConnsPerHost: 4000, DisableCompression: true}
	w.web = &http.Client{Transport: door, Timeout: 30 * time.Second}
	t.Cleanup(door.CloseIdleConnections)
	return w
}

// guardNode is one process.
type guardNode struct {
	*herd.Process
	url     string
	backend string
	w       *guardWorld
}

// fleet starts processes that know of each other and of nobody else. Settings of
// the guard come as key=value.
func (w *guardWorld) fleet(settings ...string) []*guardNode {
	w.t.Helper()
	w.fleets++
	path, err := builds.Tidegate()
	require.NoError(w.t, err)
	backend := fmt.Sprintf("bars-%d", w.fleets)
	var nodes []*guardNode
	for i := range guardNodes {
		addr, ops := herd.FreeAddr(w.t), herd.FreeAddr(w.t)
		args := []string{"guard", "--upstream", w.system.URL, "--addr", addr, "--share", "/r/{n}"}
		set := append([]string{
			"ops.addr=" + ops, "redis.addrs=" + w.redis.Addr, "guard.backend=" + backend, fmt.Sprintf("guard.nodes=%d", guardNodes),
			// The users share the machine with the guards: only a fault takes so long.
			"redis.timeout=1s", "guard.budget=500ms", "guard.wait_max=10s", "http.max_connections_per_address=4000",
		}, settings...)
		for _, s := range set {
			args = append(args, "--set", s)
		}
		name := fmt.Sprintf("%s-guard%d", backend, i)
		nodes = append(nodes, &guardNode{Process: w.herd.Start(herd.Spec{Name: name, Path: path, Args: args, Ops: ops}), url: "http://" + addr, backend: backend, w: w})
	}
	herd.Wait(w.t, "the guards to have heard of each other", 10*time.Second, func() bool {
		return all(nodes, func(v guard.View) bool { return v.Shared && v.Nodes == guardNodes })
	})
	return nodes
}

// view is the operations view of the process; of one that is down it is empty.
func (n *guardNode) view() (v guard.View) {
	req, err := http.NewRequestWithContext(n.w.t.Context(), http.MethodGet, "http://"+n.Ops+"/ops/v1/guard/"+n.backend, nil)
	require.NoError(n.w.t, err)
	res, err := n.w.web.Do(req)
	if err != nil {
		return v
	}
	defer res.Body.Close()
	_ = json.NewDecoder(res.Body).Decode(&v) // nothing that is asked for is true of an empty view
	return v
}

func all(nodes []*guardNode, is func(guard.View) bool) bool {
	return !slices.ContainsFunc(nodes, func(n *guardNode) bool { return !is(n.view()) })
}

// stop ends processes side by side. A process waits for clients that hold a
// connection, so the users let theirs go before.
func (w *guardWorld) stop(nodes []*guardNode) {
	w.web.CloseIdleConnections()
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(n.Terminate)
	}
	wg.Wait()
}

// gotten is what one user got for one request.
type gotten struct {
	sent, came time.Time
	read       time.Time // when the system behind began to work it out
	how        string    // X-Guard; empty without a guard
	status     int       // 0: no answer
}

// get asks for a resource.
func (w *guardWorld) get(ctx context.Context, base, key string) gotten {
	g := gotten{sent: time.Now()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/r/"+key, nil)
	if err != nil {
		return g
	}
	res, err := w.web.Do(req)
	if err != nil {
		g.came = time.Now()
		return g
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	g.came, g.how = time.Now(), res.Header.Get("X-Guard")
	if err == nil {
		g.status = res.StatusCode
	}
	if at, err := strconv.ParseInt(string(body), 10, 64); err == nil {
		g.read = time.Unix(0, at)
	}
	return g
}

// crowd lets users ask for resources at random for a while, with rests of about
// the given length, each of them at one of the addresses.
func (w *guardWorld) crowd(at []string, users int, span, rest time.Duration) []gotten {
	w.system.reset(time.Now().Add(span / 2))
	ctx, end := context.WithTimeout(context.Background(), span)
	defer end()
	return w.crowdUntil(ctx, at, users, rest)
}

// crowdUntil does so until ctx ends; what was asked before is waited for.
func (w *guardWorld) crowdUntil(ctx context.Context, at []string, users int, rest time.Duration) []gotten {
	each := make([][]gotten, users)
	var wg sync.WaitGroup
	for u := range users {
		wg.Go(func() {
			dice := rand.New(rand.NewPCG(uint64(u), 3))
			for ctx.Err() == nil {
				each[u] = append(each[u], w.get(context.WithoutCancel(ctx), at[u%len(at)], strconv.Itoa(dice.IntN(guardResources))))
				<-time.After(time.Duration((0.5 + dice.Float64()) * float64(rest)))
			}
		})
	}
	wg.Wait()
	return slices.Concat(each...)
}

func addrs(nodes []*guardNode) (out []string) {
	for _, n := range nodes {
		out = append(out, n.url)
	}
	return out
}

// slowSystem is the system behind. It notes how many calls run, in all and of one
// resource, and answers with the moment at which a call began.
type slowSystem struct {
	*httptest.Server
	mu        sync.Mutex
	in        map[string]int
	running   int
	begins    []time.Time
	peak      int // at once
	steady    int // the same after settle
	steadyKey int // of one resource, after settle
	settle    time.Time
	hold      chan string   // a call of a resource "held…" says so here and then waits
	let       chan struct{} // for this, or for its caller to go
}

func newSlowSystem(t *testing.T) *slowSystem {
	s := &slowSystem{hold: make(chan string, 100), in: map[string]int{}}
	s.reset(time.Now())
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// reset begins a stretch; calls of before may still run.
func (s *slowSystem) reset(settle time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begins, s.peak, s.steady, s.steadyKey, s.settle, s.let = nil, 0, 0, 0, settle, make(chan struct{})
}

func (s *slowSystem) serve(rw http.ResponseWriter, r *http.Request) {
	key := r.URL.Path
	s.mu.Lock()
	s.running++
	s.in[key]++
	begin, let := time.Now(), s.let
	s.begins = append(s.begins, begin)
	s.peak = max(s.peak, s.running)
	if begin.After(s.settle) {
		s.steady, s.steadyKey = max(s.steady, s.running), max(s.steadyKey, s.in[key])
	}
	d := time.Duration(float64(guardPace) * max(1, float64(s.running)/guardBearable))
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running--
		s.in[key]--
	}()
	if strings.HasPrefix(key, "/r/held") {
		s.hold <- key
		select {
		case <-let:
		case <-r.Context().Done():
			return
		}
	}
	select {
	case <-time.After(d):
	case <-r.Context().Done(): // its caller was killed
		return
	}
	_, _ = rw.Write(strconv.AppendInt(nil, begin.UnixNano(), 10))
}

// callsSince is how many calls began at that time or later.
func (s *slowSystem) callsSince(at time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.begins {
		if !b.Before(at) {
			n++
		}
	}
	return n
}
