package dedupe_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/dedupe"
	"tidegate/pkg/redis/redismem"
)

// step is what a caller wants done next: it ends when the test says so.
type step struct {
	begun atomic.Int32
	ended chan struct{}
}

func newStep() *step { return &step{ended: make(chan struct{}, 1)} }

func (s *step) end() { s.ended <- struct{}{} }

func (s *step) onward(at func()) dedupe.Onward {
	return dedupe.Onward{Ended: s.ended, Start: func() {
		s.begun.Add(1)
		at()
	}}
}

func TestFreshClaimGoesOnByItself(t *testing.T) {
	s := dedupe.New(open(t, engine(t)), patient())
	for _, n := range []*dedupe.Nonce{nil, {Key: "n", Body: [32]byte{1}, TTL: time.Minute}} {
		name := fmt.Sprint(n != nil)
		st := newStep()
		got := s.ClaimThen(t.Context(), name, n, st.onward(st.end))
		require.True(t, got.Started && got.Ended)
		require.Equal(t, dedupe.Fresh, got.Verdict)
		require.NoError(t, got.Claim.Done(t.Context()))

		again := newStep()
		got = s.ClaimThen(t.Context(), name, n, again.onward(again.end))
		require.Equal(t, dedupe.Duplicate, got.Verdict)
		require.False(t, got.Started)
		require.Zero(t, again.begun.Load(), "what was taken is not published again")
	}
	forged := newStep()
	got := s.ClaimThen(t.Context(), "other", &dedupe.Nonce{Key: "n", Body: [32]byte{2}, TTL: time.Minute}, forged.onward(forged.end))
	require.Equal(t, dedupe.NonceReused, got.Nonce)
	require.Zero(t, forged.begun.Load())
	v, _ := s.Claim(t.Context(), "other")
	require.Equal(t, dedupe.Fresh, v, "the forgery left no claim")
}

// A forgery that only Redis knows of, because another node saw the first use.
func TestForgeryAtAnotherNodeDoesNotStart(t *testing.T) {
	c := open(t, engine(t))
	one, two := dedupe.New(c, patient()), dedupe.New(c, patient())
	require.Equal(t, dedupe.NonceFirst, one.Nonce(t.Context(), dedupe.Nonce{Key: "n", Body: [32]byte{1}, TTL: time.Minute}))
	st := newStep()
	got := two.ClaimThen(t.Context(), "k", &dedupe.Nonce{Key: "n", Body: [32]byte{2}, TTL: time.Minute}, st.onward(st.end))
	require.Equal(t, dedupe.NonceReused, got.Nonce)
	require.Zero(t, st.begun.Load())
	v, _ := one.Claim(t.Context(), "k")
	require.Equal(t, dedupe.Fresh, v, "the forgery left no claim")
}

// What was started and takes long is waited for by the caller.
func TestWhatTakesLongIsLeftToTheCaller(t *testing.T) {
	opt := patient()
	opt.Budget = 300 * time.Millisecond // enough for a Redis beside a busy machine's other work
	s := dedupe.New(open(t, engine(t)), opt)
	st := newStep()
	got := s.ClaimThen(t.Context(), "k", nil, st.onward(func() {}))
	require.True(t, got.Started)
	require.False(t, got.Ended)
	require.Equal(t, dedupe.Fresh, got.Verdict)
	require.NoError(t, got.Claim.Release(t.Context()), "the claim is its own")
	v, _ := s.Claim(t.Context(), "k")
	require.Equal(t, dedupe.Fresh, v)
}

// Redis hangs: the caller has had enough, and nothing must start behind its back
// when the answer comes after all.
func TestNothingStartsForACallerWhoHasGone(t *testing.T) {
	p, err := redismem.StartProxy(engine(t))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	c := open(t, p.Addr())
	s := dedupe.New(c, dedupe.Options{Budget: 30 * time.Millisecond})
	require.NoError(t, c.Ping(t.Context()))
	p.Hang(true)
	st := newStep()
	got := s.ClaimThen(t.Context(), "k", nil, st.onward(st.end))
	require.Equal(t, dedupe.Unchecked, got.Verdict)
	require.False(t, got.Started)
	require.Positive(t, p.Held(), "the fault happened")
	p.Hang(false)
	require.Eventually(t, func() bool {
		v, _ := s.Claim(t.Context(), "other")
		return v == dedupe.Fresh
	}, 5*time.Second, time.Millisecond)
	require.Zero(t, st.begun.Load())
}

// Started or not, exactly once: answers and budgets race here.
func TestStartsOnceOrNotAtAll(t *testing.T) {
	opt := patient()
	opt.Budget, opt.BreakAfter = 4*time.Millisecond, 1_000_000
	s := dedupe.New(open(t, engine(t)), opt)
	var wg sync.WaitGroup
	var started, unchecked atomic.Int32
	for i := range 2000 {
		wg.Go(func() {
			st := newStep()
			got := s.ClaimThen(context.Background(), fmt.Sprint(i), nil, st.onward(st.end))
			if got.Started {
				started.Add(1)
				if !got.Ended {
					<-st.ended
				}
			}
			if got.Verdict == dedupe.Unchecked {
				unchecked.Add(1)
			}
			if want := int32(0); got.Started {
				want = 1
				if st.begun.Load() != want {
					t.Errorf("started %d times", st.begun.Load())
				}
			} else if st.begun.Load() != want {
				t.Error("started for a caller who was told that it was not")
			}
		})
	}
	wg.Wait()
	t.Logf("%d started, %d unchecked", started.Load(), unchecked.Load())
}

// Marks that nobody waits for: they are there in the end, share pipelines, and
// leave nothing undone when Redis is away.
func TestMarksThatNobodyWaitsFor(t *testing.T) {
	s, c, p, first := hung(t)
	const n = 300
	var wg sync.WaitGroup
	var failed atomic.Int32
	claims := make([]*dedupe.Claim, n)
	p.Hang(false)
	require.Equal(t, dedupe.Fresh, <-first)
	for i := range n {
		_, claims[i] = s.Claim(t.Context(), fmt.Sprint(i))
	}
	before := pipelines(t, c)
	wg.Add(n)
	for _, claim := range claims {
		claim.DoneLater(func(err error) {
			if err != nil {
				failed.Add(1)
			}
			wg.Done()
		})
	}
	wg.Wait()
	require.Zero(t, failed.Load())
	require.Less(t, pipelines(t, c)-before, uint64(n/2))
	for i := range n {
		v, _ := s.Claim(t.Context(), fmt.Sprint(i))
		require.Equal(t, dedupe.Duplicate, v)
	}
}

func TestMarksFailSoonWhenRedisHangs(t *testing.T) {
	p, err := redismem.StartProxy(engine(t))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	c := open(t, p.Addr())
	s := dedupe.New(c, dedupe.Options{Budget: 50 * time.Millisecond})
	_, claim := s.Claim(t.Context(), "k")
	p.Hang(true)
	errs := make(chan error, 10)
	for range 10 {
		claim.DoneLater(func(err error) { errs <- err })
	}
	for range 10 {
		select {
		case err := <-errs:
			require.Error(t, err)
		case <-time.After(5 * time.Second):
			t.Fatal("a mark has no end")
		}
	}
	require.Positive(t, p.Held(), "the fault happened")
	p.Hang(false)
}
