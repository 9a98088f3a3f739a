package ratelimit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/redis"
)

// T40: a cap begins empty, after the rest and one period; and so it does when the
// data are lost, when the clock of Redis is put back or forward.
func TestSharedBeginsEmpty(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	l := Limit{Rate: 100, Burst: 15}
	for name, loss := range map[string]func(w *world){
		"no data":         func(w *world) { w.loseData() },
		"clock back 10 s": func(w *world) { w.put(-10 * time.Second) },
		"forward by 10 s": func(w *world) { w.put(10 * time.Second) },
		"forward by .6 s": func(w *world) { w.put(600 * time.Millisecond) },
		"back by .3 s":    func(w *world) { w.put(-300 * time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, s.Addr(), DefaultConfig())
				defer w.close()
				first := w.node(l, 20, 0)
				w.live(settle + 9*time.Millisecond)
				require.Empty(t, w.departures(), "nothing before the rest and one period")
				w.node(l, 20, 0)
				w.live(2 * time.Second)
				require.InDelta(t, 200, len(w.departures()), 5)
				loss(w)
				from := w.since()
				w.live(3 * time.Second)
				got := within(w.departures(), from, from+int64(3*time.Second))
				require.InDelta(t, 300-100*settle.Seconds(), got, 35, "it goes on, without waiting for the step to be over")
				require.Equal(t, l, first.Limit())
				w.close()
				require.Empty(t, overfull(w.departures(), l.Rate, l.Burst))
			})
		})
	}
}

func (w *world) loseData() {
	for _, key := range []string{"cap", "nodes"} {
		found, err := w.c.Del(context.Background(), redis.Tag("permits/x", key))
		require.NoError(w.t, err)
		require.True(w.t, found, "there was something to lose")
	}
}

// T41: the process sleeps with 64 waiting and permits in hand. They lapse.
func TestSharedPermitsLapse(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Addr(), DefaultConfig())
		defer w.close()
		l := Limit{Rate: 100, Burst: 15}
		p := w.cl.Permits("x", l)
		var asleep time.Duration
		clock := p.now
		p.mu.Lock()
		p.now = func() int64 { return clock() + int64(asleep) }
		p.mu.Unlock()
		for range 64 {
			w.wg.Go(func() { w.caller(w.ctx, p, 0) })
		}
		w.live(time.Second)
		p.mu.Lock()
		had := len(p.permits)
		asleep = 2 * time.Second // the clock went on, nobody ran
		p.mu.Unlock()
		require.Greater(t, had, 5, "the fault happened with permits in hand")
		before := len(w.departures())
		w.live(2 * time.Millisecond)
		require.LessOrEqual(t, len(w.departures())-before, 1, "none of them is used late")
		w.live(time.Second)
		w.close()
		require.Empty(t, overfull(w.departures(), l.Rate, l.Burst))
	})
}

// The wall clock ran on while the monotonic one stood still: the machine was
// suspended, and permits in hand are old.
func TestSharedPermitsLapseOverASuspend(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Addr(), DefaultConfig())
		defer w.close()
		p := w.node(Limit{Rate: 100, Burst: 15}, 64, 0)
		w.live(time.Second)
		p.mu.Lock()
		defer p.mu.Unlock()
		require.NotEmpty(t, p.permits)
		p.ahead = func() int64 { return int64(time.Hour) }
		p.lapse(p.now())
		require.Empty(t, p.permits)
	})
}
