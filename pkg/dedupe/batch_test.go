package dedupe_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/dedupe"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

// hung is a store whose first question is out and does not come back until the
// line is let go.
func hung(t *testing.T) (s *dedupe.Store, c *redis.Client, p *redismem.Proxy, first <-chan dedupe.Verdict) {
	p, err := redismem.StartProxy(engine(t))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	c = open(t, p.Addr())
	s = dedupe.New(c, patient())
	require.NoError(t, c.Ping(t.Context()), "the connection is there before it hangs")
	p.Hang(true)
	got := make(chan dedupe.Verdict, 1)
	go func() {
		v, _ := s.Claim(context.Background(), "first")
		got <- v
	}()
	require.Eventually(t, func() bool { return p.Held() > 0 }, 5*time.Second, time.Millisecond)
	return s, c, p, got
}

// pipelines is how many round trips of the batcher have come back.
func pipelines(t *testing.T, c *redis.Client) uint64 {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c.Collector())
	all, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == "tidegate_redis_command_seconds" && m.GetLabel()[0].GetValue() == "pipeline" {
				return m.GetHistogram().GetSampleCount()
			}
		}
	}
	return 0
}

func TestClaimsAtTheSameTimeShareRoundTrips(t *testing.T) {
	s, c, p, first := hung(t)
	const n = 400
	var begun, ended sync.WaitGroup
	begun.Add(n)
	for i := range n {
		ended.Go(func() {
			begun.Done()
			v, claim := s.Claim(t.Context(), fmt.Sprint("other", i))
			assert.Equal(t, dedupe.Fresh, v)
			assert.NoError(t, claim.Done(t.Context()))
			v, _ = s.Claim(t.Context(), fmt.Sprint("other", i))
			assert.Equal(t, dedupe.Duplicate, v, "each got its own answer and its own mark")
		})
	}
	begun.Wait()
	p.Hang(false)
	ended.Wait()
	require.Equal(t, dedupe.Fresh, <-first)
	require.Less(t, pipelines(t, c), uint64(n), "1,201 questions")
}

// A delivery that was given up while it waited for the line must not be claimed
// afterwards: nobody would release it, and its repeat would wait for nothing.
func TestQuestionThatIsGivenUpIsNotSent(t *testing.T) {
	s, _, p, first := hung(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		v, _ := s.Claim(ctx, "given up")
		require.Equal(t, dedupe.Unchecked, v)
	}
	p.Hang(false)
	require.Equal(t, dedupe.Fresh, <-first)
	v, _ := s.Claim(t.Context(), "given up")
	require.Equal(t, dedupe.Fresh, v)
}

// Done is true whatever has become of the mark: here another delivery claimed
// after the first one's claim had lapsed.
func TestDoneCountsOverAnotherClaim(t *testing.T) {
	opt := patient()
	opt.ClaimTTL, opt.Wait = 30*time.Millisecond, 20*time.Millisecond
	s := dedupe.New(open(t, engine(t)), opt)
	ctx := t.Context()
	_, slow := s.Claim(ctx, "a")
	var next *dedupe.Claim
	require.Eventually(t, func() bool {
		v, c := s.Claim(ctx, "a")
		next = c
		return v == dedupe.Fresh
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, slow.Done(ctx))
	require.NoError(t, next.Release(ctx), "its publish failed, but the first one's did not")
	v, _ := s.Claim(ctx, "a")
	require.Equal(t, dedupe.Duplicate, v)
}

// Probes that take longer than the pause between them must still leave a pause,
// or every delivery in turn becomes a probe.
func TestSlowProbesLeavePauses(t *testing.T) {
	p, err := redismem.StartProxy(engine(t))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	s := dedupe.New(open(t, p.Addr()), dedupe.Options{Budget: 20 * time.Millisecond, BreakAfter: 1, ProbeEvery: 40 * time.Millisecond})
	p.Hang(true)
	slow := 0
	begun := time.Now()
	for i := 0; time.Since(begun) < 500*time.Millisecond; i++ {
		at := time.Now()
		v, _ := s.Claim(t.Context(), fmt.Sprint(i))
		require.Equal(t, dedupe.Unchecked, v)
		if time.Since(at) >= 20*time.Millisecond {
			slow++
		}
	}
	require.Positive(t, slow, "the fault happened")
	require.Less(t, slow, 18, "500 ms hold at most nine probes of 20 ms with pauses of 40 ms; without pauses there were 25")
	require.NotZero(t, p.Held())
}
