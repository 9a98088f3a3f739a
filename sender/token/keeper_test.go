package token_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/sender/token"
)

// G13: 4 nodes × 100 sends at once, 10 invalidations by somebody else.
func TestStormOfRejectionsCostsOneCall(t *testing.T) {
	c := newClock()
	p := &platform{clock: c}
	r := startRedis(t, false)
	nodes := make([]node, 4)
	for i := range nodes {
		nodes[i] = newNode(t, p, r)
	}
	crowd := func() {
		var wg sync.WaitGroup
		for _, n := range nodes {
			for range 100 {
				wg.Go(func() {
					if err := send(t.Context(), p, n); err != nil {
						t.Errorf("send: %v", err)
					}
				})
			}
		}
		wg.Wait()
	}
	crowd()
	normal, _ := p.calls()
	require.Equal(t, 1, normal, "four cold nodes share one call")
	for range 10 {
		c.Add(31 * time.Second)
		p.invalidate()
		crowd()
	}
	normal, forced := p.calls()
	require.Equal(t, 11, normal)
	require.Zero(t, forced, "the normal mode gives the new token: nothing to force")
	for i := 1; i < len(p.normal); i++ {
		require.GreaterOrEqual(t, p.normal[i].Sub(p.normal[i-1]), 30*time.Second)
	}
	rejections := 0.0
	for _, n := range nodes {
		rejections += testutil.ToFloat64(counter(t, n.reg, "tidegate_token_rejections_total"))
	}
	require.GreaterOrEqual(t, rejections, 10.0, "the storm must have happened")
}

func TestForcesOnceOnlyWhenTheSameTokenComesBack(t *testing.T) {
	c := newClock()
	p := &platform{clock: c}
	r := startRedis(t, false)
	nodes := []node{newNode(t, p, r), newNode(t, p, r)}
	for _, n := range nodes {
		require.NoError(t, send(t.Context(), p, n))
	}
	c.Add(time.Minute)
	p.breakCurrent()
	var wg sync.WaitGroup
	for _, n := range nodes {
		for range 50 {
			wg.Go(func() {
				if err := send(t.Context(), p, n); err != nil {
					t.Errorf("send: %v", err)
				}
			})
		}
	}
	wg.Wait()
	normal, forced := p.calls()
	require.Equal(t, 2, normal)
	require.Equal(t, 1, forced)
}

func TestSecondRejectionWithinTheIntervalWaits(t *testing.T) {
	c := newClock()
	p := &platform{clock: c}
	n := newNode(t, p, startRedis(t, false))
	require.NoError(t, send(t.Context(), p, n))
	c.Add(10 * time.Second)
	p.invalidate()
	err := send(t.Context(), p, n)
	require.Equal(t, fault.Limited, fault.KindOf(err), "%v", err)
	require.Equal(t, 20*time.Second, fault.RetryAfter(err))
	require.Equal(t, 1, n.log.FilterMessageSnippet("does another system refresh").Len(), "trap T45")
	for range 100 { // the refused token is not used again meanwhile
		_, err := n.Token(t.Context(), "shop")
		require.Equal(t, fault.Limited, fault.KindOf(err))
	}
	normal, forced := p.calls()
	require.Equal(t, 1, normal)
	require.Zero(t, forced)
	c.Add(fault.RetryAfter(err))
	require.NoError(t, send(t.Context(), p, n))
}

func TestForcedRefreshesAreCountedOverNodesAndDays(t *testing.T) {
	c := newClock() // 16:00 in Beijing
	p := &platform{clock: c}
	r := startRedis(t, false)
	opt := func(o *token.Options) { o.ForcedPerDay = 3 }
	nodes := []node{newNode(t, p, r, opt), newNode(t, p, r, opt)}
	for i := range 5 {
		c.Add(time.Minute)
		p.breakCurrent()
		err := send(t.Context(), p, nodes[i%2])
		if i == 0 {
			require.NoError(t, err) // the first token is fetched here and is good
			p.breakCurrent()
			c.Add(time.Minute)
			err = send(t.Context(), p, nodes[0])
		}
		if i < 3 {
			require.NoError(t, err, "force %d", i)
			continue
		}
		require.Equal(t, fault.Limited, fault.KindOf(err), "force %d: %v", i, err)
	}
	_, forced := p.calls()
	require.Equal(t, 3, forced)
	c.Add(8 * time.Hour) // past midnight in Beijing, and the old token is over as well
	require.NoError(t, send(t.Context(), p, nodes[0]))
	p.breakCurrent()
	c.Add(time.Minute)
	require.NoError(t, send(t.Context(), p, nodes[0]))
	_, forced = p.calls()
	require.Equal(t, 4, forced)
}

func TestOldTokenServesWhileTheNewOneIsFetched(t *testing.T) {
	c := newClock()
	p := &platform{clock: c}
	n := newNode(t, p, startRedis(t, false), func(o *token.Options) { o.Tick = time.Millisecond })
	require.NoError(t, send(t.Context(), p, n))
	first, err := n.Token(t.Context(), "shop")
	require.NoError(t, err)
	p.mu.Lock()
	p.entered, p.hold = make(chan struct{}), make(chan struct{})
	p.mu.Unlock()
	c.Add(2*time.Hour - 280*time.Second)

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = n.Run(ctx) }()
	<-p.entered // the renewal is under way
	tok, err := n.Token(t.Context(), "shop")
	require.NoError(t, err)
	require.Equal(t, first.Value, tok.Value)
	require.True(t, p.use(tok))
	p.mu.Lock()
	hold := p.hold
	p.entered, p.hold = nil, nil
	p.mu.Unlock()
	close(hold)
	require.Eventually(t, func() bool {
		tok, err := n.Token(t.Context(), "shop")
		return err == nil && tok.Value != first.Value
	}, 5*time.Second, time.Millisecond)
	cancel()
	<-done
}

// Trap T44: a refresher sleeps with an old token in hand and wakes when a
// later refresh has stored a newer one.
func TestSlowRefresherDoesNotPutAnOldTokenBack(t *testing.T) {
	r := startRedis(t, false)
	s := token.NewShared(r.client)
	ctx, now := t.Context(), time.Now()
	newer := token.Token{Value: "newer", ExpiresAt: now.Add(time.Hour), Fence: 8}
	got, err := s.Offer(ctx, "shop", newer, time.Hour)
	require.NoError(t, err)
	require.Equal(t, "newer", got.Value)
	got, err = s.Offer(ctx, "shop", token.Token{Value: "older", ExpiresAt: now.Add(2 * time.Hour), Fence: 7}, time.Hour)
	require.NoError(t, err)
	require.Equal(t, "newer", got.Value, "a later end does not make an earlier refresh newer: clocks differ")
	got, ok, err := s.Load(ctx, "shop")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "newer", got.Value)
}

func TestLateRejectionOfAFormerTokenChangesNothing(t *testing.T) {
	c := newClock()
	p := &platform{clock: c}
	n := newNode(t, p, startRedis(t, false))
	old, err := n.Token(t.Context(), "shop")
	require.NoError(t, err)
	c.Add(time.Minute)
	p.invalidate()
	fresh, err := n.Rejected(t.Context(), "shop", old)
	require.NoError(t, err)
	again, err := n.Rejected(t.Context(), "shop", old) // pitfall 20
	require.NoError(t, err)
	require.Equal(t, fresh.Value, again.Value)
	normal, _ := p.calls()
	require.Equal(t, 2, normal)
}
