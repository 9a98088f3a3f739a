package ratelimit

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A permit that is taken without waiting is one like all others: it counts against
// rate and concurrency, goes before nobody who waits, and wakes the next one when
// it comes back.
func TestTakingWithoutWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limit{Rate: 10, Burst: 2, StartFull: true, Concurrency: 2})
		require.True(t, l.TryTake())
		require.True(t, l.TryTake())
		require.False(t, l.TryTake(), "the concurrency is used up")
		l.Back()
		require.False(t, l.TryTake(), "and so is the burst")
		<-time.After(100 * time.Millisecond)
		require.True(t, l.TryTake())
		<-time.After(time.Second)

		var wg sync.WaitGroup
		wg.Go(func() {
			release, err := l.Acquire(t.Context(), 0)
			if assert.NoError(t, err) {
				release()
			}
		})
		synctest.Wait()
		require.False(t, l.TryTake(), "somebody waits")
		l.Back()
		require.False(t, l.TryTake(), "and was woken")
		wg.Wait()
		require.True(t, l.TryTake())
		require.Equal(t, 2, l.Stats().InFlight)
		l.Close()
		require.False(t, l.TryTake())
	})
}

// Nobody takes more than the rate allows, however the two ways are mixed.
func TestTakingKeepsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limit{Rate: 100, Burst: 3})
		begin := time.Now()
		var mu sync.Mutex
		var at []int64
		note := func() {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, int64(time.Since(begin)))
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 40 {
					release, err := l.Acquire(t.Context(), 0)
					assert.NoError(t, err)
					note()
					release()
					<-time.After(50 * time.Millisecond)
				}
			})
		}
		taken := 0
		wg.Go(func() {
			for range 1000 {
				if l.TryTake() {
					taken++
					note()
					l.Back()
				}
				<-time.After(3 * time.Millisecond)
			}
		})
		wg.Wait()
		require.Greater(t, taken, 50)
		require.Empty(t, overfull(at, 100, 3))
	})
}
