package ratelimit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// T39: places are leased over the cluster; all are used and never more, they move
// to where they are needed, and those of a dead node come back after its life.
func TestSharedConcurrency(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Addr(), DefaultConfig())
		defer w.close()
		l := Limit{Concurrency: 7}
		a := w.node(l, 20, 30*time.Millisecond)
		w.live(DefaultConfig().PlaceLife - 100*time.Millisecond)
		require.Zero(t, w.peak(), "nobody knows yet who may hold places")
		w.live(time.Second)
		require.Equal(t, 7, w.peak(), "alone it has all")
		b, c := w.node(l, 20, 30*time.Millisecond), w.node(l, 1, 30*time.Millisecond)
		w.live(time.Second)
		require.Equal(t, 7, w.peak())
		require.LessOrEqual(t, a.Stats().InFlight, 4)
		require.LessOrEqual(t, b.Stats().InFlight, 4)
		require.Positive(t, c.Stats().Granted)

		a.mu.Lock() // it dies: it says nothing more, and its calls are over
		a.exchange = func(ctx context.Context, _ question) (answer, error) {
			<-ctx.Done()
			return answer{}, ctx.Err()
		}
		a.own.Concurrency, a.limit.Concurrency, a.cfg.MaxNodes, a.allow = 1, 1, 8, 0
		a.mu.Unlock()
		w.live(time.Second)
		require.LessOrEqual(t, b.Stats().InFlight, 5, "its places are kept for its life")
		w.live(DefaultConfig().PlaceLife)
		w.peak()
		w.live(time.Second)
		require.Equal(t, 7, w.peak(), "and are used by the others then")
	})
}

// Fewer places than nodes go round.
func TestSharedPlacesGoRound(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Addr(), DefaultConfig())
		defer w.close()
		var nodes []*Shared
		for range 3 {
			nodes = append(nodes, w.node(Limit{Concurrency: 1, Rate: 100, Burst: 10}, 3, 20*time.Millisecond))
		}
		w.live(8 * time.Second)
		require.Equal(t, 1, w.peak())
		for i, n := range nodes {
			require.Greater(t, n.Stats().Granted, uint64(30), "node %d", i)
		}
		require.Greater(t, len(w.departures()), 170, "of 300 calls of 20 ms in 6 s")
	})
}
