package token_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/sender/token"
)

func numberOf(t *testing.T, tok token.Token) (n int) {
	t.Helper()
	_, err := fmt.Sscanf(tok.Value, "token-%d-", &n)
	require.NoError(t, err)
	return n
}

// wipe has Redis lose its data.
func wipe(t *testing.T, r *server) {
	t.Helper()
	c, err := net.Dial("tcp", r.mem.Addr())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("*1\r\n$8\r\nFLUSHALL\r\n"))
	require.NoError(t, err)
	ok := make([]byte, 5)
	_, err = io.ReadFull(c, ok)
	require.NoError(t, err)
	require.Equal(t, "+OK\r\n", string(ok))
}

// G13: whoever asks the nodes in any order never gets an older token after a newer
// one, through renewals, invalidations by others, and a Redis that lost its data.
func TestG13LatestNeverGoesBack(t *testing.T) {
	c := newClock()
	p := &platform{clock: c}
	r := startRedis(t, true)
	nodes := make([]node, 4)
	for i := range nodes {
		nodes[i] = newNode(t, p, r)
	}
	rng := rand.New(rand.NewPCG(13, 0))
	newest, wipes, given, kinds := 0, 0, 0, map[int]bool{}
	for i := range 600 {
		n := nodes[rng.IntN(len(nodes))]
		switch rng.IntN(12) {
		case 0:
			c.Add(time.Duration(rng.IntN(40)) * time.Minute)
		case 1:
			c.Add(31 * time.Second)
			p.invalidate()
			require.NoError(t, send(t.Context(), p, n))
		case 2:
			_ = send(t.Context(), p, n) // keeps memories at different tokens
		case 3:
			if i%3 == 0 {
				wipe(t, r)
				wipes++
			}
		}
		tok, err := nodes[rng.IntN(len(nodes))].Latest(t.Context(), "shop")
		if fault.KindOf(err) == fault.Limited {
			continue // renewed a moment ago: nobody gets any, rather than an old one
		}
		require.NoError(t, err)
		given++
		got := numberOf(t, tok)
		require.GreaterOrEqual(t, got, newest, "step %d", i)
		require.True(t, tok.ExpiresAt.After(c.Now()))
		newest = got
		kinds[got] = true
	}
	require.Positive(t, wipes)
	require.Greater(t, given, 400)
	require.Greater(t, len(kinds), 20, "the token must have changed often")
	_, forced := p.calls()
	require.Zero(t, forced)
}

// While Redis is away nobody can tell which token is the newest.
func TestLatestSaysNothingItCannotKnow(t *testing.T) {
	c := newClock()
	p := &platform{clock: c}
	r := startRedis(t, true)
	n := newNode(t, p, r)
	_, err := n.Latest(t.Context(), "shop")
	require.NoError(t, err)
	_, err = n.Latest(t.Context(), "nobody")
	require.Equal(t, fault.NotFound, fault.KindOf(err))
	r.mem.Close()
	_, err = n.Latest(t.Context(), "shop")
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	_, err = n.Token(t.Context(), "shop")
	require.NoError(t, err, "our own sends go on from memory")
}
