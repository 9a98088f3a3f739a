package dedupe_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/dedupe"
	"tidegate/pkg/redis/redismem"
)

func nonce(key, body string) dedupe.Nonce {
	return dedupe.Nonce{Key: key, Body: sha256.Sum256([]byte(body)), TTL: time.Minute}
}

// What one node has seen, every node knows: the second has a memory of its own.
func TestASignedTextHasOneBodyOnEveryNode(t *testing.T) {
	c := open(t, engine(t))
	one, two := dedupe.New(c, patient()), dedupe.New(c, patient())
	ctx := t.Context()
	v, claim, used := one.ClaimWithNonce(ctx, "a", nonce("n1", "a"))
	require.Equal(t, dedupe.Fresh, v)
	require.Equal(t, dedupe.NonceFirst, used)
	require.NoError(t, claim.Done(ctx))
	for _, s := range []*dedupe.Store{one, two, two} {
		_, forged, used := s.ClaimWithNonce(ctx, "b", nonce("n1", "b"))
		require.Equal(t, dedupe.NonceReused, used)
		require.NoError(t, forged.Done(ctx))
		require.NoError(t, forged.Release(ctx))
		require.Equal(t, dedupe.NonceReused, s.Nonce(ctx, nonce("n1", "c")))

		v, again, used := s.ClaimWithNonce(ctx, "a", nonce("n1", "a"))
		require.Equal(t, dedupe.NonceRepeated, used, "the first body stays good, also where a forgery came first")
		require.Equal(t, dedupe.Duplicate, v)
		require.NoError(t, again.Done(ctx))
		require.Equal(t, dedupe.NonceRepeated, s.Nonce(ctx, nonce("n1", "a")))
	}
	v, _ = two.Claim(ctx, "b")
	require.Equal(t, dedupe.Fresh, v, "a forgery leaves no claim behind")
	require.Equal(t, dedupe.NonceFirst, two.Nonce(ctx, nonce("n2", "b")))
}

// The reply to a forgery's claim is lost and asked for again: the claim that is
// found then is its own, and is given back as well.
func TestAForgeryLeavesNoClaimBehindALostReply(t *testing.T) {
	p, err := redismem.StartProxy(engine(t))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	c := open(t, p.Addr())
	one, two := dedupe.New(c, patient()), dedupe.New(c, patient())
	require.Equal(t, dedupe.NonceFirst, one.Nonce(t.Context(), nonce("n", "a")))
	p.SwallowReplies("nx", 1)
	_, _, used := two.ClaimWithNonce(t.Context(), "b", nonce("n", "b"))
	require.Equal(t, dedupe.NonceReused, used)
	require.Equal(t, 1, p.Swallowed(), "the fault happened")
	v, _ := one.Claim(t.Context(), "b")
	require.Equal(t, dedupe.Fresh, v)
}

// A delivery that failed and comes again with the same text is worked.
func TestARepeatedNonceDoesNotSwallowARetry(t *testing.T) {
	s := dedupe.New(open(t, engine(t)), patient())
	_, claim, _ := s.ClaimWithNonce(t.Context(), "a", nonce("n", "a"))
	require.NoError(t, claim.Release(t.Context()))
	v, _, used := s.ClaimWithNonce(t.Context(), "a", nonce("n", "a"))
	require.Equal(t, dedupe.Fresh, v)
	require.Equal(t, dedupe.NonceRepeated, used)
}

func TestRedisAwayLeavesTheNodesOwnMemory(t *testing.T) {
	m, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(m.Close)
	s := dedupe.New(open(t, m.Addr()), patient())
	ctx := t.Context()
	require.Equal(t, dedupe.NonceFirst, s.Nonce(ctx, nonce("before", "a")))
	m.Fail("LOADING Redis is loading the dataset in memory")
	for range 10 { // the breaker opens on the way
		v, claim, used := s.ClaimWithNonce(ctx, "b", nonce("before", "b"))
		require.Equal(t, dedupe.NonceReused, used)
		require.NoError(t, claim.Release(ctx))
		require.Equal(t, dedupe.Unchecked, v)
	}
	v, _, used := s.ClaimWithNonce(ctx, "x", nonce("during", "x"))
	require.Equal(t, dedupe.Unchecked, v, "a doubt is let through")
	require.Equal(t, dedupe.NonceUnchecked, used)
	require.Equal(t, dedupe.NonceRepeated, s.Nonce(ctx, nonce("during", "x")))
	require.Equal(t, dedupe.NonceReused, s.Nonce(ctx, nonce("during", "y")))
	m.Fail("")
}

func TestOneOfManyForgeriesAtOnceIsTheFirst(t *testing.T) {
	c := open(t, engine(t))
	stores := []*dedupe.Store{dedupe.New(c, patient()), dedupe.New(c, patient())}
	var taken atomic.Int32
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			body := fmt.Sprint(i)
			_, claim, used := stores[i%2].ClaimWithNonce(context.Background(), body, nonce("n", body))
			assert.NotEqual(t, dedupe.NonceRepeated, used)
			if used != dedupe.NonceReused {
				taken.Add(1)
				assert.NoError(t, claim.Done(context.Background()))
			}
		})
	}
	wg.Wait()
	require.Equal(t, int32(1), taken.Load())
}

// The nonce travels with the claim: it costs no round trip of its own.
func TestClaimAndNonceShareOneRoundTrip(t *testing.T) {
	c := open(t, engine(t))
	s := dedupe.New(c, patient())
	require.NoError(t, c.Ping(t.Context()))
	before := pipelines(t, c)
	for i := range 50 {
		v, _, used := s.ClaimWithNonce(t.Context(), fmt.Sprint("id", i), nonce(fmt.Sprint("n", i), "x"))
		require.Equal(t, dedupe.Fresh, v)
		require.Equal(t, dedupe.NonceFirst, used)
	}
	require.Equal(t, uint64(50), pipelines(t, c)-before)
}

func TestAHungRedisEndsBothQuestionsWithinTheBudget(t *testing.T) {
	p, err := redismem.StartProxy(engine(t))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	c := open(t, p.Addr())
	s := dedupe.New(c, dedupe.Options{Budget: 50 * time.Millisecond, Wait: time.Second})
	require.NoError(t, c.Ping(t.Context()))
	p.Hang(true)
	begun := time.Now()
	v, _, used := s.ClaimWithNonce(t.Context(), "a", nonce("n", "a"))
	require.Equal(t, dedupe.Unchecked, v)
	require.Equal(t, dedupe.NonceUnchecked, used)
	require.Positive(t, p.Held(), "the fault happened")
	require.Less(t, time.Since(begun), 2*time.Second)
	p.Hang(false)
}
