package lease_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/lease"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

// clock is a node's wall clock that a test moves.
type clock struct {
	mu  sync.Mutex
	off time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Round(0).Add(c.off)
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off += d
}

func number(t *testing.T, n *lease.Numbers) int {
	t.Helper()
	got, until, err := n.Number(t.Context())
	require.NoError(t, err)
	require.True(t, until.After(time.Now()))
	return got
}

func TestEveryProcessHasItsOwnNumber(t *testing.T) {
	c := opener(t)(engine(t))
	const count = 12
	var mu sync.Mutex
	seen := map[int]bool{}
	var wg sync.WaitGroup
	for range count {
		wg.Go(func() {
			n := lease.NewNumbers(c, lease.NumbersOptions{Count: count})
			for range 3 {
				got, _, err := n.Number(context.Background())
				mu.Lock()
				if err == nil {
					seen[got] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, seen, count)
	for i := range count {
		require.True(t, seen[i], "number %d", i)
	}
	_, _, err := lease.NewNumbers(c, lease.NumbersOptions{Count: count}).Number(t.Context())
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.ErrorContains(t, err, "all 12 are taken")
}

func TestLongestIdleNumberFirst(t *testing.T) {
	c := opener(t)(engine(t))
	opt := lease.NumbersOptions{Count: 3}
	var held []*lease.Numbers
	for range 3 {
		n := lease.NewNumbers(c, opt)
		number(t, n)
		held = append(held, n)
	}
	var order []int
	for _, i := range []int{1, 2, 0} { // released in this order
		order = append(order, number(t, held[i]))
		require.NoError(t, held[i].Release(t.Context()))
		require.NoError(t, held[i].Release(t.Context()), "nothing to give back is no error")
		pastMillisecond(t, c)
	}
	for _, want := range order {
		require.Equal(t, want, number(t, lease.NewNumbers(c, opt)))
	}
}

// pastMillisecond waits until the server's clock shows another millisecond, so
// that two releases do not count as equally long ago.
func pastMillisecond(t *testing.T, c *redis.Client) {
	begin, err := c.Time(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		now, err := c.Time(t.Context())
		return err == nil && now.UnixMilli() > begin.UnixMilli()
	}, time.Second, time.Millisecond)
}

func TestNumberIsGoodOutOfContactUntilItsEnd(t *testing.T) {
	s, err := redismem.Start("")
	require.NoError(t, err)
	c := opener(t)(s.Addr())
	var clk clock
	n := lease.NewNumbers(c, lease.NumbersOptions{Now: clk.now})
	got, until, err := n.Number(t.Context())
	require.NoError(t, err)
	require.WithinDuration(t, clk.now().Add(10*time.Second), until, time.Second, "asked again every ten seconds")
	s.Close()
	for range 23 {
		clk.step(time.Hour)
		again, until, err := n.Number(t.Context())
		require.NoError(t, err)
		require.Equal(t, got, again)
		require.True(t, until.After(clk.now()))
	}
	clk.step(time.Hour)
	_, _, err = n.Number(t.Context())
	require.Equal(t, fault.Unavailable, fault.KindOf(err), "never guess")
}

func TestNumberOfADeadProcessComesBackAfterItsLease(t *testing.T) {
	c := opener(t)(engine(t))
	opt := lease.NumbersOptions{Count: 1, TTL: 300 * time.Millisecond}
	dead := lease.NewNumbers(c, opt)
	begun := time.Now()
	number(t, dead)
	next := lease.NewNumbers(c, opt)
	require.Eventually(t, func() bool {
		_, _, err := next.Number(t.Context())
		return err == nil
	}, 5*time.Second, 5*time.Millisecond)
	require.GreaterOrEqual(t, time.Since(begun), 250*time.Millisecond)
	_, _, err := dead.Number(t.Context())
	require.Equal(t, fault.Unavailable, fault.KindOf(err), "a process that wakes up late has lost it")
}

func TestRenewalKeepsTheNumber(t *testing.T) {
	c := opener(t)(engine(t))
	opt := lease.NumbersOptions{Count: 1, TTL: 400 * time.Millisecond}
	n := lease.NewNumbers(c, opt)
	number(t, n)
	tick := time.NewTicker(opt.TTL / 20)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < 3*opt.TTL; <-tick.C {
		number(t, n)
		_, _, err := lease.NewNumbers(c, opt).Number(t.Context())
		require.Error(t, err, "somebody else got it")
	}
}

// T58: the last holder's clock was ahead. The next one waits, or says so.
func TestNextHolderWaitsForTheLastOnesClock(t *testing.T) {
	c := opener(t)(engine(t))
	var ahead clock
	ahead.step(150 * time.Millisecond)
	first := lease.NewNumbers(c, lease.NumbersOptions{Count: 1, Now: ahead.now})
	number(t, first)
	last := ahead.now()
	require.NoError(t, first.Release(t.Context()))

	second := lease.NewNumbers(c, lease.NumbersOptions{Count: 1})
	number(t, second)
	require.True(t, time.Now().After(last), "ids of both cannot meet")

	ahead.step(time.Hour)
	require.NoError(t, second.Release(t.Context()))
	number(t, first)
	require.NoError(t, first.Release(t.Context()))
	for range 2 {
		_, _, err := second.Number(t.Context())
		require.Equal(t, fault.Unavailable, fault.KindOf(err))
		require.ErrorContains(t, err, "behind the last holder's")
		require.InDelta(t, time.Hour, fault.RetryAfter(err), float64(time.Minute))
	}
}

func TestLostReplyTakesOneNumberOnly(t *testing.T) {
	p := proxy(t, engine(t))
	open := opener(t)
	c := open(p.Addr())
	var ahead clock
	ahead.step(100 * time.Millisecond)
	opt := lease.NumbersOptions{Count: 1, Now: ahead.now}
	first := lease.NewNumbers(c, opt)
	number(t, first) // scripts are known to the server from here
	last := ahead.now()
	require.NoError(t, first.Release(t.Context()))

	p.SwallowReplies("eval", 1)
	require.Equal(t, 0, number(t, lease.NewNumbers(c, lease.NumbersOptions{Count: 1})))
	require.Equal(t, 1, p.Swallowed(), "the fault happened")
	require.True(t, time.Now().After(last), "the last holder's clock is remembered over the second question")
}

func TestNumbersAreRegisteredAgainAfterLossOfData(t *testing.T) {
	c := opener(t)(engine(t))
	var clk clock
	opt := lease.NumbersOptions{Count: 2, Now: clk.now}
	a := lease.NewNumbers(c, opt)
	mine := number(t, a)
	wipe(t, c)
	clk.step(11 * time.Second)
	require.Equal(t, mine, number(t, a))
	b := lease.NewNumbers(c, opt)
	require.NotEqual(t, mine, number(t, b), "the holder is known again")

	// Somebody took the number before its holder came back: the holder gives way.
	wipe(t, c)
	others := map[int]bool{}
	for range 2 {
		others[number(t, lease.NewNumbers(c, opt))] = true
	}
	require.Len(t, others, 2)
	clk.step(11 * time.Second)
	_, _, err := a.Number(t.Context())
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
}

func wipe(t *testing.T, c *redis.Client) {
	for _, k := range []string{"ends", "owners", "last"} {
		was, err := c.Del(t.Context(), redis.Tag("worker", k))
		require.NoError(t, err)
		require.True(t, was, "the fault happened")
	}
}

func TestNumbersOptions(t *testing.T) {
	require.NoError(t, lease.NumbersOptions{}.Validate())
	require.ErrorContains(t, lease.NumbersOptions{Count: 1025}.Validate(), "count")
	require.ErrorContains(t, lease.NumbersOptions{TTL: time.Second, RenewEvery: time.Second}.Validate(), "ttl")
	c := opener(t)(engine(t))
	seen := map[int]bool{}
	for range 40 {
		seen[number(t, lease.NewNumbers(c, lease.NumbersOptions{Name: fmt.Sprint("set", len(seen))}))] = true
	}
	require.Greater(t, len(seen), 20, "unused numbers are begun at random")
}
