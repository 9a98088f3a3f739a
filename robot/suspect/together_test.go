package suspect

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/redis/redismem"
)

// Each record is written once, by whoever made the round trip, and nobody returns
// before his own is; what comes meanwhile goes with the next one.
func TestTogether(t *testing.T) {
	var mu sync.Mutex
	written, trips := map[int64]int{}, 0
	together := &together{write: func(_ context.Context, records []entry) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		trips++
		if len(records) > most {
			return false, fmt.Errorf("%d records in one round trip", len(records))
		}
		for _, r := range records {
			written[r.offset]++
		}
		runtime.Gosched()
		return records[0].offset >= 0, nil
	}}
	const callers, calls = 400, 40
	var wg sync.WaitGroup
	failed := make(chan error, callers*calls)
	for c := range int64(callers) {
		wg.Go(func() {
			for i := range int64(calls) {
				mine, err := together.run(entry{offset: c*calls + i})
				mu.Lock()
				n := written[c*calls+i]
				mu.Unlock()
				if err != nil || !mine || n != 1 {
					failed <- fmt.Errorf("mine %t, written %d times: %w", mine, n, err)
				}
			}
		})
	}
	wg.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	require.Len(t, written, callers*calls)
	require.Less(t, trips, callers*calls)
	require.False(t, together.under)
	require.Empty(t, together.next)
}

// A failure is that of all who asked together, and the next ones ask anew.
func TestTogetherFails(t *testing.T) {
	var away atomic.Bool
	together := &together{write: func(context.Context, []entry) (bool, error) {
		if away.Load() {
			return false, errStrange
		}
		return true, nil
	}}
	ask := func(n int) (failed int64) {
		var wg sync.WaitGroup
		var f atomic.Int64
		for i := range n {
			wg.Go(func() {
				if _, err := together.run(entry{offset: int64(i)}); err != nil {
					f.Add(1)
				}
			})
		}
		wg.Wait()
		return f.Load()
	}
	require.Zero(t, ask(20))
	away.Store(true)
	require.EqualValues(t, 20, ask(20))
	away.Store(false)
	require.Zero(t, ask(600), "more than go in one round trip")
}

// BenchmarkInHand is what a record costs that is written down: 64 workers on one
// partition, on Redis where there is one.
func BenchmarkInHand(b *testing.B) {
	addr := os.Getenv("TIDEGATE_TEST_REDIS")
	if addr == "" {
		s, err := redismem.Start("")
		require.NoError(b, err)
		b.Cleanup(s.Close)
		addr = s.Addr()
	}
	book := New(open(b, addr), 1<<40, 2, zap.NewNop())
	book.Assigned("group", "topic", 0, 0)
	var offset atomic.Int64
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			hand := &Hand{}
			if err := book.Begin(b.Context(), rec(offset.Add(1)), hand); err != nil {
				b.Error(err)
			}
			book.Done(hand)
		}
	})
}
