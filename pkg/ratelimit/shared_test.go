package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

// world is a cluster inside a bubble: nodes, callers and the server's clock live
// in fake time; the server itself is a real one outside, which is reached
// through real connections. Fake time stands still while an answer is under way.
type world struct {
	t   *testing.T
	cfg Config
	c   *redis.Client
	cl  *Cluster

	mu    sync.Mutex
	begin time.Time
	step  time.Duration // how far the server's clock was put
	at    []int64
}

// startRedis is to be called outside the bubble.
func startRedis(t require.TestingT, close func(func())) *redismem.Server {
	s, err := redismem.Start("")
	require.NoError(t, err)
	close(s.Close)
	return s
}

func newWorld(t *testing.T, addr string) *world {
	rc := redis.DefaultConfig()
	rc.Addrs, rc.Timeout = []string{addr}, 5*time.Second
	c, err := redis.Open(rc, nil)
	require.NoError(t, err)
	w := &world{t: t, cfg: DefaultConfig(), c: c, begin: time.Now()}
	w.cl, err = NewCluster(w.cfg, c, nil, nil)
	require.NoError(t, err)
	w.cl.clock = func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return time.Now().Add(w.step)
	}
	return w
}

func (w *world) close() {
	require.NoError(w.t, w.cl.Close(context.Background()))
	require.NoError(w.t, w.c.Close())
}

// caller takes permits until ctx ends; hold is how long each call lasts.
func (w *world) caller(ctx context.Context, p Permits, hold time.Duration) {
	for {
		release, err := p.Acquire(ctx, 0)
		if err != nil {
			return
		}
		w.mu.Lock()
		w.at = append(w.at, int64(time.Since(w.begin)))
		w.mu.Unlock()
		<-time.After(hold)
		release()
	}
}

func (w *world) departures() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := slices.Clone(w.at)
	slices.Sort(at)
	return at
}

// B3.3, B3.6: 1,019 a minute is 1,019 a minute over three nodes.
func TestSharedFractionalRateIsExact(t *testing.T) {
	s := startRedis(t, t.Cleanup)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Addr())
		const rate, burst = 1019.0 / 60, 2
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+10*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		per := make([]*Shared, 3)
		for i := range per {
			per[i] = w.cl.Permits("fraction", Limit{Rate: rate, Burst: burst})
			for range 5 {
				wg.Go(func() { w.caller(ctx, per[i], 0) })
			}
		}
		wg.Wait()
		at := w.departures()
		require.Empty(t, overfull(at, rate, burst))
		require.LessOrEqual(t, count(at, 100*time.Millisecond), 3)
		for minute := range 3 {
			from := int64(10*time.Second) + int64(minute)*int64(time.Minute)
			n := 0
			for _, x := range at {
				if x >= from && x < from+int64(time.Minute) {
					n++
				}
			}
			require.InDelta(t, 1019, n, 1, "minute %d", minute)
		}
		for i, p := range per {
			require.InDelta(t, len(at)/3, int(p.Stats().Granted), float64(len(at))/20, "node %d has its part", i)
		}
		w.close()
	})
}

var _ = fmt.Sprint
var _ = rand.N[int]
