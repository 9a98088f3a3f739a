package dedupe_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"pgregory.net/rapid"

	"tidegate/pkg/dedupe"
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

func open(t *testing.T, addr string) *redis.Client {
	cfg := redis.DefaultConfig()
	cfg.Addrs = []string{addr}
	cfg.Prefix = fmt.Sprintf("test:dedupe:%d", time.Now().UnixNano())
	cfg.Timeout = time.Second
	c, err := redis.Open(cfg, zaptest.NewLogger(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// patient are options for a busy test machine: a budget that only a real fault exceeds.
func patient() dedupe.Options { return dedupe.Options{Budget: time.Second, Wait: 2 * time.Second} }

func TestFirstIsFreshAndRepeatsAreDuplicates(t *testing.T) {
	s := dedupe.New(open(t, engine(t)), patient())
	ctx := t.Context()
	v, c := s.Claim(ctx, "a")
	require.Equal(t, dedupe.Fresh, v)
	require.NoError(t, c.Done(ctx))
	for range 3 {
		v, c := s.Claim(ctx, "a")
		require.Equal(t, dedupe.Duplicate, v)
		require.NoError(t, c.Done(ctx))
		require.NoError(t, c.Release(ctx), "a duplicate has nothing to give back")
	}
	v, _ = s.Claim(ctx, "b")
	require.Equal(t, dedupe.Fresh, v, "another identity is not concerned")
}

func TestReleasedIdentityIsFreshAgain(t *testing.T) {
	s := dedupe.New(open(t, engine(t)), patient())
	ctx := t.Context()
	_, c := s.Claim(ctx, "a")
	require.NoError(t, c.Release(ctx))
	v, c2 := s.Claim(ctx, "a")
	require.Equal(t, dedupe.Fresh, v)
	require.NoError(t, c.Release(ctx), "an old claim must not remove the new one")
	require.NoError(t, c2.Done(ctx))
	v, _ = s.Claim(ctx, "a")
	require.Equal(t, dedupe.Duplicate, v)
}

func TestRepeatWaitsForTheFirst(t *testing.T) {
	s := dedupe.New(open(t, engine(t)), patient())
	ctx := t.Context()
	_, first := s.Claim(ctx, "a")
	got := make(chan dedupe.Verdict, 1)
	go func() {
		v, _ := s.Claim(ctx, "a")
		got <- v
	}()
	select {
	case v := <-got:
		t.Fatalf("answered %v while the first was neither done nor overdue", v)
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, first.Done(ctx))
	require.Equal(t, dedupe.Duplicate, <-got)
}

func TestRepeatTakesOverWhenTheFirstIsReleased(t *testing.T) {
	s := dedupe.New(open(t, engine(t)), patient())
	ctx := t.Context()
	_, first := s.Claim(ctx, "a")
	got := make(chan dedupe.Verdict, 1)
	go func() {
		v, _ := s.Claim(ctx, "a")
		got <- v
	}()
	require.NoError(t, first.Release(ctx))
	require.Equal(t, dedupe.Fresh, <-got)
}

// T1: the first node died between claim and publish; the repeat must go through.
func TestClaimThatDoesNotEndIsOverdue(t *testing.T) {
	opt := patient()
	opt.Wait = 60 * time.Millisecond
	s := dedupe.New(open(t, engine(t)), opt)
	ctx := t.Context()
	_, dead := s.Claim(ctx, "a")
	begun := time.Now()
	v, c := s.Claim(ctx, "a")
	require.Equal(t, dedupe.Overdue, v)
	require.GreaterOrEqual(t, time.Since(begun), opt.Wait)
	require.NoError(t, c.Release(ctx), "the claim is not ours to remove")
	v, c = s.Claim(ctx, "a")
	require.Equal(t, dedupe.Overdue, v, "it was removed all the same")
	require.NoError(t, c.Done(ctx))
	v, _ = s.Claim(ctx, "a")
	require.Equal(t, dedupe.Duplicate, v, "what the overdue delivery made durable counts")
	require.NoError(t, dead.Done(ctx), "the first wakes up")
	require.NoError(t, dead.Release(ctx))
	v, _ = s.Claim(ctx, "a")
	require.Equal(t, dedupe.Duplicate, v)
}

func TestWaitingEndsWithTheCaller(t *testing.T) {
	s := dedupe.New(open(t, engine(t)), patient())
	s.Claim(t.Context(), "a")
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan dedupe.Verdict, 1)
	go func() {
		v, _ := s.Claim(ctx, "a")
		got <- v
	}()
	cancel()
	require.NotEqual(t, dedupe.Duplicate, <-got)
}

func TestLateDoneOnlyFillsAnEmptyPlace(t *testing.T) {
	opt := patient()
	opt.ClaimTTL, opt.Wait = 30*time.Millisecond, 20*time.Millisecond
	s := dedupe.New(open(t, engine(t)), opt)
	ctx := t.Context()
	_, slow := s.Claim(ctx, "a")
	var next *dedupe.Claim
	require.Eventually(t, func() bool { // the slow one's claim ends by itself
		v, c := s.Claim(ctx, "a")
		next = c
		return v == dedupe.Fresh
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, next.Release(ctx))
	require.NoError(t, slow.Done(ctx))
	v, _ := s.Claim(ctx, "a")
	require.Equal(t, dedupe.Duplicate, v, "the slow one is durable, its mark had vanished")
}

// T2: Redis executes the claim, the reply is lost. A first delivery must never
// be taken for a duplicate.
func TestLostReplyIsNeverADuplicate(t *testing.T) {
	for _, lost := range []struct {
		replies int
		want    dedupe.Verdict
	}{
		{1, dedupe.Fresh},     // asking again finds the own token
		{2, dedupe.Unchecked}, // both replies lost: no answer, and said so
	} {
		t.Run(fmt.Sprintf("%d replies", lost.replies), func(t *testing.T) {
			p, err := redismem.StartProxy(engine(t))
			require.NoError(t, err)
			t.Cleanup(p.Close)
			opt := patient()
			opt.BreakAfter = 1000
			s := dedupe.New(open(t, p.Addr()), opt)
			ctx := t.Context()
			const n = 50
			for i := range n {
				p.SwallowReplies("nx", lost.replies)
				v, c := s.Claim(ctx, fmt.Sprint(i))
				require.Equal(t, lost.want, v, "delivery %d", i)
				require.NoError(t, c.Done(ctx))
				v, _ = s.Claim(ctx, fmt.Sprint(i))
				require.Equal(t, dedupe.Duplicate, v, "its repeat")
			}
			require.Equal(t, n*lost.replies, p.Swallowed(), "the fault happened")
		})
	}
}

// T10: a Redis that hangs costs the budget, and after a few deliveries nothing.
func TestHangingRedisCostsLittleAndHeals(t *testing.T) {
	p, err := redismem.StartProxy(engine(t))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	reg := prometheus.NewPedanticRegistry()
	opt := dedupe.Options{Budget: 100 * time.Millisecond, BreakAfter: 3, ProbeEvery: 50 * time.Millisecond, Registerer: reg}
	s := dedupe.New(open(t, p.Addr()), opt)
	ctx := t.Context()
	v, _ := s.Claim(ctx, "warm")
	require.NotEqual(t, dedupe.Duplicate, v)

	p.Hang(true)
	begun := time.Now()
	for i := range 1000 {
		v, _ := s.Claim(ctx, fmt.Sprint("hang", i))
		require.Equal(t, dedupe.Unchecked, v)
	}
	require.Less(t, time.Since(begun), 3*time.Second, "1000 deliveries at 100 ms each would take 100 s")
	require.NotZero(t, p.Held(), "the fault happened")
	require.EqualValues(t, 1, gauge(t, reg, "tidegate_dedupe_breaker_open"))

	p.Hang(false)
	var i atomic.Int64
	require.Eventually(t, func() bool { // a probe finds out
		v, _ := s.Claim(ctx, fmt.Sprint("healed", i.Add(1)))
		return v == dedupe.Fresh
	}, 5*time.Second, 5*time.Millisecond)
	require.EqualValues(t, 0, gauge(t, reg, "tidegate_dedupe_breaker_open"))
}

func gauge(t *testing.T, reg prometheus.Gatherer, name string) float64 {
	all, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range all {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestRefusingRedisLetsEverythingThrough(t *testing.T) {
	for _, text := range []string{"MISCONF disk", "OOM command not allowed", "READONLY replica", "LOADING data", "CLUSTERDOWN no", "NOAUTH Authentication required.", "ERR odd"} {
		t.Run(text, func(t *testing.T) {
			m, err := redismem.Start("")
			require.NoError(t, err)
			t.Cleanup(m.Close)
			s := dedupe.New(open(t, m.Addr()), patient())
			_, c := s.Claim(t.Context(), "a")
			require.NoError(t, c.Done(t.Context()))
			m.Fail(text)
			v, c := s.Claim(t.Context(), "a")
			require.Equal(t, dedupe.Unchecked, v)
			require.Error(t, c.Done(t.Context()))
			m.Fail("")
			v, _ = s.Claim(t.Context(), "a")
			require.Equal(t, dedupe.Duplicate, v)
		})
	}
}

// G4 in small: many deliveries of one identity at once give one effect.
func TestManyDeliveriesOneFresh(t *testing.T) {
	s := dedupe.New(open(t, engine(t)), patient())
	ctx := t.Context()
	for id := range 20 {
		var fresh atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				v, c := s.Claim(ctx, fmt.Sprint(id))
				if v == dedupe.Fresh {
					fresh.Add(1)
					assert.NoError(t, c.Done(ctx))
					return
				}
				assert.Equal(t, dedupe.Duplicate, v)
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, fresh.Load())
	}
}

// Whatever the order of steps: Duplicate only after something was done.
func TestDuplicateOnlyAfterDone(t *testing.T) {
	addr := engine(t)
	c := open(t, addr)
	var run atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		s := dedupe.New(c, dedupe.Options{Budget: time.Second, Wait: time.Millisecond})
		base := run.Add(1)
		done := map[int]bool{}
		type open struct {
			id int
			c  *dedupe.Claim
		}
		var claims []open
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			id := rapid.IntRange(0, 2).Draw(t, "id")
			switch op := rapid.IntRange(0, 3).Draw(t, "op"); {
			case op < 2 || len(claims) == 0:
				v, c := s.Claim(context.Background(), fmt.Sprint(base, ":", id))
				if v == dedupe.Unchecked || v == dedupe.Duplicate && !done[id] {
					t.Fatalf("identity %d: verdict %v, durable %v", id, v, done[id])
				}
				claims = append(claims, open{id, c})
			case op == 2:
				o := claims[rapid.IntRange(0, len(claims)-1).Draw(t, "which")]
				if err := o.c.Done(context.Background()); err != nil {
					t.Fatal(err)
				}
				done[o.id] = true
			default:
				o := claims[rapid.IntRange(0, len(claims)-1).Draw(t, "which")]
				if err := o.c.Release(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestOptionsSayWhatIsWrong(t *testing.T) {
	require.NoError(t, dedupe.Options{}.Validate())
	require.NoError(t, dedupe.DefaultOptions().Validate())
	err := dedupe.Options{Wait: 5 * time.Second, ClaimTTL: time.Second, DoneTTL: time.Second, Budget: time.Minute, BreakAfter: -1}.Validate()
	for _, field := range []string{"dedupe.wait", "dedupe.claim_ttl", "dedupe.done_ttl", "dedupe.budget", "dedupe.break_after"} {
		require.ErrorContains(t, err, field)
	}
}
