package ratelimit

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
)

// B3.3, B3.6: 1,019 a minute is 1,019 a minute over three nodes, each with its
// part, and no 100 ms hold more than 3.
func TestSharedFractionalRateIsExact(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Addr(), DefaultConfig())
		defer w.close()
		l := Limit{Rate: 1019.0 / 60, Burst: 2}
		var nodes []*Shared
		for range 3 {
			nodes = append(nodes, w.node(l, 5, 0))
		}
		w.live(5 * time.Second)
		from, d := w.since(), int64(20*time.Second)
		w.live(time.Duration(d))
		w.close()
		at := w.departures()
		require.Empty(t, overfull(at, l.Rate, l.Burst))
		require.LessOrEqual(t, count(at, 100*time.Millisecond), 3)
		require.InDelta(t, 1019.0/3, within(at, from, from+d), 1)
		for i, p := range nodes {
			require.InDelta(t, len(at)/3, int(p.Stats().Granted), float64(len(at))/20, "node %d", i)
		}
	})
}

// A burst that is too small to pay for the life of a permit is exact as well.
// Nodes take turns then, which costs little.
func TestSharedWithoutBurst(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	for _, l := range []Limit{{Rate: 200, Burst: 1}, {Rate: 5, Burst: 1}, {Rate: 500, Burst: 4}} {
		t.Run(fmt.Sprint(l.Rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, s.Addr(), DefaultConfig())
				defer w.close()
				a, b := w.node(l, 50, 0), w.node(l, 50, 0)
				w.live(2 * time.Second)
				from := w.since()
				w.live(8 * time.Second)
				w.close()
				at := w.departures()
				require.Empty(t, overfull(at, l.Rate, l.Burst))
				got := float64(within(at, from, from+int64(8*time.Second))) / (8 * l.Rate)
				require.GreaterOrEqual(t, got, 0.93, "of the cap is used")
				require.Positive(t, a.Stats().Granted)
				require.InDelta(t, a.Stats().Granted, b.Stats().Granted, float64(len(at))/4)
			})
		})
	}
}

func TestSharedCallersThatGiveUpAndClose(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Addr(), DefaultConfig())
		defer w.close()
		p := w.cl.Permits("x", Limit{Rate: 0.01, Burst: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Acquire(ctx, 0)
		require.Equal(t, fault.Limited, fault.KindOf(err))
		w.wg.Go(func() {
			_, err := p.Acquire(t.Context(), 0)
			assert.Equal(t, fault.Unavailable, fault.KindOf(err))
		})
		synctest.Wait()
		p.Close()
		p.Close()
		w.wg.Wait()
		require.Equal(t, Stats{}, p.Stats())
		release, err := w.cl.Permits("free", Limit{}).Acquire(t.Context(), 0)
		require.NoError(t, err, "no limit needs no Redis")
		release()
	})
}
