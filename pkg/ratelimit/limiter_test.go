package ratelimit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tidegate/pkg/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// overfull looks at all pairs of departures (sorted, in nanoseconds) and names
// the first window that holds more than rate×W + burst.
func overfull(at []int64, rate float64, burst int) string {
	for i := range at {
		for j := i; j < len(at); j++ {
			w := float64(at[j]-at[i]) / 1e9
			if n := j - i + 1; float64(n) > rate*w+float64(burst)+1e-6 {
				return fmt.Sprintf("%d departures in %.9f s, allowed %.6f", n, w, rate*w+float64(burst))
			}
		}
	}
	return ""
}

// count is the largest number of departures in any window of length w.
func count(at []int64, w time.Duration) (most int) {
	for i, j := 0, 0; j < len(at); j++ {
		for at[j]-at[i] > int64(w) {
			i++
		}
		most = max(most, j-i+1)
	}
	return most
}

// work runs n callers at once inside a bubble and returns the departures.
func work(l *Limiter, n int, hold time.Duration) []int64 {
	begin := time.Now()
	var mu sync.Mutex
	var at []int64
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			release, err := l.Acquire(context.Background(), i%3)
			if err != nil {
				panic(err)
			}
			mu.Lock()
			at = append(at, int64(time.Since(begin)))
			mu.Unlock()
			time.Sleep(hold) //nolint:forbidigo // fake time: this is work, not waiting
			release()
		})
	}
	wg.Wait()
	return at
}

// C4, G10: no window anywhere holds more than R×W + B, and the rate is used.
func TestEveryWindowIsWithinTheLimit(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rate := rapid.OneOf(
			rapid.SampledFrom([]float64{200, 1019.0 / 60, 10, 1.0 / 3, 5000, 7919.0 / 3600}),
			rapid.Float64Range(0.01, 10000)).Draw(r, "rate")
		burst := rapid.IntRange(1, 40).Draw(r, "burst")
		n := rapid.IntRange(2, 300).Draw(r, "callers")
		idle := time.Duration(rapid.Int64Range(0, int64(float64(time.Second)*50/rate)).Draw(r, "idle"))
		var bad string
		synctest.Test(t, func(t *testing.T) {
			l := New(Limit{Rate: rate, Burst: burst})
			at := work(l, n, 0)
			busy := float64(at[len(at)-1]) / 1e9
			time.Sleep(idle) //nolint:forbidigo // fake time: saves up a burst
			rest := work(l, n, 0)
			base := at[len(at)-1] + int64(idle)
			for _, x := range rest {
				at = append(at, base+x)
			}
			if bad = overfull(at, rate, burst); bad == "" && float64(n) < 0.97*rate*busy {
				bad = fmt.Sprintf("only %d in %v s of work", n, busy)
			}
			for _, w := range []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute} {
				if got := count(at, w); bad == "" && float64(got) > rate*w.Seconds()+float64(burst)+1e-6 {
					bad = fmt.Sprintf("%d in some %v", got, w)
				}
			}
		})
		if bad != "" {
			r.Fatal(bad)
		}
	})
}

// B3.6: 1,019 a minute is 1,019 a minute, for an hour, without drift.
func TestFractionalRateIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limit{Rate: 1019.0 / 60, Burst: 1})
		begin := time.Now()
		n := 0
		for time.Since(begin) <= time.Hour {
			release, err := l.Acquire(t.Context(), 0)
			require.NoError(t, err)
			release()
			n++
		}
		n-- // the last one is beyond the hour
		require.LessOrEqual(t, n, 60*1019)
		// Each wait rounds up to a whole nanosecond, which is all that is lost.
		require.GreaterOrEqual(t, n, 60*1019-1)
	})
}

func TestNoBurstAtTheStartUnlessAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		release, err := New(Limit{Rate: 10, Burst: 50}).Acquire(t.Context(), 0)
		require.NoError(t, err)
		release()
		require.Equal(t, 100*time.Millisecond, time.Since(begin))

		at := work(New(Limit{Rate: 10, Burst: 50, StartFull: true}), 51, 0)
		require.Equal(t, 50, count(at, 0), "the burst at once, the next one later")
	})
}

func TestConcurrencyIsNeverExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limit{Concurrency: 7})
		var now, most atomic.Int64
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() {
				release, err := l.Acquire(t.Context(), 0)
				assert.NoError(t, err)
				most.Store(max(most.Load(), now.Add(1)))
				<-time.After(time.Millisecond)
				now.Add(-1)
				release()
				release() // only counts once
			})
		}
		wg.Wait()
		require.EqualValues(t, 7, most.Load(), "all of it is used, and no more")
		require.Equal(t, Stats{Granted: 500}, l.Stats())
	})
}

// G25, B3.7: realtime before bulk, first come first served inside a lane.
func TestLowerNumberFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limit{Rate: 100, Burst: 1})
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		queue := func(priority int, name string) {
			wg.Go(func() {
				release, err := l.Acquire(t.Context(), priority)
				assert.NoError(t, err)
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				release()
			})
			synctest.Wait() // it stands in the queue before the next one comes
		}
		for i := range 3 {
			queue(2, fmt.Sprint("bulk", i))
		}
		for i := range 3 {
			queue(1, fmt.Sprint("realtime", i))
		}
		queue(0, "reply")
		wg.Wait()
		require.Equal(t, []string{"reply", "realtime0", "realtime1", "realtime2", "bulk0", "bulk1", "bulk2"}, order)
	})
}

// T41: the process sleeps for 2 s with 64 waiting. They must not leave together.
func TestAPauseOfTheProcessDoesNotBunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst, rate = 5, 100
		l := New(Limit{Rate: rate, Burst: burst})
		clock := l.now
		var asleep atomic.Int64
		l.now = func() int64 { return clock() + asleep.Load() }
		var mu sync.Mutex
		var at []int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				release, err := l.Acquire(t.Context(), 0)
				assert.NoError(t, err)
				mu.Lock()
				at = append(at, l.now())
				mu.Unlock()
				release()
			})
		}
		synctest.Wait()
		asleep.Store(int64(2 * time.Second)) // the clock went on, nobody ran
		wg.Wait()
		require.Greater(t, at[0], int64(2*time.Second), "the fault happened before the first departure")
		require.Empty(t, overfull(at, rate, burst))
		require.Equal(t, burst, count(at, time.Millisecond), "one burst was saved up and used")
	})
}

func TestWhoGivesUpLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limit{Rate: 1, Burst: 1})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			release, err := l.Acquire(ctx, 0)
			assert.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, fault.Unavailable, fault.KindOf(err))
			release()
		})
		wg.Go(func() {
			short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			_, err := l.Acquire(short, 0)
			assert.Equal(t, fault.Limited, fault.KindOf(err))
		})
		synctest.Wait()
		begin := time.Now()
		wg.Go(func() {
			release, err := l.Acquire(t.Context(), 1)
			assert.NoError(t, err)
			release()
			assert.Equal(t, time.Second, time.Since(begin), "those before it used no permit")
		})
		cancel()
		wg.Wait()
		require.Equal(t, Stats{Granted: 1}, l.Stats())
		_, err := l.Acquire(ctx, 0)
		require.ErrorIs(t, err, context.Canceled, "not even asked")
	})
}

func TestTryAcquireDoesNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limit{Rate: 10, Burst: 2, StartFull: true, Concurrency: 2})
		release, ok := l.TryAcquire()
		require.True(t, ok)
		_, ok = l.TryAcquire()
		require.True(t, ok)
		_, ok = l.TryAcquire()
		require.False(t, ok)
		var wg sync.WaitGroup
		wg.Go(func() {
			r, err := l.Acquire(t.Context(), 9)
			assert.NoError(t, err)
			r()
		})
		synctest.Wait()
		require.Equal(t, 1, l.Stats().Waiting)
		_, ok = l.TryAcquire()
		require.False(t, ok)
		release()
		wg.Wait()
	})
}

func TestSetLimitIsFeltAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limit{Rate: 0.001, Burst: 1})
		begin := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			release, err := l.Acquire(t.Context(), 0)
			assert.NoError(t, err)
			release()
		})
		synctest.Wait()
		l.SetLimit(Limit{Rate: 100, Burst: 10})
		require.Equal(t, 100.0, l.Limit().Rate)
		wg.Wait()
		require.Less(t, time.Since(begin), time.Second, "a caller that waits for 1000 s is woken")
		l.SetLimit(Limit{Concurrency: 1})
		release, ok := l.TryAcquire()
		require.True(t, ok, "no rate any more")
		_, ok = l.TryAcquire()
		require.False(t, ok)
		release()
	})
}

// However limits change, windows hold at most the sum of the parts and the
// largest burst: changing a limit to and fro earns nothing.
func TestChangingTheLimitEarnsNothing(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		type phase struct {
			limit Limit
			n     int
		}
		phases := make([]phase, rapid.IntRange(2, 8).Draw(r, "phases"))
		most := 0
		for i := range phases {
			phases[i].limit = Limit{Rate: rapid.Float64Range(1, 1000).Draw(r, "rate"), Burst: rapid.IntRange(1, 20).Draw(r, "burst")}
			phases[i].n = rapid.IntRange(0, 40).Draw(r, "n")
			most = max(most, phases[i].limit.Burst)
		}
		var bad string
		synctest.Test(t, func(t *testing.T) {
			l := New(phases[0].limit)
			var allowed float64 // from the start: no burst at first
			n := 0
			for _, p := range phases {
				l.SetLimit(p.limit)
				begin := time.Now()
				work(l, p.n, 0)
				allowed += p.limit.Rate * time.Since(begin).Seconds()
				if n += p.n; float64(n) > allowed+1e-6*float64(n) {
					bad = fmt.Sprintf("%d left, %.4f allowed", n, allowed)
				}
			}
		})
		if bad != "" {
			r.Fatal(bad)
		}
	})
}
