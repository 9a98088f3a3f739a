package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

func pages(t *testing.T, b *bench) {
	for n := range 50 {
		o := b.outcome(n, wire.Accepted, n/5) // five share each time
		b.apply(o)
	}
	want := b.all(store.Filter{}, store.MaxPage)
	require.Len(t, want, 50)
	var got []*store.Message
	var after *store.Mark
	for page := 0; ; page++ {
		ms, err := b.List(context.Background(), store.Filter{}, after, 7)
		require.NoError(t, err)
		for _, m := range ms {
			if m.Attempts == 1 {
				got = append(got, m)
			}
		}
		if len(ms) < 7 {
			break
		}
		m := ms[len(ms)-1].Mark()
		after = &m
		// Meanwhile new ones come, at the head and in the middle, and one that
		// was read already changes.
		head, middle := b.outcome(1000+page, wire.Accepted, 100), b.outcome(2000+page, wire.Accepted, 4)
		head.Attempt, middle.Attempt = 2, 2
		b.apply(head, middle, b.event(49, wire.Delivered, 0))
	}
	require.Len(t, got, 50)
	for i := range want {
		require.Equal(t, want[i].ID, got[i].ID)
	}
}

func filters(t *testing.T, b *bench) {
	reply := b.receipt(wire.Receipt{Source: wire.FromSender, MessageKind: wire.KindReply, ID: mustID(100), Account: "bank", OpenID: openID(1),
		CallbackID: mustID(101), Lane: wire.LaneReplies, State: wire.Accepted, PossibleDuplicate: true, At: b.at(50)})
	other := b.outcome(3, wire.Rejected, 60)
	other.Account, other.App, other.Template, other.ErrCode, other.ResendOf = "shop", "till", "tpl-2", 40037, mustID(1)
	b.apply(b.queued(1), b.outcome(1, wire.Accepted, 1), b.queued(2), b.event(1, wire.Delivered, 1), reply, other)
	after := func(k int) time.Time { return time.UnixMilli(b.at(k)) }
	for _, c := range []struct {
		f    store.Filter
		want []string
	}{
		{store.Filter{}, []string{mustID(3), mustID(100), mustID(2), mustID(1)}},
		{store.Filter{IDs: []string{mustID(2)}}, []string{mustID(2)}},
		{store.Filter{OpenID: openID(1)}, []string{mustID(100), mustID(1)}},
		{store.Filter{App: "till"}, []string{mustID(3)}},
		{store.Filter{Accounts: []string{"shop"}}, []string{mustID(3)}},
		{store.Filter{Accounts: []string{"shop", "bank"}, Kinds: []wire.Kind{wire.KindReply}}, []string{mustID(100)}},
		{store.Filter{Reference: "ref-2"}, []string{mustID(2)}},
		{store.Filter{Template: "tpl-2"}, []string{mustID(3)}},
		{store.Filter{CallbackID: mustID(101)}, []string{mustID(100)}},
		{store.Filter{ResendOf: mustID(1)}, []string{mustID(3)}},
		{store.Filter{States: []wire.State{wire.Delivered, wire.Rejected}}, []string{mustID(3), mustID(1)}},
		{store.Filter{ErrCode: 40037}, []string{mustID(3)}},
		{store.Filter{From: after(50)}, []string{mustID(3), mustID(100)}},
		{store.Filter{To: after(50)}, []string{mustID(2), mustID(1)}},
		{store.Filter{From: after(50), To: after(60)}, []string{mustID(100)}},
		{store.Filter{Failed: true}, []string{mustID(3)}},
		{store.Filter{Duplicate: true}, []string{mustID(100)}},
		{store.Filter{IDs: []string{mustID(1), mustID(3), mustID(77)}}, []string{mustID(3), mustID(1)}},
		{store.Filter{Reference: "' OR 1=1 --"}, nil},
		{store.Filter{OpenID: "%"}, nil},
	} {
		var got []string
		for _, m := range b.all(c.f, 3) {
			got = append(got, m.ID)
		}
		require.ElementsMatch(t, c.want, got, "%+v", c.f)
		n, err := b.Count(context.Background(), c.f, 100)
		require.NoError(t, err)
		require.Len(t, c.want, n)
	}
	n, err := b.Count(context.Background(), store.Filter{}, 2)
	require.NoError(t, err)
	require.Equal(t, 2, n, "counting ends at its limit")
	_, err = b.Get(context.Background(), mustID(999))
	require.Equal(t, fault.NotFound, fault.KindOf(err))
}

func mustID(n int) string { i, _ := id(n); return i }

func failures(t *testing.T, b *bench) {
	var news []store.News
	for n := range 10 {
		r := b.outcome(n, wire.Rejected, n)
		r.ErrCode, r.Reason = 40037, fmt.Sprintf("invalid template_id rid: %d", n)
		news = append(news, r)
	}
	for n := 10; n < 14; n++ {
		news = append(news, b.outcome(n, wire.Accepted, n), b.event(n, wire.RefusedByUser, n))
	}
	news = append(news, b.outcome(20, wire.Accepted, 1), b.event(20, wire.Delivered, 1))
	dead := b.outcome(21, wire.Dead, 1)
	dead.Account = "shop"
	b.apply(append(news, dead)...)

	fs, err := b.Failures(context.Background(), store.Filter{})
	require.NoError(t, err)
	require.Len(t, fs, 3)
	require.EqualValues(t, 10, fs[0].Count)
	require.Equal(t, 40037, fs[0].ErrCode)
	require.Equal(t, b.at(0), fs[0].First)
	require.Equal(t, b.at(9), fs[0].Last)
	require.EqualValues(t, 4, fs[1].Count)
	require.Equal(t, "said refused_by_user", fs[1].Reason)
	require.Equal(t, "tpl-1", fs[1].Template)
	fs, err = b.Failures(context.Background(), store.Filter{Accounts: []string{"shop"}})
	require.NoError(t, err)
	require.Len(t, fs, 1)
}

func purge(t *testing.T, b *bench) {
	for n := range 30 {
		b.apply(b.story(n)...)
	}
	b.apply(b.receipt(wire.Receipt{Source: wire.FromRobot, MessageKind: wire.KindCallback, ID: mustID(500), Account: "bank", State: wire.Answered, At: b.at(0)}))
	two := b.outcome(3, wire.Rejected, 1)
	two.IdentityHash = "ff"
	b.apply(two)
	b.clock.Step(48 * time.Hour)
	for n := 100; n < 110; n++ {
		b.apply(b.story(n)...)
	}
	gone, err := b.Purge(context.Background(), []wire.Kind{wire.KindPush}, b.clock.Now())
	require.NoError(t, err)
	require.Equal(t, 31, gone)
	require.Len(t, b.all(store.Filter{}, 100), 11)
	require.Empty(t, b.steps(3))
	_, err = b.Letter(context.Background(), mustID(3), 0)
	require.Equal(t, fault.NotFound, fault.KindOf(err))
	b.checkTallies()
	today, err := b.Tallies(context.Background(), b.clock.Now(), time.Time{})
	require.NoError(t, err)
	require.Equal(t, []store.Tally{{Account: "bank", Kind: wire.KindPush, State: wire.Delivered, N: 10}}, today)
}

func letters(t *testing.T, b *bench) {
	b.apply(b.outcome(1, wire.Accepted, 1))
	_, err := b.Letter(context.Background(), mustID(1), 0)
	require.Equal(t, fault.NotFound, fault.KindOf(err))
	b.apply(b.queued(1))
	got, err := b.Letter(context.Background(), mustID(1), 0)
	require.NoError(t, err)
	want := b.push(1)
	_, letter, _, err := wire.Encode(&want)
	require.NoError(t, err)
	require.Equal(t, letter, got)
}

func resends(t *testing.T, b *bench) {
	ctx := context.Background()
	b.apply(b.outcome(1, wire.Dead, 1), b.outcome(2, wire.Dead, 1), b.outcome(3, wire.Dead, 1))
	j := store.ResendJob{Request: "req", App: "card", By: "k", Filter: store.Filter{States: []wire.State{wire.Dead}}, Counted: 3, Rate: 10}
	for range 2 { // a double click
		got, err := b.StartResend(ctx, j)
		require.NoError(t, err)
		require.Equal(t, store.ResendRunning, got.State)
	}
	held, err := b.ClaimResend(ctx, time.Minute)
	require.NoError(t, err)
	none, err := b.ClaimResend(ctx, time.Minute)
	require.NoError(t, err)
	require.Nil(t, none, "one node has it")
	behind := &store.Mark{At: 5, ID: "x"}
	require.NoError(t, b.TakeFlight(ctx, held, []store.ResendMark{{OldID: mustID(2), NewID: mustID(12)}, {OldID: mustID(1), NewID: mustID(11)}}, behind))
	require.Equal(t, mustID(11), b.row(1).ResentAs)
	require.Len(t, b.all(store.Filter{NotResent: true}, 10), 1)

	b.clock.Step(time.Minute) // the holder died
	next, err := b.ClaimResend(ctx, time.Minute)
	require.NoError(t, err)
	require.Len(t, next.Flight, 2, "what was under way is known")
	require.Equal(t, behind, next.Mark)
	require.ErrorIs(t, b.EndFlight(ctx, held, 0), store.ErrLost, "the dead one is not dead, and has no say")
	require.NoError(t, b.EndFlight(ctx, next, b.clock.Now().UnixMilli()))
	next, err = b.ClaimResend(ctx, time.Minute)
	require.NoError(t, err)
	require.Equal(t, 2, next.Sent)
	require.NoError(t, b.TakeFlight(ctx, next, []store.ResendMark{{OldID: mustID(1), NewID: mustID(21)}}, behind), "somebody was faster")
	require.Empty(t, next.Flight)
	require.Equal(t, map[string]int{"resent_already": 1}, next.Skipped)
	require.Equal(t, mustID(11), b.row(1).ResentAs)
	require.NoError(t, b.FinishResend(ctx, next))
	done, err := b.ResendOf(ctx, "req")
	require.NoError(t, err)
	require.Equal(t, store.ResendFinished, done.State)

	j.Request, j.Again, j.CountedAt = "again", true, done.BegunAt
	_, err = b.StartResend(ctx, j)
	require.Equal(t, fault.Conflict, fault.KindOf(err), "something was re-sent since it was counted")
	j.CountedAt++
	b.clock.Step(time.Second)
	_, err = b.StartResend(ctx, j)
	require.NoError(t, err)
	stopped, err := b.CancelResend(ctx, "again")
	require.NoError(t, err)
	require.True(t, stopped)
	none, err = b.ClaimResend(ctx, time.Minute)
	require.NoError(t, err)
	require.Nil(t, none)
	b.apply(b.outcome(1, wire.Delivered, 5)) // news does not undo the mark
	require.Equal(t, mustID(11), b.row(1).ResentAs)
}
