package guard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/guard"
)

func TestTooManyCallersAreRefused(t *testing.T) {
	cfg := config()
	cfg.MaxWaiting, cfg.Gate, cfg.Nodes = 3, 1, 1
	g := cluster(t, cfg, 1)[0]
	n := &native{gate: make(chan struct{}), entered: make(chan string, 10)}
	var waiting []<-chan reply
	for range 3 {
		waiting = append(waiting, ask(t.Context(), g, "a", n))
	}
	<-n.entered
	eventually(t, "three wait", func() bool { return g.Waiting() == 3 })
	r, err := g.Do(t.Context(), "a", n.fetch("a"))
	require.Equal(t, guard.Shed, r.How)
	require.Equal(t, fault.Limited, fault.KindOf(err))

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	r, err = g.Personal(ctx, "b", n.fetch("b"))
	require.Equal(t, guard.Shed, r.How, "no place in time")
	require.Error(t, err)
	require.Equal(t, 1, n.called())
	close(n.gate)
	for _, c := range waiting {
		require.NoError(t, (<-c).err)
	}
}

func TestResourcesAreBounded(t *testing.T) {
	cfg := config()
	cfg.MaxResources = 3
	g := cluster(t, cfg, 1)[0]
	n := &native{}
	get := func(key string) guard.How {
		r, err := g.Do(t.Context(), key, n.fetch(key))
		require.NoError(t, err)
		return r.How
	}
	for _, key := range []string{"a", "b", "c"} {
		require.Equal(t, guard.Lease, get(key))
	}
	eventually(t, "the count is known", func() bool { g.Flush(t.Context()); return g.View().Cached == 3 })
	require.Equal(t, guard.Pass, get("d"), "no room: fetched within the gate, and not kept")
	require.Equal(t, guard.Hit, get("a"))
}

func TestACallerThatLeavesHoldsNobodyUp(t *testing.T) {
	g := cluster(t, config(), 1)[0]
	n := &native{gate: make(chan struct{}), entered: make(chan string, 10)}
	ctx, leave := context.WithCancel(t.Context())
	first := ask(ctx, g, "a", n)
	<-n.entered
	second := ask(t.Context(), g, "a", n)
	eventually(t, "two wait", func() bool { return g.Waiting() == 2 })
	leave()
	require.ErrorIs(t, (<-first).err, context.Canceled)
	close(n.gate)
	r := <-second
	require.NoError(t, r.err)
	require.Equal(t, "a 1", string(r.Value), "the fetch of the first went on")
}

func TestCloseEndsEverything(t *testing.T) {
	g, err := guard.New(config(), guard.Deps{Redis: opener(t)(engine(t))})
	require.NoError(t, err)
	n := &native{gate: make(chan struct{}), entered: make(chan string, 10)}
	waiting := ask(t.Context(), g, "a", n)
	<-n.entered
	g.Close()
	require.Error(t, (<-waiting).err)
	r, err := g.Do(t.Context(), "a", n.fetch("a"))
	require.Equal(t, guard.Shed, r.How)
	require.ErrorContains(t, err, "closed")
	g.Close()
}

func TestWrongSettingsAndKeysAreRefused(t *testing.T) {
	var bad guard.Config
	err := bad.Validate()
	for _, field := range []string{"backend", "window", "exit_ratio", "ttl_start", "ttl:", "token_timeout", "wait_max", "gate", "nodes", "max_waiting", "break_after", "max_resources", "max_value", "budget"} {
		require.ErrorContains(t, err, field)
	}
	_, err = guard.New(bad, guard.Deps{})
	require.Equal(t, fault.Invalid, fault.KindOf(err))
	cfg := config()
	cfg.CachePersonal = true
	require.ErrorContains(t, cfg.Validate(), "key")
	g := start(t, config(), nil)
	for _, key := range []string{"", strings.Repeat("k", guard.MaxKey+1)} {
		_, err := g.Do(t.Context(), key, (&native{}).fetch("x"))
		require.Equal(t, fault.Invalid, fault.KindOf(err))
		require.Equal(t, fault.Invalid, fault.KindOf(g.Invalidate(t.Context(), key)))
	}
}
