package guard_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"tidegate/pkg/guard"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine is the address of a Redis: the real one if TIDEGATE_TEST_REDIS names it.
func engine(t testing.TB) string {
	if addr := os.Getenv("TIDEGATE_TEST_REDIS"); addr != "" {
		return addr
	}
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s.Addr()
}

// opener gives clients with one prefix that no other test has.
func opener(t testing.TB) func(addr string) *redis.Client {
	prefix := fmt.Sprintf("test:guard:%d", time.Now().UnixNano())
	return func(addr string) *redis.Client {
		cfg := redis.DefaultConfig()
		cfg.Addrs, cfg.Prefix, cfg.Timeout = []string{addr}, prefix, 2*time.Second
		c, err := redis.Open(cfg, zaptest.NewLogger(t))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
}

// config is a guard that protects always, on a busy test machine: a budget that
// only a real fault exceeds, and a life that does not end by the way.
func config() guard.Config {
	c := guard.DefaultConfig()
	c.Backend, c.Threshold, c.Budget, c.TTL, c.WaitMax = "native", 0, 2*time.Second, time.Minute, 10*time.Second
	return c
}

func start(t testing.TB, cfg guard.Config, c *redis.Client) *guard.Guard {
	g, err := guard.New(cfg, guard.Deps{Redis: c})
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

// cluster is n nodes over one Redis that have heard of each other.
func cluster(t testing.TB, cfg guard.Config, n int) []*guard.Guard {
	open, addr := opener(t), engine(t)
	nodes := make([]*guard.Guard, n)
	for i := range nodes {
		nodes[i] = start(t, cfg, open(addr))
		nodes[i].Flush(t.Context())
	}
	for _, g := range nodes {
		g.Flush(t.Context())
	}
	return nodes
}

// native is the system behind the guard. It counts, and answers with the number
// of the call, when it is let.
type native struct {
	mu      sync.Mutex
	calls   int
	in      int
	peak    int
	perKey  map[string]int // under way
	ofKey   map[string]int // so far
	keyPeak int
	entered chan string   // gets a key at the begin of each call, if not nil
	gate    chan struct{} // a call waits for it, if not nil
	err     error
}

func (n *native) fetch(key string) guard.Fetch {
	return func(ctx context.Context) ([]byte, error) {
		number, err := n.enter(key)
		defer n.leave(key)
		if n.entered != nil {
			n.entered <- key
		}
		if n.gate != nil {
			select {
			case <-n.gate:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return fmt.Appendf(nil, "%s %d", key, number), err
	}
}

func (n *native) enter(key string) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.perKey == nil {
		n.perKey, n.ofKey = map[string]int{}, map[string]int{}
	}
	n.calls++
	n.in++
	n.perKey[key]++
	n.ofKey[key]++
	n.peak, n.keyPeak = max(n.peak, n.in), max(n.keyPeak, n.perKey[key])
	return n.calls, n.err
}

func (n *native) leave(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.in--
	n.perKey[key]--
}

func (n *native) called() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls
}

func (n *native) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = err
}

// reply is what one caller got.
type reply struct {
	guard.Result
	err error
}

// ask calls in the background.
func ask(ctx context.Context, g *guard.Guard, key string, n *native) <-chan reply {
	out := make(chan reply, 1)
	go func() {
		r, err := g.Do(ctx, key, n.fetch(key))
		out <- reply{r, err}
	}()
	return out
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, 10*time.Second, time.Millisecond, what)
}
