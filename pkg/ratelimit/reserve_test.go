package ratelimit

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// crowd keeps n callers of one priority at a node until ctx ends, and notes their
// departures.
func (w *world) crowd(ctx context.Context, s *Shared, n, priority int, note func(at int64)) {
	for range n {
		w.wg.Go(func() {
			for {
				release, err := s.Acquire(ctx, priority)
				if err != nil {
					return
				}
				release()
				note(w.since())
			}
		})
	}
}

// Four nodes have bulk alone and one has realtime too: without the reserve realtime
// would get a fifth by luck; with it bulk stays within its part as long as realtime
// waits anywhere, and has all of the rate when nobody does.
func TestReserveForWhoGoesFirst(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	for _, c := range []struct {
		share float64
		l     Limit
		d     time.Duration
	}{{0.8, Limit{Rate: 200, Burst: 20}, 3 * time.Second}, {0.5, Limit{Rate: 40, Burst: 1}, 4 * time.Second}, {0.8, Limit{Rate: 2, Burst: 1}, 20 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, s.Addr(), DefaultConfig())
			defer w.close()
			var bulk, first []int64
			to := func(list *[]int64) func(int64) {
				return func(at int64) {
					w.mu.Lock()
					defer w.mu.Unlock()
					*list = append(*list, at)
				}
			}
			ctx, stop := context.WithCancel(w.ctx)
			for i := range 5 {
				n := w.cl.Permits("x", c.l)
				n.Reserve(c.share)
				w.crowd(w.ctx, n, 40, 1, to(&bulk))
				if i == 0 {
					w.live(time.Second) // bulk alone has saved nothing up
					w.crowd(ctx, n, 40, 0, to(&first))
				}
			}
			w.live(2 * time.Second)
			from := w.since()
			w.live(c.d)
			to1 := w.since()
			stop()
			w.live(1500 * time.Millisecond)
			from2 := w.since()
			w.live(c.d)
			w.mu.Lock()
			slices.Sort(bulk)
			slices.Sort(first)
			all := c.l.Rate * c.d.Seconds()
			got, urgent, alone := within(bulk, from, to1), within(first, from, to1), within(bulk, from2, w.since())
			w.mu.Unlock()
			w.close()
			fmt.Fprintf(os.Stdout, "reserve: %g/s burst %d, bulk at most %g of it: %d of %g went, realtime %d; alone bulk %d\n", c.l.Rate, c.l.Burst, c.share, got, all, urgent, alone)
			require.LessOrEqual(t, float64(got), c.share*all+1+0.45*c.share*c.l.Rate, "bulk while realtime waits")
			require.GreaterOrEqual(t, float64(urgent), (1-c.share)*all*0.97-1, "realtime")
			require.GreaterOrEqual(t, float64(got+urgent), 0.93*all-1, "all of the rate is used")
			require.GreaterOrEqual(t, float64(alone), 0.93*all-1, "bulk when nobody else waits")
		})
	}
}
