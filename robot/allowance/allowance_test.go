package allowance_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/robot/allowance"
	"tidegate/robot/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.UnixMilli(1_790_000_000_000)

func engineAddr(t *testing.T) string {
	t.Helper()
	if addr := os.Getenv("TIDEGATE_TEST_REDIS"); addr != "" {
		return addr
	}
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s.Addr()
}

func book(t *testing.T, addr, prefix string) *allowance.Book {
	t.Helper()
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Timeout, cfg.Prefix = []string{addr}, 2*time.Second, prefix
	c, err := redis.Open(cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return allowance.New(c)
}

func prefix() string { return fmt.Sprintf("test:allowance:%d", time.Now().UnixNano()) }

func limit(times int, per time.Duration) engine.Limit {
	return engine.Limit{Rule: "bill", Times: times, Per: per}
}

func take(t *testing.T, b *allowance.Book, openid string, l engine.Limit, id int, at time.Time) bool {
	t.Helper()
	ok, err := b.Take(t.Context(), "card", openid, l, fmt.Sprint("c", id), at)
	require.NoError(t, err)
	return ok
}

func TestAFollowerHasHisShareAndNoMore(t *testing.T) {
	b := book(t, engineAddr(t), prefix())
	l := limit(2, 10*time.Minute)
	require.True(t, take(t, b, "o1", l, 1, start))
	require.True(t, take(t, b, "o1", l, 2, start.Add(time.Minute)))
	require.False(t, take(t, b, "o1", l, 3, start.Add(10*time.Minute-time.Millisecond)))
	require.True(t, take(t, b, "o2", l, 4, start.Add(9*time.Minute)), "another follower")
	other := l
	other.Rule = "points"
	require.True(t, take(t, b, "o1", other, 5, start.Add(9*time.Minute)), "another rule")
	require.True(t, take(t, b, "o1", l, 6, start.Add(10*time.Minute)))
	require.False(t, take(t, b, "o1", l, 7, start.Add(11*time.Minute-time.Millisecond)))

	// Worked again, even minutes later, each gets what it got.
	for id, want := range map[int]bool{1: true, 2: true, 6: true} {
		require.Equal(t, want, take(t, b, "o1", l, id, start.Add(time.Duration(id-1)*time.Minute)), id)
	}
	require.False(t, take(t, b, "o1", l, 3, start.Add(10*time.Minute-time.Millisecond)))
	require.NoError(t, b.Erase(t.Context(), "card", "o1", "bill"))
	require.True(t, take(t, b, "o1", l, 8, start.Add(11*time.Minute)))
}

func TestTheShareIsExactOverTheCluster(t *testing.T) {
	addr, p := engineAddr(t), prefix()
	books := []*allowance.Book{book(t, addr, p), book(t, addr, p), book(t, addr, p)}
	var through atomic.Int64
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			ok, err := books[i%3].Take(t.Context(), "card", "o1", limit(7, time.Hour), fmt.Sprint(i), start.Add(time.Duration(i)*time.Millisecond))
			if err == nil && ok {
				through.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 7, through.Load())
}

// In no period are there more than the limit, however the callbacks come, and
// each gets the same again.
func TestNoPeriodHasMore(t *testing.T) {
	b := book(t, engineAddr(t), prefix())
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		user := fmt.Sprint("o", round)
		l := limit(rapid.IntRange(1, 4).Draw(rt, "times"), time.Duration(rapid.IntRange(1, 20).Draw(rt, "seconds"))*time.Second)
		at := start
		var through []time.Time
		for i := range rapid.IntRange(1, 25).Draw(rt, "n") {
			at = at.Add(time.Duration(rapid.IntRange(0, 4000).Draw(rt, "ms")) * time.Millisecond)
			ok := take(t, b, user, l, i, at)
			require.Equal(rt, ok, take(t, b, user, l, i, at))
			within := 0
			for _, before := range through {
				if before.After(at.Add(-l.Per)) {
					within++
				}
			}
			require.Equal(rt, within < l.Times, ok, "exact both ways")
			if ok {
				through = append(through, at)
			}
		}
		require.True(rt, slices.IsSortedFunc(through, time.Time.Compare))
	})
}

func TestWithoutRedisNothingIsDecided(t *testing.T) {
	s, err := redismem.Start("")
	require.NoError(t, err)
	b := book(t, s.Addr(), prefix())
	s.Close()
	_, err = b.Take(t.Context(), "card", "o1", limit(1, time.Minute), "1", start)
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
}
