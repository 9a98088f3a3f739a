package guard_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/guard"
)

func TestBelowTheThresholdEveryCallerGetsFreshData(t *testing.T) {
	cfg := config()
	cfg.Threshold = 1000
	g := cluster(t, cfg, 1)[0]
	n := &native{}
	for i := range 5 {
		r, err := g.Do(t.Context(), "a", n.fetch("a"))
		require.NoError(t, err)
		require.Equal(t, guard.Pass, r.How)
		require.Equal(t, i+1, n.called())
	}
}

func TestOneFetchForAllNodes(t *testing.T) {
	nodes := cluster(t, config(), 3)
	n := &native{gate: make(chan struct{}), entered: make(chan string, 10)}
	var replies []<-chan reply
	for i := range 30 {
		replies = append(replies, ask(t.Context(), nodes[i%3], "a", n))
	}
	<-n.entered
	eventually(t, "all callers wait", func() bool { return nodes[0].Waiting()+nodes[1].Waiting()+nodes[2].Waiting() == 30 })
	close(n.gate)
	how := map[guard.How]int{}
	for _, c := range replies {
		r := <-c
		require.NoError(t, r.err)
		require.Equal(t, "a 1", string(r.Value))
		how[r.How]++
	}
	require.Equal(t, 1, how[guard.Lease])
	require.Equal(t, 29, how[guard.Waited]+how[guard.Hit], "a node may look first when the value is there")
	require.GreaterOrEqual(t, how[guard.Waited], 9, "the holder's node did wait")
	require.Equal(t, 1, n.called())
	r, err := nodes[2].Do(t.Context(), "a", n.fetch("a"))
	require.NoError(t, err)
	require.Equal(t, guard.Hit, r.How)
	require.Positive(t, r.Fence)
	require.Equal(t, 1, n.called())
}

// T2, T5: the demand of all nodes together is what counts, and protection begins
// on all of them; T4: what passed through before is at hand then.
func TestProtectionBeginsOnAllNodes(t *testing.T) {
	cfg := config()
	cfg.Threshold, cfg.Window, cfg.ExitHold = 20, time.Minute, time.Hour
	nodes := cluster(t, cfg, 2)
	n := &native{}
	for i := range 20 {
		r, err := nodes[i%2].Do(t.Context(), "a", n.fetch("a"))
		require.NoError(t, err)
		require.Equal(t, guard.Pass, r.How, "%d of 20 is not more than 20", i+1)
	}
	eventually(t, "both know of all", func() bool {
		for _, g := range nodes {
			g.Flush(t.Context())
		}
		return nodes[0].View().Window == 20 && nodes[1].View().Window == 20
	})
	require.Equal(t, "pass", nodes[1].View().Mode)
	r, err := nodes[0].Do(t.Context(), "a", n.fetch("a"))
	require.NoError(t, err)
	require.Equal(t, guard.Hit, r.How, "the first above the threshold finds what passed through")
	require.Equal(t, 20, n.called())
	eventually(t, "the other node protects", func() bool { nodes[1].Flush(t.Context()); return nodes[1].View().Mode == "protect" })
	r, err = nodes[1].Do(t.Context(), "a", n.fetch("a"))
	require.NoError(t, err)
	require.Equal(t, guard.Hit, r.How)
	require.Equal(t, 20, n.called())
	eventually(t, "what is cached is counted", func() bool { nodes[1].Flush(t.Context()); return nodes[1].View().Cached == 1 })
}

// F3: when fetches use every place, protection begins although the threshold is
// far, and no more fetches run than the gate has places.
func TestAFullGateBeginsProtection(t *testing.T) {
	cfg := config()
	cfg.Threshold, cfg.Gate, cfg.Nodes = 1<<30, 2, 1
	g := cluster(t, cfg, 1)[0]
	n := &native{gate: make(chan struct{}), entered: make(chan string, 10)}
	a, b := ask(t.Context(), g, "a", n), ask(t.Context(), g, "b", n)
	<-n.entered
	<-n.entered
	require.Equal(t, "pass", g.View().Mode)
	c, d := ask(t.Context(), g, "c", n), ask(t.Context(), g, "c", n)
	eventually(t, "protection", func() bool { return g.View().Mode == "protect" && g.Waiting() == 2 })
	close(n.gate)
	for _, ch := range []<-chan reply{a, b, c, d} {
		require.NoError(t, (<-ch).err)
	}
	require.Equal(t, 3, n.called())
	require.Equal(t, 2, n.peak)
	require.Equal(t, 2, g.View().Peak)
}

func TestInvalidationVoidsWhatIsBeingFetched(t *testing.T) {
	nodes := cluster(t, config(), 2)
	n := &native{gate: make(chan struct{}), entered: make(chan string, 10)}
	before := ask(t.Context(), nodes[0], "a", n)
	<-n.entered
	require.NoError(t, nodes[1].Invalidate(t.Context(), "a"))
	after := ask(t.Context(), nodes[0], "a", n)
	eventually(t, "it waits for the fetch of before", func() bool { return nodes[0].Waiting() == 2 })
	n.gate <- struct{}{}
	<-n.entered // the value is refused, and fetched anew
	n.gate <- struct{}{}
	require.Equal(t, "a 2", string((<-before).Value))
	require.Equal(t, "a 2", string((<-after).Value))

	n.gate = nil
	require.NoError(t, nodes[0].Invalidate(t.Context(), "a"))
	r, err := nodes[1].Do(t.Context(), "a", n.fetch("a"))
	require.NoError(t, err)
	require.Equal(t, "a 3", string(r.Value))
	require.NoError(t, nodes[1].InvalidateValue(t.Context(), "a", r.Fence-1))
	again, err := nodes[0].Do(t.Context(), "a", n.fetch("a"))
	require.NoError(t, err)
	require.Equal(t, "a 3", string(again.Value), "a complaint about an older value does not void this one")
	require.NoError(t, nodes[1].InvalidateValue(t.Context(), "a", r.Fence))
	again, err = nodes[0].Do(t.Context(), "a", n.fetch("a"))
	require.NoError(t, err)
	require.Equal(t, "a 4", string(again.Value))
}

func TestInvalidationReachesAllVariants(t *testing.T) {
	g := cluster(t, config(), 1)[0]
	n := &native{}
	en, zh, other := guard.Variant("/seats/7", "en"), guard.Variant("/seats/7", "zh"), guard.Variant("/seats/8", "en")
	for range 2 {
		for _, key := range []string{en, zh, other} {
			_, err := g.Do(t.Context(), key, n.fetch(key))
			require.NoError(t, err)
		}
	}
	require.Equal(t, 3, n.called())
	require.NoError(t, g.Invalidate(t.Context(), "/seats/7"))
	for _, key := range []string{en, zh, other} {
		_, err := g.Do(t.Context(), key, n.fetch(key))
		require.NoError(t, err)
	}
	require.Equal(t, 5, n.called(), "two variants of seat 7, not seat 8")
}

func TestAFailureKeepsTheQueueFromTryingInTurn(t *testing.T) {
	cfg := config()
	cfg.FailTTL, cfg.BreakAfter = time.Minute, 100
	nodes := cluster(t, cfg, 2)
	down := errors.New("native system is down")
	n := &native{gate: make(chan struct{}), entered: make(chan string, 10), err: down}
	leader := ask(t.Context(), nodes[0], "a", n)
	<-n.entered
	var others []<-chan reply
	for i := range 10 {
		others = append(others, ask(t.Context(), nodes[i%2], "a", n))
	}
	eventually(t, "all wait", func() bool { return nodes[0].Waiting()+nodes[1].Waiting() == 11 })
	close(n.gate)
	require.ErrorIs(t, (<-leader).err, down)
	for _, c := range others {
		r := <-c
		require.Equal(t, guard.Shed, r.How)
		require.Equal(t, fault.Unavailable, fault.KindOf(r.err))
		require.Positive(t, fault.RetryAfter(r.err))
	}
	require.Equal(t, 1, n.called())
}

func TestAnswersOfAHealthyBackEndAreNoFailures(t *testing.T) {
	cfg := config()
	cfg.BreakAfter = 1
	g := cluster(t, cfg, 1)[0]
	n := &native{err: fault.New(fault.NotFound, "seats", "no such schedule")}
	for range 3 {
		r, err := g.Do(t.Context(), "a", n.fetch("a"))
		require.Equal(t, fault.NotFound, fault.KindOf(err))
		require.Equal(t, guard.Lease, r.How)
	}
	require.Equal(t, 3, n.called())
	require.False(t, g.View().Breaker)
}

func TestStaleValuesStandIn(t *testing.T) {
	cfg := config()
	cfg.TTL, cfg.StaleGrace, cfg.WaitMax, cfg.BreakAfter = time.Millisecond, time.Hour, 300*time.Millisecond, 2
	g := cluster(t, cfg, 1)[0]
	n := &native{}
	_, err := g.Do(t.Context(), "a", n.fetch("a"))
	require.NoError(t, err)
	stale := func(why string) {
		r, err := g.Do(t.Context(), "a", n.fetch("a"))
		require.NoError(t, err, why)
		require.Equal(t, guard.Stale, r.How, why)
		require.Equal(t, "a 1", string(r.Value), why)
		require.GreaterOrEqual(t, r.Age, time.Millisecond, why)
	}
	n.fail(errors.New("down"))
	eventually(t, "its life is over and the fetch fails", func() bool {
		r, err := g.Do(t.Context(), "a", n.fetch("a"))
		require.NoError(t, err)
		return r.How == guard.Stale
	})
	require.Equal(t, 2, n.called())
	stale("a failure mark is there")
	require.Equal(t, 2, n.called())

	n.fail(nil)
	n.gate = make(chan struct{})
	cfg.Backend = "slow"
	slow := cluster(t, cfg, 1)[0]
	close(n.gate)
	_, err = slow.Do(t.Context(), "b", n.fetch("b"))
	require.NoError(t, err)
	n.gate, n.entered = make(chan struct{}), make(chan string, 10)
	eventually(t, "the fetch takes longer than wait_max", func() bool {
		r, err := slow.Do(t.Context(), "b", n.fetch("b"))
		require.NoError(t, err)
		return r.How == guard.Stale
	})
	<-n.entered // the fault happened: a fetch was under way
	close(n.gate)
}

func TestTheWayIsClosedAfterFailuresInARow(t *testing.T) {
	cfg := config()
	cfg.BreakAfter, cfg.BreakFor, cfg.FailTTL = 3, time.Minute, 0
	g := cluster(t, cfg, 1)[0]
	n := &native{err: errors.New("down")}
	for range 3 {
		_, err := g.Do(t.Context(), "a", n.fetch("a"))
		require.ErrorContains(t, err, "down")
	}
	for _, key := range []string{"a", "b"} {
		r, err := g.Do(t.Context(), key, n.fetch(key))
		require.Equal(t, guard.Shed, r.How)
		require.ErrorContains(t, err, "3 times in a row")
	}
	_, err := g.Through(t.Context(), func(context.Context) error { return nil })
	require.ErrorContains(t, err, "3 times in a row")
	require.Equal(t, 3, n.called())
	require.True(t, g.View().Breaker)
}

// Personal values are not cached (D16) unless a rule says so, and then nobody
// who reads Redis reads them.
func TestPersonalValues(t *testing.T) {
	plain := cluster(t, config(), 1)[0]
	n := &native{}
	for range 3 {
		r, err := plain.Personal(t.Context(), "bill o-1", n.fetch("bill o-1"))
		require.NoError(t, err)
		require.Equal(t, guard.Pass, r.How)
	}
	require.Equal(t, 3, n.called())

	cfg := config()
	cfg.CachePersonal, cfg.Key = true, base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	open, addr := opener(t), engine(t)
	c := open(addr)
	a, b := start(t, cfg, c), start(t, cfg, open(addr))
	r, err := a.Personal(t.Context(), "bill o-1", n.fetch("secret"))
	require.NoError(t, err)
	r2, err := b.Personal(t.Context(), "bill o-1", n.fetch("secret"))
	require.NoError(t, err)
	require.Equal(t, guard.Hit, r2.How)
	require.Equal(t, r.Value, r2.Value)
	require.Equal(t, "secret 4", string(r.Value))
	require.Equal(t, 4, n.called())
	_, err = a.Do(t.Context(), "bill o-1", n.fetch("bill o-1"))
	require.NoError(t, err)
	require.Equal(t, 5, n.called(), "a shared value of the same name is another one")
	require.NoError(t, a.Invalidate(t.Context(), "bill o-1"))
	_, err = b.Personal(t.Context(), "bill o-1", n.fetch("bill o-1"))
	require.NoError(t, err)
	require.Equal(t, 6, n.called())

	cfg.Key = base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 32)))
	other := start(t, cfg, open(addr))
	_, err = other.Personal(t.Context(), "bill o-1", n.fetch("bill o-1"))
	require.NoError(t, err)
	require.Equal(t, 7, n.called(), "another key finds nothing of ours")
}

func TestWhatIsNotSharedIsFetchedByEachCaller(t *testing.T) {
	cfg := config()
	cfg.MaxValue = 10
	g := cluster(t, cfg, 1)[0]
	for name, fetch := range map[string]guard.Fetch{
		"too large for the guard": func(context.Context) ([]byte, error) { return []byte("eleven byte"), nil },
		"private":                 func(context.Context) ([]byte, error) { return []byte("mine"), guard.ErrNoStore },
		"too large to read": func(ctx context.Context) ([]byte, error) {
			if guard.Direct(ctx) {
				return []byte("streamed"), nil
			}
			return nil, guard.ErrTooLarge
		},
	} {
		for i := range 3 {
			r, err := g.Do(t.Context(), name, fetch)
			require.NoError(t, err, name)
			require.NotEmpty(t, r.Value, name)
			if i > 0 {
				require.Equal(t, guard.Pass, r.How, name)
			}
		}
	}
}

func TestAPanicOfAFetchIsAnError(t *testing.T) {
	g := cluster(t, config(), 1)[0]
	_, err := g.Do(t.Context(), "a", func(context.Context) ([]byte, error) { panic("openid o-1") })
	require.ErrorContains(t, err, "panicked")
	require.NotContains(t, err.Error(), "o-1", "what the panic says may be personal")
	require.Zero(t, g.View().InFlight)
}

// Whoever was not let through to the back end says nothing about it: no breaker
// opens, and no mark keeps the others away.
func TestWhoDidNotAskTellsNothing(t *testing.T) {
	g := cluster(t, config(), 1)[0]
	for range 10 {
		_, err := g.Do(t.Context(), "a", func(context.Context) ([]byte, error) { return nil, fmt.Errorf("no permit: %w", guard.ErrNotAsked) })
		require.ErrorIs(t, err, guard.ErrNotAsked)
	}
	r, err := g.Do(t.Context(), "a", func(context.Context) ([]byte, error) { return []byte("well"), nil })
	require.NoError(t, err)
	require.Equal(t, "well", string(r.Value))
}
