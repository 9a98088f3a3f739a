package guard_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/guard"
)

// personal keeps personal values.
func personal() guard.Config {
	c := config()
	c.CachePersonal, c.Key = true, base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	return c
}

func keeps(t *testing.T, g *guard.Guard, key string) bool {
	t.Helper()
	there, err := g.Keeps(t.Context(), key)
	require.NoError(t, err)
	return there
}

func get(t *testing.T, g *guard.Guard, key string, fetch guard.Fetch) guard.Result {
	t.Helper()
	r, err := g.Personal(t.Context(), key, fetch)
	require.NoError(t, err)
	return r
}

// D16: what is kept of one person goes on request, all of it and only his, on all
// nodes, and Redis has nothing of it any more.
func TestErasureOfAPerson(t *testing.T) {
	nodes := cluster(t, personal(), 2)
	a, b, n := nodes[0], nodes[1], &native{}
	bill, de, other := guard.OfPerson("card/o1", "bill"), guard.Variant(guard.OfPerson("card/o1", "points"), "de"), guard.OfPerson("card/o11", "bill")
	for _, key := range []string{bill, de, other} {
		require.Equal(t, guard.Lease, get(t, a, key, n.fetch("x")).How)
		require.Equal(t, guard.Hit, get(t, b, key, n.fetch("x")).How)
		require.True(t, keeps(t, b, key))
	}
	places, err := b.Erase(t.Context(), "card/o1")
	require.NoError(t, err)
	require.Equal(t, 2, places)
	for key, stays := range map[string]bool{bill: false, de: false, other: true} {
		require.Equal(t, stays, keeps(t, a, key))
	}
	require.Equal(t, guard.Hit, get(t, a, other, n.fetch("x")).How)
	require.Equal(t, guard.Lease, get(t, a, bill, n.fetch("x")).How)
	require.True(t, keeps(t, a, bill), "what is fetched afterwards is kept again")
	_, err = b.Erase(t.Context(), "card/o1")
	require.NoError(t, err)
	require.False(t, keeps(t, a, bill), "and erased again")
	places, err = b.Erase(t.Context(), "card/o2")
	require.NoError(t, err)
	require.Zero(t, places)
}

// A value that was being fetched when the person was erased is kept nowhere.
func TestErasureWhileAValueIsFetched(t *testing.T) {
	key := guard.OfPerson("card/o1", "bill")
	erasing := func(g *guard.Guard, n *native) guard.Fetch {
		return func(ctx context.Context) ([]byte, error) {
			if n.called() == 0 {
				_, err := g.Erase(context.WithoutCancel(ctx), "card/o1")
				require.NoError(t, err)
			}
			return n.fetch("x")(ctx)
		}
	}
	t.Run("under a lease", func(t *testing.T) {
		nodes, n := cluster(t, personal(), 2), &native{}
		r := get(t, nodes[0], key, erasing(nodes[1], n))
		require.Equal(t, "x 2", string(r.Value), "the first is refused, and nobody gets it")
	})
	t.Run("below the threshold", func(t *testing.T) {
		open, addr := opener(t), engine(t)
		calm := personal()
		calm.Threshold = 1000
		a, b, n := start(t, calm, open(addr)), start(t, personal(), open(addr)), &native{}
		a.Flush(t.Context()) // it must know the time to keep anything
		require.Equal(t, guard.Pass, get(t, a, key, erasing(b, n)).How)
		a.Flush(t.Context())
		require.False(t, keeps(t, b, key))
		require.Equal(t, guard.Pass, get(t, a, key, n.fetch("x")).How)
		a.Flush(t.Context())
		require.True(t, keeps(t, b, key), "what is fetched afterwards is kept")
		_, err := b.Erase(t.Context(), "card/o1")
		require.NoError(t, err)
		require.False(t, keeps(t, b, key), "and found")
	})
}

// What is kept of one person is bounded, so that an erasure is short.
func TestPlacesOfAPersonAreBounded(t *testing.T) {
	g, n := cluster(t, personal(), 1)[0], &native{}
	key := func(i int) string { return guard.OfPerson("card/o1", fmt.Sprint(i)) }
	for i := range guard.MaxOfPerson {
		require.Equal(t, guard.Lease, get(t, g, key(i), n.fetch("x")).How)
	}
	require.Equal(t, guard.Pass, get(t, g, key(guard.MaxOfPerson), n.fetch("x")).How, "one more is not kept")
	require.False(t, keeps(t, g, key(guard.MaxOfPerson)))
	places, err := g.Erase(t.Context(), "card/o1")
	require.NoError(t, err)
	require.Equal(t, guard.MaxOfPerson, places)
	require.False(t, keeps(t, g, key(0)))
}

// An erasure that Redis did not hear of is none, and says so.
func TestErasureWhileRedisIsAway(t *testing.T) {
	cfg := personal()
	cfg.Budget = 100 * time.Millisecond
	open, p := opener(t), proxy(t, engine(t))
	g, n, key := start(t, cfg, open(p.Addr())), &native{}, guard.OfPerson("card/o1", "bill")
	eventually(t, "the value is kept", func() bool { return get(t, g, key, n.fetch("x")).How == guard.Hit })
	p.Hang(true)
	_, err := g.Erase(t.Context(), "card/o1")
	require.Equal(t, fault.Unavailable, fault.KindOf(err), "%v", err)
	require.Positive(t, p.Held(), "the fault happened")
	eventually(t, "the node goes on alone", func() bool { return get(t, g, key, n.fetch("x")).How == guard.Local })
	calls := n.called()
	_, err = g.Erase(t.Context(), "card/o1")
	require.ErrorContains(t, err, "try again")
	require.Equal(t, guard.Local, get(t, g, key, n.fetch("x")).How)
	require.Equal(t, calls+1, n.called(), "the node itself has forgotten")
	p.Hang(false)
	eventually(t, "the erasure goes through", func() bool { _, err := g.Erase(t.Context(), "card/o1"); return err == nil })
	require.False(t, keeps(t, g, key))
}
