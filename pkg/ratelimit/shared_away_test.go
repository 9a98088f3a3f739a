package ratelimit

import (
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/redis/redismem"
)

// Redis away in each of its ways: nobody sends for the time that permits given
// out may last, then each node takes its share, and when Redis is back the cap is
// whole again after a rest. No window holds too many over all of it.
func TestSharedWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"refuses connections", "hangs", "MISCONF Errors writing to the AOF file", "READONLY You can't write against a read only replica.", "LOADING Redis is loading the dataset in memory", "OOM command not allowed when used memory > 'maxmemory'"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := startRedis(t)
			addr, away, back := s.Addr(), func() { s.Fail(how) }, func() { s.Fail("") }
			fault := func() {}
			switch how {
			case "hangs":
				p, err := redismem.StartProxy(addr)
				require.NoError(t, err)
				t.Cleanup(p.Close)
				addr, away, back = p.Addr(), func() { p.Hang(true) }, func() { p.Hang(false) }
				fault = func() { require.Positive(t, p.Held()) }
			case "refuses connections":
				// The next server is made outside the bubble.
				start, started := make(chan struct{}), make(chan error)
				go func() {
					<-start
					again, err := redismem.Start(addr)
					if err == nil {
						t.Cleanup(again.Close)
					}
					started <- err
				}()
				away = s.Close
				back = func() {
					close(start)
					require.NoError(t, <-started)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				cfg := DefaultConfig()
				cfg.MaxNodes, cfg.Timeout = 4, 20*time.Millisecond // a hang takes real time
				w := newWorld(t, addr, cfg)
				defer w.close()
				l := Limit{Rate: 100, Burst: 20, Concurrency: 40}
				var nodes []*Shared
				for range 3 {
					nodes = append(nodes, w.node(l, 20, time.Millisecond))
				}
				w.live(4 * time.Second)
				require.Greater(t, len(w.departures()), 150)

				away()
				w.patient.Store(false)
				from := w.since()
				late := w.node(l, 20, time.Millisecond) // starts without Redis
				w.live(4 * time.Second)
				fault()
				at := w.departures()
				second := int64(time.Second)
				require.LessOrEqual(t, within(at, from+second/2, from+3*second/2), 0, "nobody knows what the others still have")
				require.InDelta(t, 100, within(at, from+5*second/2, from+7*second/2), 8, "four shares of 25")
				for _, n := range append(nodes, late) {
					n.mu.Lock()
					share := n.share
					n.mu.Unlock()
					require.NotNil(t, share)
					require.Equal(t, 10, share.places)
				}
				late.Close()
				w.live(time.Second)
				require.InDelta(t, 75, within(w.departures(), from+4*second, from+5*second), 8, "three of them")

				back()
				w.patient.Store(true)
				w.live(cfg.PlaceLife + time.Second)
				begin := w.since()
				w.live(2 * time.Second)
				w.close()
				at = w.departures()
				require.InDelta(t, 200, within(at, begin, begin+2*second), 8)
				require.Empty(t, overfull(at, l.Rate, l.Burst))
				require.LessOrEqual(t, w.peak(), l.Concurrency)
			})
		})
	}
}

// A share of less than one place or one permit of burst pauses; it is never
// unlimited. A rate below one a second is divided exactly.
func TestShareOfASmallCap(t *testing.T) {
	t.Parallel()
	require.True(t, newShare(Limit{Rate: 100, Burst: 7}, 8, 0).paused)
	require.True(t, newShare(Limit{Concurrency: 7}, 8, 0).paused)
	require.True(t, newShare(Limit{Rate: minRate, Burst: 8}, 8, 0).paused)
	require.False(t, newShare(Limit{}, 8, 0).paused)
	s := newShare(Limit{Rate: 2, Burst: 8}, 8, 0)
	require.False(t, s.paused)
	require.Equal(t, 4*time.Second, s.pace.wait(0).Round(time.Microsecond), "a quarter a second, empty at first")
	s.pace.take(int64(4*time.Second) + 100)
	require.Positive(t, s.pace.wait(int64(4*time.Second)+100))
}

// The sum of the shares is never more than the whole, in the last digit either.
func TestSharesAddUp(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{1, 10.0 / 3, 1019.0 / 60, 200, 999999.7} {
		for nodes := 1; nodes < 1000; nodes++ {
			s := newShare(Limit{Rate: rate, Burst: 1000}, nodes, 0)
			all := big.NewRat(s.pace.num, s.pace.per)
			all.Mul(all, big.NewRat(int64(time.Second)*int64(nodes), 1))
			require.LessOrEqual(t, all.Cmp(new(big.Rat).SetFloat64(rate)), 0, "%v over %d", rate, nodes)
			require.LessOrEqual(t, s.pace.burst*int64(nodes), int64(1000))
		}
	}
}
