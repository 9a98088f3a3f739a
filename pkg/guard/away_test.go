package guard_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/guard"
	"tidegate/pkg/redis/redismem"
)

func proxy(t testing.TB, target string) *redismem.Proxy {
	p, err := redismem.StartProxy(target)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// B0.7: a holder that dies holds the others up for its lease at most, and then
// one of them fetches.
func TestAHolderThatDies(t *testing.T) {
	cfg := config()
	cfg.TokenTimeout = 400 * time.Millisecond
	open, addr := opener(t), engine(t)
	dead := guard.NewTestStore(open(addr), cfg, "a", true, nil)
	what, _, _, err := dead.Look(t.Context(), "dead", "take")
	require.NoError(t, err)
	require.Equal(t, "LEASE", what, "the fault happened: the lease is out and nobody will publish")
	begin := time.Now()
	n := &native{}
	var all []<-chan reply
	for range 2 {
		g := start(t, cfg, open(addr))
		for range 5 {
			all = append(all, ask(t.Context(), g, "a", n))
		}
	}
	for _, c := range all {
		r := <-c
		require.NoError(t, r.err)
		require.Equal(t, "a 1", string(r.Value))
	}
	require.Equal(t, 1, n.called(), "exactly one new fetch")
	t.Logf("answered %v after the holder took a lease of %v", time.Since(begin).Round(time.Millisecond), cfg.TokenTimeout)
}

// A holder that sleeps through its lease and wakes replaces nothing newer.
func TestAHolderThatWakesLate(t *testing.T) {
	cfg := config()
	cfg.TokenTimeout = 100 * time.Millisecond
	open, addr := opener(t), engine(t)
	asleep := guard.NewTestStore(open(addr), cfg, "a", true, nil)
	_, _, fence, err := asleep.Look(t.Context(), "asleep", "take")
	require.NoError(t, err)
	n := &native{}
	g := start(t, cfg, open(addr))
	r, err := g.Do(t.Context(), "a", n.fetch("a"))
	require.NoError(t, err)
	require.Greater(t, r.Fence, fence)
	fresh, err := asleep.Publish(t.Context(), "asleep", fence, "old")
	require.NoError(t, err)
	require.False(t, fresh, "STALE")
	r, err = g.Do(t.Context(), "a", n.fetch("a"))
	require.NoError(t, err)
	require.Equal(t, "a 1", string(r.Value))
}

// F5: a publication that is refused also gives up its lease.
func TestARefusedPublicationGivesUpItsLease(t *testing.T) {
	s := guard.NewTestStore(opener(t)(engine(t)), config(), "a", true, nil)
	_, _, fence, err := s.Look(t.Context(), "first", "take")
	require.NoError(t, err)
	require.NoError(t, s.Invalidate(t.Context()))
	what, _, _, err := s.Look(t.Context(), "second", "take")
	require.NoError(t, err)
	require.Equal(t, "WAIT", what, "the back end is not asked twice at once")
	fresh, err := s.Publish(t.Context(), "first", fence, "old")
	require.NoError(t, err)
	require.False(t, fresh)
	what, _, next, err := s.Look(t.Context(), "second", "take")
	require.NoError(t, err)
	require.Equal(t, "LEASE", what, "nobody waits for the end of a lease that is no use")
	require.Greater(t, next, fence)
}

// The answer to a look was lost: the same owner finds its lease.
func TestALeaseWhoseAnswerWasLostIsFoundAgain(t *testing.T) {
	p := proxy(t, engine(t))
	s := guard.NewTestStore(opener(t)(p.Addr()), config(), "a", true, nil)
	_, _, _, err := s.Look(t.Context(), "warm", "look") // the server knows the script
	require.NoError(t, err)
	p.SwallowReplies("evalsha", 1)
	_, _, _, err = s.Look(t.Context(), "me", "take")
	require.Error(t, err)
	require.Equal(t, 1, p.Swallowed(), "the fault happened")
	what, _, fence, err := s.Look(t.Context(), "me", "take")
	require.NoError(t, err)
	require.Equal(t, "LEASE", what)
	require.Positive(t, fence)
}

// B0.9 in small: Redis hangs under load. No caller gets an error, no more fetches
// run than the gate has places, values are shared within the node, and when
// Redis is back the nodes are together again.
func TestRedisAway(t *testing.T) {
	cfg := config()
	cfg.Budget, cfg.Gate, cfg.Nodes = 100*time.Millisecond, 4, 2
	open, p := opener(t), proxy(t, engine(t))
	nodes := []*guard.Guard{start(t, cfg, open(p.Addr())), start(t, cfg, open(p.Addr()))}
	n := &native{}
	for _, g := range nodes {
		eventually(t, "the nodes are together", func() bool {
			r, err := g.Do(t.Context(), "a", n.fetch("a"))
			require.NoError(t, err)
			return g.View().Shared && r.How == guard.Hit
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	how := map[guard.How]int{}
	for i := range 8 {
		key := string(rune('b' + i%4))
		wg.Go(func() {
			for ctx.Err() == nil {
				r, err := nodes[i%2].Do(t.Context(), key, n.fetch(key))
				assert.NoError(t, err, "nobody sees that Redis is away")
				mu.Lock()
				how[r.How]++
				mu.Unlock()
			}
		})
	}
	p.Hang(true)
	eventually(t, "both nodes go on alone", func() bool { return !nodes[0].View().Shared && !nodes[1].View().Shared })
	seen := func(h guard.How, atLeast int) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return how[h] >= atLeast }
	}
	eventually(t, "values from this node alone", seen(guard.Local, 1000))
	require.Positive(t, p.Held(), "the fault happened")
	for _, g := range nodes {
		require.LessOrEqual(t, g.View().Gate, 2, "each has its share of the gate")
	}
	back := time.Now()
	p.Hang(false)
	eventually(t, "together again", func() bool { return nodes[0].View().Shared && nodes[1].View().Shared })
	t.Logf("together again %v after Redis came back", time.Since(back).Round(time.Millisecond))
	mu.Lock()
	clear(how)
	mu.Unlock()
	eventually(t, "values of the cluster", seen(guard.Hit, 100))
	stop()
	wg.Wait()
	require.LessOrEqual(t, n.peak, cfg.Gate)
}

// What this node invalidates while Redis is away, the others hear of when it is
// back, and before this node believes Redis again.
func TestInvalidationWhileRedisIsAway(t *testing.T) {
	cfg := config()
	cfg.Budget = 100 * time.Millisecond
	open, addr := opener(t), engine(t)
	p := proxy(t, addr)
	a, b := start(t, cfg, open(p.Addr())), start(t, cfg, open(addr))
	n := &native{}
	eventually(t, "both have the value", func() bool {
		ra, err := a.Do(t.Context(), "a", n.fetch("a"))
		require.NoError(t, err)
		rb, err := b.Do(t.Context(), "a", n.fetch("a"))
		require.NoError(t, err)
		return ra.How == guard.Hit && rb.How == guard.Hit
	})
	before := n.called()
	p.Hang(true)
	require.ErrorIs(t, a.Invalidate(t.Context(), "a"), guard.ErrOwed, "the other node does not know")
	require.Positive(t, p.Held(), "the fault happened")
	require.NoError(t, a.InvalidateValue(t.Context(), "a", 1), "this owes nothing")
	require.Equal(t, 1, a.View().Owed)
	r, err := a.Do(t.Context(), "a", n.fetch("a"))
	require.NoError(t, err)
	require.Equal(t, guard.Local, r.How)
	require.Equal(t, before+1, n.called(), "not the value of before")
	p.Hang(false)
	eventually(t, "the debt is paid", func() bool { return a.View().Owed == 0 })
	eventually(t, "together again", func() bool {
		_, err := a.Do(t.Context(), "x", n.fetch("x"))
		require.NoError(t, err)
		return a.View().Shared
	})
	r, err = b.Do(t.Context(), "a", n.fetch("a"))
	require.NoError(t, err)
	require.NotEqual(t, guard.Hit, r.How, "the other node fetches anew")
	require.NoError(t, a.Invalidate(t.Context(), "a"))
}

// A lease that could not be given up because Redis refused writes is given up
// when it takes them again: nobody waits for its end.
func TestALeaseIsGivenUpWhenRedisIsBack(t *testing.T) {
	server, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(server.Close)
	open := opener(t)
	a, b := start(t, config(), open(server.Addr())), start(t, config(), open(server.Addr()))
	n := &native{gate: make(chan struct{}), entered: make(chan string, 10)}
	first := ask(t.Context(), a, "a", n)
	<-n.entered
	server.Fail("MISCONF the disk is full")
	close(n.gate)
	r := <-first
	require.NoError(t, r.err)
	require.Equal(t, guard.Local, r.How, "the fault happened: the value could not be published")
	server.Fail("")
	n.gate, n.entered = nil, nil
	begin := time.Now()
	r.Result, err = b.Do(t.Context(), "a", n.fetch("a"))
	require.NoError(t, err)
	require.NotEqual(t, guard.Local, r.How)
	require.Less(t, time.Since(begin), config().TokenTimeout/2)
}

// A question for a lease that was held up on its way until nobody waits for the
// answer leaves no lease.
func TestAQuestionThatComesLateLeavesNoLease(t *testing.T) {
	now := time.UnixMicro(1_700_000_000_000_000)
	s := guard.NewTestStore(opener(t)(engine(t)), config(), "a", true, func() time.Time { return now })
	what, err := s.TakeLate(t.Context(), now)
	require.NoError(t, err)
	require.Equal(t, "WAIT", what)
	what, _, _, err = s.Look(t.Context(), "another", "take")
	require.NoError(t, err)
	require.Equal(t, "LEASE", what)
}

// A node that starts while Redis is away works at once.
func TestStartWithoutRedis(t *testing.T) {
	g := start(t, config(), opener(t)("127.0.0.1:1"))
	n := &native{}
	for range 5 {
		_, err := g.Do(t.Context(), "a", n.fetch("a"))
		require.NoError(t, err)
	}
	eventually(t, "it knows that it is alone", func() bool { return !g.View().Shared })
}
