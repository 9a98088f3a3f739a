package token_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/lease"
	"tidegate/pkg/redis"
	"tidegate/sender/token"
)

// sleeper is a node whose answers are under way for as long as a test says, as
// if the process had been stopped between WeChat's answer and what it does next.
type sleeper struct {
	*platform
	once sync.Once
	has  chan struct{} // it has its answer
	wake chan struct{}
}

func newSleeper(p *platform) *sleeper {
	return &sleeper{platform: p, has: make(chan struct{}), wake: make(chan struct{})}
}

func (s *sleeper) StableToken(ctx context.Context, appID, secret string, force bool) (string, time.Duration, error) {
	value, life, err := s.platform.StableToken(ctx, appID, secret, force)
	s.once.Do(func() { close(s.has); <-s.wake })
	return value, life, err
}

const shortLease = 100 * time.Millisecond

func withLease(o *token.Options) { o.Lease = shortLease }

// leaseEnds waits until nobody holds the right to refresh.
func leaseEnds(t *testing.T, c *redis.Client) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, held, err := lease.Current(t.Context(), c, "token/shop")
		return err == nil && !held
	}, 10*time.Second, 5*time.Millisecond)
}

type given struct {
	token.Token
	err error
}

// T44: a refresher has an answer in hand, sleeps longer than its lease, and
// wakes when a later one has published a newer token: nobody gets the old one.
func TestT44ARefresherThatWakesLateReplacesNothing(t *testing.T) {
	c := newClock()
	p := &platform{clock: c}
	r := startRedis(t, false)
	slow := newSleeper(p)
	late, quick := newNodeOver(t, slow, c, r, withLease), newNode(t, p, r, withLease)
	out := make(chan given, 1)
	go func() { tok, err := late.Token(t.Context(), "shop"); out <- given{tok, err} }()
	<-slow.has // it holds token 1
	leaseEnds(t, r.client)
	p.invalidate() // token 2 is the good one
	newer, err := quick.Token(t.Context(), "shop")
	require.NoError(t, err)
	require.True(t, p.use(newer))
	close(slow.wake)
	got := <-out
	require.NoError(t, got.err)
	require.Equal(t, newer.Value, got.Value, "the late one takes over what is newer")
	stored, ok, err := token.NewShared(r.client).Load(t.Context(), "shop")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, newer.Value, stored.Value)
	normal, forced := p.calls()
	require.Equal(t, []int{2, 0}, []int{normal, forced})
}

// T43, T44: a refresher that slept before it would have forced a refresh does
// not: it would end the token that another node has forced meanwhile.
func TestT44ARefresherThatWakesLateForcesNothing(t *testing.T) {
	c := newClock()
	p := &platform{clock: c}
	r := startRedis(t, false)
	slow := newSleeper(p)
	late, quick := newNodeOver(t, slow, c, r, withLease), newNode(t, p, r, withLease)
	require.NoError(t, send(t.Context(), p, quick))
	old, err := late.Token(t.Context(), "shop")
	require.NoError(t, err)
	c.Add(time.Minute)
	p.breakCurrent()
	out := make(chan given, 1)
	go func() { tok, err := late.Rejected(t.Context(), "shop", old); out <- given{tok, err} }()
	<-slow.has // the normal call has brought the refused token again
	leaseEnds(t, r.client)
	c.Add(31 * time.Second)
	newer, err := quick.Rejected(t.Context(), "shop", old)
	require.NoError(t, err)
	require.True(t, p.use(newer))
	close(slow.wake)
	got := <-out
	require.NoError(t, got.err)
	require.Equal(t, newer.Value, got.Value)
	require.True(t, p.use(newer), "it is still good")
	_, forced := p.calls()
	require.Equal(t, 1, forced)
}

// A Redis that has lost its data does not give old refreshers new authority.
func TestFencesRiseAfterRedisLostItsData(t *testing.T) {
	r := startRedis(t, true)
	s := token.NewShared(r.client)
	ctx := t.Context()
	before, err := s.Claim(ctx, "shop", time.Minute)
	require.NoError(t, err)
	r.mem.Close()
	r = startRedis(t, true) // an empty one
	s = token.NewShared(r.client)
	after, err := s.Claim(ctx, "shop", time.Minute)
	require.NoError(t, err)
	require.Greater(t, after.Fence, before.Fence)
	held, err := s.Claim(ctx, "shop", time.Minute)
	require.NoError(t, err)
	require.Nil(t, held)
	newer := token.Token{Value: "newer", ExpiresAt: time.Now().Add(time.Hour), Fence: after.Fence}
	_, err = s.Offer(ctx, "shop", newer, time.Hour)
	require.NoError(t, err)
	got, err := s.Offer(ctx, "shop", token.Token{Value: "older", ExpiresAt: time.Now().Add(time.Hour), Fence: before.Fence}, time.Hour)
	require.NoError(t, err)
	require.Equal(t, "newer", got.Value)
}
