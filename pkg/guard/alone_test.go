package guard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/guard"
)

// single is a guard without Redis, in a bubble: its clock is the bubble's.
func single(t *testing.T, change func(*guard.Config)) *guard.Guard {
	cfg := guard.DefaultConfig()
	cfg.Backend = "native"
	change(&cfg)
	g, err := guard.New(cfg, guard.Deps{Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	return g
}

// wait lets the bubble's clock run.
func wait(d time.Duration) { <-time.After(d) }

// Figure 6 (B0.3): the effective life is 0 below the threshold and T above it;
// protection ends when the demand has stayed below the exit ratio for the hold.
func TestFigure6(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := single(t, func(c *guard.Config) { c.Threshold, c.TTL = 100, 2*time.Second })
		defer g.Close()
		n := &native{}
		life := func(rate int) (fetches int) { // in ten seconds at a rate
			before := n.called()
			for range 10 * rate {
				_, err := g.Do(t.Context(), "a", n.fetch("a"))
				assert.NoError(t, err)
				wait(time.Second / time.Duration(rate))
			}
			return n.called() - before
		}
		require.Equal(t, 500, life(50), "below: every caller fetches")
		require.Equal(t, 900, life(90))
		fetches := life(200)
		require.GreaterOrEqual(t, fetches, 5)
		require.LessOrEqual(t, fetches, 100+6, "above: at most a window passes, then one fetch per T")
		require.Equal(t, "protect", g.View().Mode)
		held := life(85)
		require.LessOrEqual(t, held, 6, "85 of 100 is above the exit ratio: it goes on")
		left := life(50)
		require.Greater(t, left, 200, "below it for the hold: it ends")
		require.Less(t, left, 300, "but not before the hold")
		require.Equal(t, "pass", g.View().Mode)
	})
}

// B0.6: no answer is older than TTL + StaleGrace, whatever the schedule of
// callers, failures, slow fetches and pauses is. TIDEGATE_TEST_GUARD_SCHEDULES is
// how many schedules of 25 callers are tried beside the long ones.
func TestNoAnswerIsOlderThanItsLife(t *testing.T) {
	const long = 150
	many, _ := strconv.Atoi(os.Getenv("TIDEGATE_TEST_GUARD_SCHEDULES")) // without a number there are none
	answers, stale := 0, 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for seed := w; seed < long+many && !t.Failed(); seed += 2 {
				callers := 700
				if seed >= long {
					callers = 25
				}
				s := schedule{seed: uint64(seed), callers: callers}
				synctest.Test(t, s.play)
				mu.Lock()
				answers, stale = answers+s.answers, stale+s.stale
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	b := &bars{t: t}
	b.add("B0.6", "no answer is older than ttl + stale_grace, in any random schedule", fmt.Sprintf("%d answers, %d of them stale, in %d schedules: none too old: %v", answers, stale, long+many, !t.Failed()), !t.Failed())
	b.print()
	require.Greater(t, answers, 50000)
	require.Positive(t, stale)
}

// schedule is one random course of events on a clock of its own.
type schedule struct {
	seed           uint64
	callers        int
	answers, stale int
}

func (s *schedule) play(t *testing.T) {
	dice := rand.New(rand.NewPCG(s.seed, 5))
	ttl, grace := time.Duration(1+dice.IntN(2000))*time.Millisecond, time.Duration(dice.IntN(2))*time.Duration(dice.IntN(3000))*time.Millisecond
	g := single(t, func(c *guard.Config) {
		c.Threshold, c.TTL, c.StaleGrace, c.Gate, c.Nodes = int64(dice.IntN(2)*20), ttl, grace, 1+dice.IntN(3), 1
		c.TokenTimeout, c.WaitMax, c.BreakFor = time.Second, time.Duration(1+dice.IntN(1500))*time.Millisecond, time.Second
	})
	defer g.Close()
	var mu sync.Mutex
	fetch := func(ctx context.Context) ([]byte, error) {
		mu.Lock()
		slow, bad := time.Duration(dice.IntN(1200))*time.Millisecond, dice.IntN(5) == 0
		mu.Unlock()
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if bad {
			return nil, errors.New("down")
		}
		return []byte(time.Now().Format(time.RFC3339Nano)), nil
	}
	var wg sync.WaitGroup
	for range s.callers {
		mu.Lock()
		pause, key := time.Duration(dice.ExpFloat64()*float64(20*time.Millisecond)), fmt.Sprint(dice.IntN(4))
		mu.Unlock()
		wait(pause)
		wg.Go(func() {
			r, err := g.Do(context.Background(), key, fetch)
			if err != nil {
				return
			}
			read, perr := time.Parse(time.RFC3339Nano, string(r.Value))
			age := time.Since(read)
			assert.NoError(t, perr)
			limit := ttl
			if r.How == guard.Stale {
				limit += grace
			}
			assert.LessOrEqual(t, age, limit, "seed %d, %s", s.seed, r.How)
			assert.Equal(t, age, r.Age, "the age that is told is the age")
			mu.Lock()
			defer mu.Unlock()
			s.answers++
			if r.How == guard.Stale {
				s.stale++
			}
		})
	}
	wg.Wait()
}

// Of one resource one fetch runs at a time, and no more than the gate at all.
func TestConcurrencyLaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := single(t, func(c *guard.Config) {
			c.Threshold, c.TTL, c.Gate, c.Nodes, c.MaxWaiting, c.WaitMax = 0, time.Millisecond, 5, 1, 10000, time.Minute
		})
		defer g.Close()
		n := &native{}
		slow := func(key string) guard.Fetch {
			inner := n.fetch(key)
			return func(ctx context.Context) ([]byte, error) {
				_, _ = n.enter("x" + key)
				defer n.leave("x" + key)
				wait(60 * time.Millisecond)
				return inner(ctx)
			}
		}
		var wg sync.WaitGroup
		for i := range 2000 {
			key := fmt.Sprint(i % 20)
			wg.Go(func() {
				_, err := g.Do(context.Background(), key, slow(key))
				assert.NoError(t, err)
			})
			if i%100 == 0 {
				wait(10 * time.Millisecond)
			}
		}
		wg.Wait()
		require.LessOrEqual(t, g.View().Peak, 5)
		require.Equal(t, 5, g.View().Peak, "the gate was used")
		require.Equal(t, 1, n.keyPeak)
	})
}

func TestTheWayOpensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := single(t, func(c *guard.Config) {
			c.Threshold, c.FailTTL, c.BreakAfter, c.BreakFor = 0, 100*time.Millisecond, 3, 5*time.Second
		})
		defer g.Close()
		n := &native{err: errors.New("down")}
		do := func() (guard.Result, error) { return g.Do(t.Context(), "a", n.fetch("a")) }
		for range 3 {
			_, err := do()
			require.ErrorContains(t, err, "down")
			_, err = do()
			require.ErrorContains(t, err, "a moment ago", "the mark keeps others from trying")
			wait(100 * time.Millisecond)
		}
		wait(4 * time.Second)
		_, err := do()
		require.ErrorContains(t, err, "in a row")
		require.Equal(t, 3, n.called())
		wait(time.Second)
		_, err = do()
		require.ErrorContains(t, err, "down", "one trial")
		wait(200 * time.Millisecond)
		_, err = do()
		require.ErrorContains(t, err, "in a row")
		require.Equal(t, 4, n.called())
		n.fail(nil)
		wait(5 * time.Second)
		r, err := do()
		require.NoError(t, err)
		require.Equal(t, guard.Local, r.How)
		require.False(t, g.View().Breaker)
	})
}

// A fetch that does not end with its context holds its place, but not the others.
func TestAFetchThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := single(t, func(c *guard.Config) {
			c.Threshold, c.TokenTimeout, c.WaitMax, c.Gate, c.Nodes = 0, time.Second, 500*time.Millisecond, 2, 1
		})
		stuck, n := make(chan struct{}), &native{}
		_, err := g.Do(t.Context(), "a", func(context.Context) ([]byte, error) { <-stuck; return nil, nil })
		require.ErrorContains(t, err, "no value in time")
		wait(600 * time.Millisecond)
		r, err := g.Do(t.Context(), "a", n.fetch("a"))
		require.NoError(t, err, "after its timeout somebody else fetches")
		require.Equal(t, "a 1", string(r.Value))
		require.Equal(t, 1, g.View().InFlight, "the back end still works for it")
		close(stuck)
		synctest.Wait()
		require.Zero(t, g.View().InFlight)
		g.Close()
	})
}

// perKeyCalls is the number of calls for a key.
func (n *native) perKeyCalls(key string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ofKey[key]
}

// TestActivationInTheCluster is the letter of T5 on Redis, with the server's
// clock in hand: values of before protection live from its begin.
func TestActivationInTheCluster(t *testing.T) {
	cfg := config()
	cfg.TTL, cfg.TTLStart = 2*time.Second, guard.StartActivation
	now := time.UnixMicro(1_700_000_000_000_000)
	s := guard.NewTestStore(opener(t)(engine(t)), cfg, "a", true, func() time.Time { return now })
	before := now.UnixMicro()
	fresh, err := s.Publish(t.Context(), "", before, "old")
	require.NoError(t, err)
	require.True(t, fresh)
	now = now.Add(20 * time.Second)
	started := now.UnixMicro()
	found := func(started int64) string {
		what, err := s.LookFrom(t.Context(), started, 2*time.Second)
		require.NoError(t, err)
		return what
	}
	require.Equal(t, "FREE", found(0), "ttl_start fetch: its life is over")
	require.Equal(t, "HIT", found(started))
	now = now.Add(1999 * time.Millisecond)
	require.Equal(t, "HIT", found(started))
	now = now.Add(time.Millisecond)
	require.Equal(t, "FREE", found(started))
	_, err = s.Publish(t.Context(), "", now.UnixMicro(), "new")
	require.NoError(t, err)
	now = now.Add(1999 * time.Millisecond)
	require.Equal(t, "HIT", found(started), "what was fetched after the begin lives from the fetch")
	now = now.Add(time.Millisecond)
	require.Equal(t, "FREE", found(started))
}

// T5, the paper's letter: at the begin of protection the life of every value
// begins, however old it is. In the process; TestActivationInTheCluster is the
// same on Redis.
func TestLifeFromActivation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := single(t, func(c *guard.Config) {
			c.Threshold, c.TTLStart, c.TTL, c.StaleGrace = 10, guard.StartActivation, 2*time.Second, time.Hour
		})
		defer g.Close()
		n := &native{}
		do := func() guard.How {
			r, err := g.Do(t.Context(), "a", n.fetch("a"))
			require.NoError(t, err)
			return r.How
		}
		require.Equal(t, guard.Pass, do())
		wait(20 * time.Second) // far longer than its life from the fetch
		for range 10 {
			_, err := g.Do(t.Context(), "b", n.fetch("b"))
			require.NoError(t, err)
		}
		require.Equal(t, guard.Local, do(), "protection begins, and with it the life of the old value")
		wait(1700 * time.Millisecond)
		require.Equal(t, guard.Local, do())
		wait(600 * time.Millisecond) // lives differ by a tenth
		require.Equal(t, guard.Local, do())
		require.Equal(t, 2, n.perKeyCalls("a"), "its life is over: one fetch")
	})
}
