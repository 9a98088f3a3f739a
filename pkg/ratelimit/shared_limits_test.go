package ratelimit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The newest version holds, whoever heard of it; among equals the lowest; a late
// old one is ignored. Lower holds on all nodes at once.
func TestSharedLimitsByVersion(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Addr(), DefaultConfig())
		defer w.close()
		old := Limit{Rate: 200, Burst: 20}
		a, b := w.node(old, 40, 0), w.node(old, 40, 0)
		rate := func(of Limit) {
			t.Helper()
			w.live(400 * time.Millisecond) // what was given out before has gone
			from, d := w.since(), 2*time.Second
			w.live(d)
			require.InDelta(t, of.Rate*d.Seconds(), within(w.departures(), from, from+int64(d)), 6)
			w.live(beat) // the idle know as well
			require.Equal(t, of, a.Limit())
			require.Equal(t, of, b.Limit())
		}
		w.live(time.Second)
		rate(old)
		low := Limit{Rate: 20, Burst: 5}
		a.SetLimit(low, Version(2))
		rate(low)
		b.SetLimit(Limit{Rate: 500, Burst: 50}, Version(1))
		rate(low)
		high := Limit{Rate: 300, Burst: 20}
		b.SetLimit(high, Version(3))
		rate(high)
		a.SetLimit(Limit{Rate: 50, Burst: 10}, Version(3)) // one of two equals is slowed
		rate(Limit{Rate: 50, Burst: 10})
		a.Close() // and goes
		w.live(DefaultConfig().PlaceLife)
		from := w.since()
		w.live(time.Second)
		require.InDelta(t, 300, within(w.departures(), from, from+int64(time.Second)), 6)
		b.Close() // nobody is left who knows version 3
		c := w.node(old, 40, 0)
		w.live(3 * time.Second)
		require.Equal(t, high, c.Limit(), "it is not forgotten soon")
		w.live(9 * time.Second)
		require.Equal(t, old, c.Limit(), "but where numbers begin anew it does not hold for ever")
		w.close()
	})
}

// A raised rate climbs in a straight line, in one process and over the cluster.
func TestRamp(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	for _, kind := range []string{"process", "cluster"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, s.Addr(), DefaultConfig())
				defer w.close()
				low, high := Limit{Rate: 20, Burst: 10}, Limit{Rate: 220, Burst: 10}
				var all []Permits
				for range 2 {
					if kind == "cluster" {
						all = append(all, w.node(low, 30, 0))
					}
				}
				if kind == "process" {
					p := New(low)
					defer p.Close()
					for range 30 {
						w.wg.Go(func() { w.caller(w.ctx, p, 0) })
					}
					all = []Permits{p}
				}
				w.live(2 * time.Second)
				from := w.since()
				for _, p := range all {
					p.SetLimit(high, Version(1), Ramp(4*time.Second))
				}
				w.live(6 * time.Second)
				at := w.departures()
				for second, want := range []int{45, 95, 145, 195, 220, 220} {
					got := within(at, from+int64(second)*int64(time.Second), from+int64(second+1)*int64(time.Second))
					require.InDelta(t, want, got, 12, "second %d", second)
				}
				w.end()
				w.wg.Wait()
			})
		})
	}
}
