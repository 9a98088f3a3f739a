package lease_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"tidegate/pkg/fault"
	"tidegate/pkg/lease"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
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

// opener gives clients with one prefix that no other test has.
func opener(t *testing.T) func(addr string) *redis.Client {
	prefix := fmt.Sprintf("test:lease:%d", time.Now().UnixNano())
	return func(addr string) *redis.Client {
		cfg := redis.DefaultConfig()
		cfg.Addrs, cfg.Prefix, cfg.Timeout = []string{addr}, prefix, time.Second
		c, err := redis.Open(cfg, zaptest.NewLogger(t))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
}

func proxy(t *testing.T, target string) *redismem.Proxy {
	p, err := redismem.StartProxy(target)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func TestOneHolderAtATime(t *testing.T) {
	c := opener(t)(engine(t))
	ctx := t.Context()
	a, err := lease.Acquire(ctx, c, "cron", time.Minute)
	require.NoError(t, err)
	require.True(t, a.Valid())
	_, err = lease.Acquire(ctx, c, "cron", time.Minute)
	require.ErrorIs(t, err, lease.ErrHeld)
	require.Equal(t, fault.Conflict, fault.KindOf(err))
	_, err = lease.Acquire(ctx, c, "other", time.Minute)
	require.NoError(t, err, "another lease is not concerned")

	fence, held, err := lease.Current(ctx, c, "cron")
	require.NoError(t, err)
	require.True(t, held)
	require.Equal(t, a.Fence(), fence)

	before := a.Until()
	require.NoError(t, a.Renew(ctx))
	require.True(t, a.Until().After(before))
	require.NoError(t, a.Release(ctx))
	require.False(t, a.Valid())
	b, err := lease.Acquire(ctx, c, "cron", time.Minute)
	require.NoError(t, err)
	require.Greater(t, b.Fence(), a.Fence())
	require.ErrorIs(t, a.Renew(ctx), lease.ErrLost)
	require.NoError(t, a.Release(ctx), "the old holder does not release the new one's lease")
	require.NoError(t, b.Renew(ctx))
}

func TestFenceRisesOverLossOfAllData(t *testing.T) {
	c := opener(t)(engine(t))
	ctx := t.Context()
	var last int64
	for range 20 {
		l, err := lease.Acquire(ctx, c, "x", time.Minute)
		require.NoError(t, err)
		require.Greater(t, l.Fence(), last)
		last = l.Fence()
		for _, k := range []string{"lease", "fence"} { // as after a restart without data
			was, err := c.Del(ctx, redis.Tag("x", k))
			require.NoError(t, err)
			require.True(t, was, "the fault happened")
		}
		require.ErrorIs(t, l.Renew(ctx), lease.ErrLost)
		require.False(t, l.Valid())
	}
	fence, held, err := lease.Current(ctx, c, "x")
	require.NoError(t, err)
	require.Zero(t, fence)
	require.False(t, held)
}

func TestHolderStopsBeforeRedisForgets(t *testing.T) {
	c := opener(t)(engine(t))
	const ttl = 200 * time.Millisecond
	a, err := lease.Acquire(t.Context(), c, "x", ttl)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := lease.Acquire(t.Context(), c, "x", ttl)
		if err == nil {
			require.False(t, a.Valid(), "two holders at once")
		}
		return err == nil
	}, 5*time.Second, time.Millisecond)
}

func TestLostReplyIsAskedAgain(t *testing.T) {
	p := proxy(t, engine(t))
	c := opener(t)(p.Addr())
	for i := range 20 {
		name := fmt.Sprint("x", i)
		p.SwallowReplies("eval", 1)
		l, err := lease.Acquire(t.Context(), c, name, time.Minute)
		require.NoError(t, err)
		require.NoError(t, l.Renew(t.Context()))
		fence, held, err := lease.Current(t.Context(), c, name)
		require.NoError(t, err)
		require.True(t, held)
		require.Equal(t, l.Fence(), fence)
	}
	require.Equal(t, 20, p.Swallowed(), "the fault happened")
}

// Two candidates, the holder's line to Redis hangs: its work ends before the
// other's begins, and it gets the lease again later.
func TestRunHandsOverWithoutOverlap(t *testing.T) {
	addr := engine(t)
	open := opener(t)
	p := proxy(t, addr)
	const ttl = 500 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	var working, overlaps, lost atomic.Int32
	turns := make(chan string, 100)
	var mu sync.Mutex
	var fences []int64
	candidate := func(name string, c *redis.Client) func() {
		return func() {
			err := lease.Run(ctx, c, "leader", ttl, func(ctx context.Context, l *lease.Lease) error {
				if working.Add(1) > 1 {
					overlaps.Add(1)
				}
				mu.Lock()
				fences = append(fences, l.Fence())
				mu.Unlock()
				turns <- name
				<-ctx.Done()
				if errors.Is(context.Cause(ctx), lease.ErrLost) {
					lost.Add(1)
				}
				working.Add(-1)
				return nil
			})
			assert.NoError(t, err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(candidate("a", open(p.Addr())))
	require.Equal(t, "a", <-turns)
	wg.Go(candidate("b", open(addr)))
	p.Hang(true)
	require.Equal(t, "b", <-turns)
	require.NotZero(t, p.Held(), "the fault happened")
	require.EqualValues(t, 1, lost.Load(), "the first one was told")
	p.Hang(false)
	stop()
	wg.Wait()
	require.Zero(t, overlaps.Load())
	require.IsIncreasing(t, fences)
	fence, held, err := lease.Current(t.Context(), open(addr), "leader")
	require.NoError(t, err)
	require.False(t, held, "given back on the way out")
	require.Equal(t, fences[len(fences)-1], fence)
}

func TestRunReturnsWhatTheWorkReturns(t *testing.T) {
	c := opener(t)(engine(t))
	boom := errors.New("boom")
	for range 3 { // released each time, so no waiting for its end
		err := lease.Run(t.Context(), c, "x", time.Hour, func(context.Context, *lease.Lease) error { return boom })
		require.ErrorIs(t, err, boom)
	}
}

func TestRunKeepsTheLeaseForLongWork(t *testing.T) {
	c := opener(t)(engine(t))
	const ttl = 300 * time.Millisecond
	err := lease.Run(t.Context(), c, "x", ttl, func(ctx context.Context, l *lease.Lease) error {
		end := time.NewTimer(4 * ttl)
		for {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-end.C:
				return nil
			default:
			}
			if _, err := lease.Acquire(ctx, c, "x", ttl); !errors.Is(err, lease.ErrHeld) {
				return fmt.Errorf("taken from under the work: %w", err)
			}
		}
	})
	require.NoError(t, err)
}

func TestNothingIsTakenWithoutRedis(t *testing.T) {
	s, err := redismem.Start("")
	require.NoError(t, err)
	c := opener(t)(s.Addr())
	l, err := lease.Acquire(t.Context(), c, "x", time.Minute)
	require.NoError(t, err)
	s.Close()
	_, err = lease.Acquire(t.Context(), c, "y", time.Minute)
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.Equal(t, fault.Unavailable, fault.KindOf(l.Renew(t.Context())))
	require.True(t, l.Valid(), "what is held lasts until its end")
	_, err = lease.Acquire(t.Context(), c, "", time.Minute)
	require.Equal(t, fault.Internal, fault.KindOf(err))
}
