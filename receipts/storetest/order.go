package storetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

// story is what a push that goes well brings, in the order of time.
func (b *bench) story(n int) []store.News {
	return []store.News{b.queued(n), b.outcome(n, wire.Sending, 1), b.outcome(n, wire.Accepted, 2), b.event(n, wire.Delivered, 3)}
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{{}}
	}
	var out [][]int
	for _, p := range permutations(n - 1) {
		for i := 0; i <= len(p); i++ {
			q := append(append(append([]int{}, p[:i]...), n-1), p[i:]...)
			out = append(out, q)
		}
	}
	return out
}

// essence strips what says when rows were written rather than what they
// mean.
func essence(m *store.Message) store.Message {
	c := *m
	c.ID, c.IdentityHash, c.OpenID, c.MsgID, c.Reference, c.At, c.UpdatedAt = "", "", "", "", "", 0, 0
	return c
}

func anyOrder(t *testing.T, b *bench) {
	orders := permutations(4)
	require.Len(t, orders, 24)
	var want store.Message
	var wantSteps []store.Step
	for i, order := range orders {
		one, batch := 2*i, 2*i+1
		var news []store.News
		for _, k := range order {
			b.apply(b.story(one)[k])
			news = append(news, b.story(batch)[k])
		}
		b.apply(news...)
		for _, n := range []int{one, batch} {
			got, steps := essence(b.row(n)), b.steps(n)
			if i == 0 && n == one {
				want, wantSteps = got, steps
				require.Equal(t, wire.Delivered, got.State)
				require.Equal(t, []int64{b.at(0), b.at(2), b.at(3)}, []int64{got.QueuedAt, got.AcceptedAt, got.SettledAt})
				require.Equal(t, "said delivered", got.Reason)
				require.Len(t, steps, 4)
				require.Equal(t, []wire.State{wire.Queued, wire.Sending, wire.Accepted, wire.Delivered},
					[]wire.State{steps[0].State, steps[1].State, steps[2].State, steps[3].State})
			}
			require.Equal(t, want, got, "order %v", order)
			require.Equal(t, wantSteps, steps, "order %v", order)
			require.Equal(t, openID(n), b.row(n).OpenID)
		}
	}
	waiting, foreign := b.parking()
	require.Zero(t, waiting+foreign)
}

// randomNews checks against the pure table: whatever comes, the row is where
// folding wire.Move over the arrivals ends, and it never goes back.
func randomNews(t *testing.T, b *bench) {
	states := wire.States()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		picks := rapid.SliceOfN(rapid.IntRange(0, len(states)-1), 1, 12).Draw(rt, "states")
		var model wire.State
		flagged := false
		for k, p := range picks {
			next, contradicts := wire.Move(model, states[p].State)
			if next.Rank() < model.Rank() {
				rt.Fatalf("the table goes back: %s to %s", model, next)
			}
			model, flagged = next, flagged || contradicts
			b.apply(b.outcome(n, states[p].State, k))
			m := b.row(n)
			if m.State != model || (m.Contradiction != "") != flagged {
				rt.Fatalf("row is %s (contradiction %q), the table says %s (%v)", m.State, m.Contradiction, model, flagged)
			}
		}
	})
}

func repeats(t *testing.T, b *bench) {
	for n := range 20 {
		b.apply(b.story(n)...)
	}
	before, steps := b.all(store.Filter{}, 100), b.steps(3)
	b.clock.Step(0)
	for n := range 20 {
		for seed := range uint64(3) {
			a := b.apply(shuffled(append(b.story(n), b.story(n)...), seed)...)
			require.Zero(t, a.New+a.Moved+a.Parked+a.Contradictions)
			require.Equal(t, 8, a.Same)
		}
		late := b.event(n, wire.Delivered, 99) // WeChat says it again, later
		b.apply(late)
	}
	require.Equal(t, before, b.all(store.Filter{}, 100))
	require.Equal(t, steps, b.steps(3))
	waiting, _ := b.parking()
	require.Zero(t, waiting)
}

func contradictions(t *testing.T, b *bench) {
	b.apply(b.queued(1), b.outcome(1, wire.Accepted, 1), b.event(1, wire.Delivered, 2))
	a := b.apply(b.event(1, wire.RefusedByUser, 3))
	require.Equal(t, 1, a.Contradictions)
	m := b.row(1)
	require.Equal(t, wire.Delivered, m.State, "the first end stays")
	require.Equal(t, string(wire.RefusedByUser), m.Contradiction)
	require.Equal(t, "said delivered", m.Reason)
	require.Len(t, b.steps(1), 4, "the story has both")

	b.apply(b.outcome(1, wire.Sending, 9)) // a late "sent" does not overwrite (T53)
	require.Equal(t, wire.Delivered, b.row(1).State)
}

func variants(t *testing.T, b *bench) {
	one := b.outcome(1, wire.Accepted, 1)
	two := one
	two.IdentityHash, two.State, two.MsgID = "ff00", wire.Rejected, ""
	a := b.apply(one, two)
	require.Equal(t, 2, a.New)
	ms, err := b.Get(context.Background(), one.ID)
	require.NoError(t, err)
	require.Len(t, ms, 2)
	require.Equal(t, []wire.State{wire.Accepted, wire.Rejected}, []wire.State{ms[0].State, ms[1].State})
	require.Equal(t, one.IdentityHash, ms[0].IdentityHash)
	require.Equal(t, "ff00", ms[1].IdentityHash)

	b.apply(b.event(1, wire.Delivered, 2), two)
	three := two
	three.IdentityHash = "ff01"
	b.apply(three)
	ms, err = b.Get(context.Background(), one.ID)
	require.NoError(t, err)
	require.Len(t, ms, 3)
	require.Equal(t, wire.Delivered, ms[0].State)
	require.Equal(t, wire.Rejected, ms[1].State)
	st, err := b.Steps(context.Background(), one.ID, 1)
	require.NoError(t, err)
	require.Len(t, st, 1)
}

func hashless(t *testing.T, b *bench) {
	bare := b.outcome(1, wire.Sending, 1)
	bare.IdentityHash = ""
	b.apply(bare)
	require.Empty(t, b.row(1).IdentityHash)
	b.apply(b.outcome(1, wire.Accepted, 2)) // the row takes the hash
	_, h := id(1)
	require.Equal(t, h, b.row(1).IdentityHash)
	bare.State = wire.Delivered
	b.apply(bare) // and news without one still finds it
	require.Equal(t, wire.Delivered, b.row(1).State)
}
