package ratelimit

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

// world is a cluster inside a bubble: nodes, callers and the server's clock live
// in fake time; the server itself is a real one outside, which is reached
// through real connections. Fake time stands still while an answer is under way.
type world struct {
	t   testing.TB
	c   *redis.Client
	cl  *Cluster
	ctx context.Context // ends all callers
	end context.CancelFunc
	wg  sync.WaitGroup

	over    sync.Once
	script  *redis.Script
	patient atomic.Bool

	mu    sync.Mutex
	begin time.Time
	step  time.Duration // how far the server's clock was put
	at    []int64
	now   int // calls under way
	most  int
}

func startRedis(t testing.TB) *redismem.Server {
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func newWorld(t testing.TB, addr string, cfg Config) *world {
	rc := redis.DefaultConfig()
	rc.Addrs, rc.Timeout = []string{addr}, 5*time.Second
	c, err := redis.Open(rc, nil)
	require.NoError(t, err)
	w := &world{t: t, c: c, begin: time.Now()}
	w.ctx, w.end = context.WithCancel(context.Background())
	w.cl, err = NewCluster(cfg, c, nil, nil)
	require.NoError(t, err)
	w.script = askScript
	w.patient.Store(true)
	w.cl.open = func(name string) exchange {
		st := newStore(c, name, cfg.PlaceLife)
		st.clock, st.script = w.clock, w.script
		return func(ctx context.Context, q question) (answer, error) {
			if w.patient.Load() { // an answer takes real time, which is none here
				ctx = context.WithoutCancel(ctx)
			}
			return st.ask(ctx, q)
		}
	}
	return w
}

// clock is the server's.
func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.step)
}

// close ends callers and nodes, in that order.
func (w *world) close() { w.over.Do(w.shut) }

func (w *world) shut() {
	w.end()
	w.wg.Wait()
	assert.NoError(w.t, w.cl.Close(context.Background()))
	_, err := w.c.Del(context.Background(), redis.Tag("permits/x", "cap")) // for the next world on this server
	assert.NoError(w.t, err)
	_, err = w.c.Del(context.Background(), redis.Tag("permits/x", "nodes"))
	assert.NoError(w.t, err)
	assert.NoError(w.t, w.c.Close())
}

// node joins the cap with so many callers, each of whose calls lasts hold.
func (w *world) node(l Limit, callers int, hold time.Duration) *Shared {
	s := w.cl.Permits("x", l)
	for range callers {
		w.wg.Go(func() { w.caller(w.ctx, s, hold) })
	}
	return s
}

func (w *world) caller(ctx context.Context, p Permits, hold time.Duration) {
	for {
		release, err := p.Acquire(ctx, 0)
		if err != nil {
			return
		}
		w.mu.Lock()
		w.at = append(w.at, int64(time.Since(w.begin)))
		w.now++
		w.most = max(w.most, w.now)
		w.mu.Unlock()
		if hold > 0 {
			<-time.After(hold)
		}
		w.mu.Lock()
		w.now--
		w.mu.Unlock()
		release()
	}
}

// live lets so much fake time pass.
func (w *world) live(d time.Duration) { <-time.After(d) }

func (w *world) since() int64 { return int64(time.Since(w.begin)) }

// put moves the server's clock.
func (w *world) put(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step += d
}

// peak is the largest number of calls under way since the last question.
func (w *world) peak() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.most
	w.most = w.now
	return n
}

func (w *world) departures() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := slices.Clone(w.at)
	slices.Sort(at)
	return at
}

// within counts the departures in [from, to).
func within(at []int64, from, to int64) int {
	a, _ := slices.BinarySearch(at, from)
	b, _ := slices.BinarySearch(at, to)
	return b - a
}
