package slice_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/slice"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine is the address of a Redis: the real one if TIDEGATE_TEST_REDIS names it.
func engine(t *testing.T) string {
	if addr := os.Getenv("TIDEGATE_TEST_REDIS"); addr != "" {
		return addr
	}
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s.Addr()
}

func open(t *testing.T, addr string) *redis.Client {
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Timeout = []string{addr}, 2*time.Second
	cfg.Prefix = fmt.Sprintf("test:slice:%d", time.Now().UnixNano())
	c, err := redis.Open(cfg, zaptest.NewLogger(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// clock is a server clock that a test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func counters(t *testing.T) (*slice.Counters, *clock) {
	s, c := slice.New(open(t, engine(t))), &clock{at: time.UnixMicro(1_700_000_000_000_000)}
	s.SetClock(c.now)
	return s, c
}

func rule(limit int64, n int, m slice.Mode) slice.Rule {
	return slice.Rule{Limit: limit, Period: time.Second, Slices: n, Mode: m}
}

// fill takes one at a time until it is refused.
func fill(t *testing.T, s *slice.Counters, r slice.Rule) (n int64) {
	for {
		v, err := s.Take(t.Context(), "fill", 1, slice.Level{Scope: "s", Rule: r})
		require.NoError(t, err)
		if !v.OK {
			return n
		}
		n++
	}
}

// F6: the sum of n slices lets twice the limit into one true period; F7: that of
// n+1 never lets more than the limit in; weighted is between. The arrivals are
// the worst ones: all at the end of a slice, all at the begin of a later one.
func TestWorstPeriodOfTheModes(t *testing.T) {
	for _, m := range []slice.Mode{slice.Paper, slice.Strict, slice.Weighted} {
		t.Run(string(m), func(t *testing.T) {
			s, c := counters(t)
			const limit, n = 100, 10
			r := rule(limit, n, m)
			c.at = c.at.Add(100*time.Millisecond - time.Microsecond) // the end of slice k
			first := fill(t, s, r)
			require.EqualValues(t, limit, first)
			c.at = c.at.Add(900*time.Millisecond + time.Microsecond) // the begin of slice k+10: 0.9 s later
			within := first + fill(t, s, r)
			switch m {
			case slice.Paper:
				require.EqualValues(t, 2*limit, within)
			default:
				require.EqualValues(t, limit, within)
			}
			c.at = c.at.Add(99 * time.Millisecond) // still within one period of the first
			within += fill(t, s, r)
			switch m {
			case slice.Paper:
				require.EqualValues(t, 2*limit, within)
			case slice.Strict:
				require.EqualValues(t, limit, within)
			case slice.Weighted:
				require.Greater(t, within, int64(limit))
				require.LessOrEqual(t, within, int64(2*limit))
			}
		})
	}
}

// F7 and F8 as numbers: how much of the limit each mode uses under a steady
// threefold load, and what the worst true period holds, also when pauses make
// the arrivals uneven. On Window, which decides as the script does
// (TestScriptAndWindowAgree).
func TestUseAndWorstPeriodUnderOverload(t *testing.T) {
	for _, c := range []struct {
		mode slice.Mode
		n    int
		use  float64 // least part of the limit that is used; strict gives away 1/(n+1)
		most int64   // most in any true period
	}{
		{slice.Strict, 1, 0.47, 100}, {slice.Strict, 5, 0.80, 100}, {slice.Strict, 10, 0.87, 100}, {slice.Strict, 20, 0.91, 100},
		{slice.Paper, 10, 0.97, 200}, {slice.Weighted, 10, 0.95, 135},
	} {
		t.Run(fmt.Sprintf("%s-%d", c.mode, c.n), func(t *testing.T) {
			use, steady := overload(c.mode, c.n, 0)
			_, uneven := overload(c.mode, c.n, 500)
			t.Logf("mode %s, %d slices: %.1f %% of the limit used, worst period %d of 100, with uneven arrivals %d", c.mode, c.n, 100*use, steady, uneven)
			require.GreaterOrEqual(t, use, c.use)
			require.LessOrEqual(t, max(steady, uneven), c.most)
			require.Equal(t, c.mode != slice.Strict, uneven > 100)
		})
	}
}

// overload offers three times a limit of 100 a second for 200 s, with a pause
// about every pauses arrivals, and gives the part of the limit that was used and
// the largest true period.
func overload(m slice.Mode, n, pauses int) (use float64, worst int64) {
	const limit, seconds = 100, 200
	w := slice.NewWindow(rule(limit, n, m))
	dice := rand.New(rand.NewPCG(1, uint64(n)))
	at := time.UnixMicro(1_700_000_000_000_000)
	end := at.Add(seconds * time.Second)
	var taken []time.Time
	for at.Before(end) {
		at = at.Add(time.Duration(dice.ExpFloat64() * float64(time.Second) / (3 * limit)))
		if pauses > 0 && dice.IntN(pauses) == 0 {
			at = at.Add(time.Duration(dice.IntN(2000)) * time.Millisecond)
		}
		if w.Take(at, 1) {
			taken = append(taken, at)
		}
	}
	return float64(len(taken)) / (limit * seconds), most(taken, time.Second)
}

// most is the largest number within any period that begins at an arrival; the
// period is open at its end.
func most(at []time.Time, p time.Duration) (n int64) {
	for i, j := 0, 0; j < len(at); j++ {
		for at[j].Sub(at[i]) >= p {
			i++
		}
		n = max(n, int64(j-i+1))
	}
	return n
}

// F10: what is refused is not counted, so a caller at three times its limit gets
// its limit and is not locked out.
func TestRefusedVisitsAreNotCounted(t *testing.T) {
	s, c := counters(t)
	l := slice.Level{Scope: "app", Rule: rule(100, 10, slice.Strict)}
	taken, refused := 0, 0
	for range 3000 { // 300 a second for 10 s
		c.at = c.at.Add(time.Second / 300)
		v, err := s.Take(t.Context(), "dev", 1, l)
		require.NoError(t, err)
		if v.OK {
			taken++
		} else {
			refused++
		}
	}
	require.Positive(t, refused)
	require.GreaterOrEqual(t, taken, 850, "85 per cent of 10 × 100 (B4.10)")
}

func TestLevelsAreAllOrNothing(t *testing.T) {
	s, c := counters(t)
	dev := slice.Level{Scope: "dev", Rule: rule(50, 10, slice.Strict)}
	app := slice.Level{Scope: "app", Rule: rule(20, 10, slice.Strict)}
	user := slice.Level{Scope: "user", Rule: slice.Rule{Limit: 3, Period: time.Minute, Slices: 6, Mode: slice.Strict}}
	for i := range 3 {
		v, err := s.Take(t.Context(), "d", 1, dev, app, user)
		require.NoError(t, err)
		require.True(t, v.OK)
		require.Equal(t, -1, v.Refused)
		require.Equal(t, []int64{int64(i + 1), int64(i + 1), int64(i + 1)}, v.Used)
	}
	v, err := s.Take(t.Context(), "d", 1, dev, app, user)
	require.NoError(t, err)
	require.False(t, v.OK)
	require.Equal(t, 2, v.Refused)
	require.Equal(t, []int64{3, 3, 3}, v.Used, "none of the levels is counted")
	require.Positive(t, v.Wait)
	c.at = c.at.Add(v.Wait)
	v, err = s.Take(t.Context(), "d", 1, dev, app, user)
	require.NoError(t, err)
	require.True(t, v.OK, "after the wait there is room")

	v, err = s.Take(t.Context(), "d", 1000, dev, app)
	require.NoError(t, err)
	require.Equal(t, 0, v.Refused, "the first that refuses")
	require.Negative(t, v.Wait, "it never fits")
}

// The wait is not longer than needed: a millisecond before its end there is no room.
func TestWaitIsExact(t *testing.T) {
	for _, m := range []slice.Mode{slice.Paper, slice.Strict, slice.Weighted} {
		t.Run(string(m), func(t *testing.T) {
			s, c := counters(t)
			l := slice.Level{Scope: "s", Rule: rule(10, 5, m)}
			ask := func() slice.Verdict {
				v, err := s.Take(t.Context(), "w", 4, l)
				require.NoError(t, err)
				return v
			}
			c.at = c.at.Add(30 * time.Millisecond)
			require.True(t, ask().OK)
			c.at = c.at.Add(400 * time.Millisecond)
			require.True(t, ask().OK)
			v := ask()
			require.False(t, v.OK)
			c.at = c.at.Add(v.Wait - time.Millisecond)
			require.False(t, ask().OK)
			c.at = c.at.Add(time.Millisecond)
			require.True(t, ask().OK)
		})
	}
}

// A change of the rule neither forgets what was used nor allows it twice.
func TestChangeOfARuleKeepsTheAllowance(t *testing.T) {
	s, c := counters(t)
	require.EqualValues(t, 100, fill(t, s, rule(100, 10, slice.Strict)))
	require.EqualValues(t, 0, fill(t, s, rule(100, 7, slice.Strict)), "other slices, same period: nothing is free")
	require.EqualValues(t, 20, fill(t, s, rule(120, 7, slice.Strict)), "a higher limit gives the difference")
	c.at = c.at.Add(1200 * time.Millisecond)
	require.EqualValues(t, 120, fill(t, s, rule(120, 7, slice.Strict)))
}

// The server's clock steps back: what was counted still counts, and a jump that
// nobody means does not lock the scope for ever.
func TestClockThatJumpsBack(t *testing.T) {
	s, c := counters(t)
	r := rule(100, 10, slice.Strict)
	require.EqualValues(t, 100, fill(t, s, r))
	c.at = c.at.Add(-1500 * time.Millisecond)
	require.EqualValues(t, 0, fill(t, s, r))
	c.at = c.at.Add(-time.Hour)
	require.EqualValues(t, 100, fill(t, s, r))
}

func TestScriptAndWindowAgree(t *testing.T) {
	s, c := counters(t)
	for seed := range uint64(12) {
		dice := rand.New(rand.NewPCG(7, seed))
		r := slice.Rule{
			Limit: int64(1 + dice.IntN(40)), Period: time.Duration(100+dice.IntN(3000)) * time.Millisecond,
			Slices: 1 + dice.IntN(20), Mode: []slice.Mode{slice.Paper, slice.Strict, slice.Weighted}[dice.IntN(3)],
		}
		w := slice.NewWindow(r)
		for i := range 150 {
			c.at = c.at.Add(time.Duration(dice.ExpFloat64() * float64(r.Period) / float64(r.Limit)))
			cost := int64(1 + dice.IntN(3))
			v, err := s.Take(t.Context(), fmt.Sprint("agree", seed), cost, slice.Level{Scope: "x", Rule: r})
			require.NoError(t, err)
			require.Equal(t, w.Take(c.at, cost), v.OK, "rule %+v, step %d", r, i)
			require.Equal(t, w.Sum(c.at), v.Used[0], "rule %+v, step %d", r, i)
		}
	}
}

func TestManyNodesNeverExceedALimit(t *testing.T) {
	addr := engine(t)
	c := open(t, addr)
	l := slice.Level{Scope: "app", Rule: slice.Rule{Limit: 200, Period: time.Hour, Slices: 10, Mode: slice.Strict}}
	var mu sync.Mutex
	total := 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			node := slice.New(c)
			for range 60 {
				v, err := node.Take(context.Background(), "many", 1, l)
				if assert.NoError(t, err) && v.OK {
					mu.Lock()
					total++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 200, total)
}

func TestWhatIsKeptEndsByItself(t *testing.T) {
	c := open(t, engine(t))
	s := slice.New(c)
	v, err := s.Take(t.Context(), "brief", 3, slice.Level{Scope: "x", Rule: slice.Rule{Period: 40 * time.Millisecond, Slices: 4, Mode: slice.Paper}})
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), v.At, time.Minute)
	key := redis.Tag("brief", "slice", "x")
	require.Eventually(t, func() bool {
		_, found, err := c.TTL(t.Context(), key)
		require.NoError(t, err)
		return !found
	}, 5*time.Second, time.Millisecond)
}

func TestWrongCallsAreRefused(t *testing.T) {
	s := slice.New(open(t, engine(t)))
	good := slice.Level{Scope: "x", Rule: rule(1, 1, slice.Strict)}
	for name, call := range map[string]func() error{
		"no tag":     func() error { _, err := s.Take(t.Context(), "", 1, good); return err },
		"no level":   func() error { _, err := s.Take(t.Context(), "a", 1); return err },
		"cost":       func() error { _, err := s.Take(t.Context(), "a", -1, good); return err },
		"same scope": func() error { _, err := s.Take(t.Context(), "a", 1, good, good); return err },
		"rule": func() error {
			_, err := s.Take(t.Context(), "a", 1, slice.Level{Scope: "y", Rule: rule(-1, 0, "often")})
			return err
		},
	} {
		require.Error(t, call(), name)
	}
	err := rule(-1, 0, "often").Validate()
	require.ErrorContains(t, err, "limit")
	require.ErrorContains(t, err, "slices")
	require.ErrorContains(t, err, "mode")
	require.ErrorContains(t, slice.Rule{Period: time.Second, Slices: 100, Mode: "x"}.Validate(), "mode")
	require.ErrorContains(t, slice.Rule{Period: 10 * time.Millisecond, Slices: 100, Mode: slice.Paper}.Validate(), "period")

	gone := open(t, "127.0.0.1:1")
	_, err = slice.New(gone).Take(t.Context(), "a", 1, good)
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
}
