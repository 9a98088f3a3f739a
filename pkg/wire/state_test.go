package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidegate/pkg/wire"
)

func TestTheTableOfD10(t *testing.T) {
	ranks := map[wire.State]int{"queued": 10, "held": 20, "sending": 30, "accepted": 40, "unknown": 50, "no_receipt": 60}
	terminal := 0
	for _, i := range wire.States() {
		if want, ok := ranks[i.State]; ok {
			require.Equal(t, want, i.Rank, i.State)
		} else {
			require.Equal(t, 70, i.Rank, i.State)
			require.True(t, i.Terminal, i.State)
		}
		if i.Terminal {
			terminal++
		}
		require.NotEmpty(t, i.Bucket)
	}
	require.Len(t, wire.States(), 16)
	require.Equal(t, 12, terminal)
}

func TestStatesNeverGoBackwards(t *testing.T) {
	all := wire.States()
	rapid.Check(t, func(t *rapid.T) {
		cur := all[rapid.IntRange(0, len(all)-1).Draw(t, "cur")].State
		next := all[rapid.IntRange(0, len(all)-1).Draw(t, "next")].State
		got, contradicts := wire.Move(cur, next)
		if got.Rank() < cur.Rank() {
			t.Fatalf("%s + %s went back to %s", cur, next, got)
		}
		if contradicts && (got != cur || cur == next) {
			t.Fatalf("%s + %s: a contradiction must keep the first", cur, next)
		}
		again, _ := wire.Move(got, next)
		if again != got {
			t.Fatalf("%s + %s twice gave %s", cur, next, again)
		}
	})
}

func TestMoves(t *testing.T) {
	for _, c := range []struct {
		cur, next, want wire.State
		contradicts     bool
	}{
		{wire.Queued, wire.Accepted, wire.Accepted, false},
		{wire.Delivered, wire.Accepted, wire.Delivered, false}, // the event came before the answer
		{wire.Unknown, wire.Delivered, wire.Delivered, false},  // evidence
		{wire.NoReceipt, wire.Delivered, wire.Delivered, false},
		{wire.Delivered, wire.FailedByPlatform, wire.Delivered, true},
		{wire.Delivered, wire.Delivered, wire.Delivered, false},
		{wire.Accepted, "a state of the next release", wire.Accepted, false},
	} {
		got, contradicts := wire.Move(c.cur, c.next)
		require.Equal(t, c.want, got, "%s + %s", c.cur, c.next)
		require.Equal(t, c.contradicts, contradicts, "%s + %s", c.cur, c.next)
	}
}

func TestTopicNames(t *testing.T) {
	tp := wire.Topics{Prefix: "tidegate"}
	require.NoError(t, tp.Validate())
	require.Equal(t, []string{"tidegate.card.callbacks", "tidegate.card.replies", "tidegate.card.pushes.realtime", "tidegate.card.pushes.bulk"}, tp.OfAccount("card"))
	require.Equal(t, []string{"tidegate.receipts", "tidegate.repeats", "tidegate.deadletters", "tidegate.control"}, tp.Shared())
	for _, n := range tp.OfAccount("card") {
		require.Equal(t, "card", tp.Account(n))
	}
	for _, n := range tp.Shared() {
		require.Empty(t, tp.Account(n))
	}
	require.Error(t, wire.Topics{Prefix: "Tide Gate"}.Validate())
	require.True(t, wire.ValidAccount("card-2"))
	for _, bad := range []string{"", "Card", "a.b", "-a", "receipts", "../x", "a_b"} {
		require.False(t, wire.ValidAccount(bad), bad)
	}
	require.True(t, wire.ValidOpenID("oZx81wQk2Lr7nVb0TtYpSdUeGhA4"))
	for _, bad := range []string{"", "../../x", "{tag}", "*", "a\r\nb"} {
		require.False(t, wire.ValidOpenID(bad), bad)
	}
}
