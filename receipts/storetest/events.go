package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

func earlyEvents(t *testing.T, b *bench) {
	a := b.apply(b.queued(1), b.event(1, wire.Delivered, 1), b.event(1, wire.Delivered, 5))
	require.Equal(t, 2, a.Parked)
	waiting, _ := b.parking()
	require.EqualValues(t, 1, waiting, "the repeated event is parked once")
	require.Equal(t, wire.Queued, b.row(1).State)

	a = b.apply(b.outcome(1, wire.Accepted, 3))
	require.Equal(t, 1, a.Joined)
	require.Equal(t, wire.Delivered, b.row(1).State)
	waiting, _ = b.parking()
	require.Zero(t, waiting)

	// In one batch, the event first.
	a = b.apply(b.event(2, wire.RefusedByUser, 1), b.outcome(2, wire.Accepted, 3))
	require.Zero(t, a.Parked)
	require.Equal(t, wire.RefusedByUser, b.row(2).State)
	require.Equal(t, "said refused_by_user", b.row(2).Reason)
}

func lateEvents(t *testing.T, b *bench) {
	b.apply(b.queued(1), b.outcome(1, wire.Accepted, 2), b.queued(2), b.outcome(2, wire.Accepted, 2), b.event(2, wire.Delivered, 3))
	b.apply(b.queued(3))
	b.clock.Step(25 * time.Hour)
	for _, want := range []int{1, 0} {
		n, err := b.TimeOut(context.Background(), b.clock.Now().Add(-24*time.Hour))
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	require.Equal(t, wire.NoReceipt, b.row(1).State)
	require.Equal(t, b.at(0), b.row(1).SettledAt)
	require.Equal(t, wire.Delivered, b.row(2).State)
	require.Equal(t, wire.Queued, b.row(3).State, "only what WeChat accepted can miss a receipt")

	b.apply(b.event(1, wire.Delivered, 5))
	m := b.row(1)
	require.Equal(t, wire.Delivered, m.State, "evidence wins over its absence")
	require.Empty(t, m.Contradiction)
}

func foreignEvents(t *testing.T, b *bench) {
	b.apply(b.outcome(1, wire.Accepted, 1))
	misfits := []store.News{b.event(1, wire.Delivered, 2), b.event(1, wire.Delivered, 2), b.event(7, wire.Delivered, 2)}
	misfits[0].OpenID = openID(2)  // the msg_id of another follower's message
	misfits[1].Account = "another" // the same number at another account
	a := b.apply(misfits...)
	require.Equal(t, 3, a.Parked)
	require.Equal(t, wire.Accepted, b.row(1).State)
	require.Len(t, b.all(store.Filter{}, 10), 1, "foreign events make no rows")

	n, err := b.Disown(context.Background(), b.clock.Now().Add(-24*time.Hour))
	require.NoError(t, err)
	require.Zero(t, n)
	b.clock.Step(24*time.Hour + time.Millisecond)
	n, err = b.Disown(context.Background(), b.clock.Now().Add(-24*time.Hour))
	require.NoError(t, err)
	require.Equal(t, 3, n)
	waiting, foreign := b.parking()
	require.EqualValues(t, 0, waiting)
	require.EqualValues(t, 3, foreign)

	b.apply(b.outcome(7, wire.Accepted, 1)) // very late, but ours after all
	require.Equal(t, wire.Delivered, b.row(7).State)
	gone, err := b.PurgeParked(context.Background(), b.clock.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, 2, gone)
}

// longMsgIDs is T52: two ids that a 53-bit number cannot tell apart.
func longMsgIDs(t *testing.T, b *bench) {
	for n, text := range map[int]string{1: "9007199254740993", 2: "9007199254740992"} {
		o, e := b.outcome(n, wire.Accepted, 1), b.event(n, wire.Delivered, 2)
		o.OpenID, e.OpenID = openID(1), openID(1)
		o.MsgID, e.MsgID = text, text
		if n == 2 {
			e.State = wire.FailedByPlatform
		}
		b.apply(e)
		b.apply(o)
	}
	require.Equal(t, "9007199254740993", b.row(1).MsgID)
	require.Equal(t, wire.Delivered, b.row(1).State)
	require.Equal(t, "9007199254740992", b.row(2).MsgID)
	require.Equal(t, wire.FailedByPlatform, b.row(2).State)
}

// parallel has writers apply the shuffled news of the same messages at once.
func parallel(t *testing.T, b *bench) {
	const messages, writers = 120, 6
	var news []store.News
	for n := range messages {
		news = append(news, b.story(n)...)
	}
	var wg sync.WaitGroup
	errs := make(chan error, writers)
	for w := range writers {
		wg.Go(func() {
			// Each writer has every piece, in its own order and batch size.
			mine := shuffled(news, uint64(w))
			for len(mine) > 0 {
				k := min(len(mine), 7+13*w)
				if _, err := b.Apply(context.Background(), mine[:k]); err != nil {
					errs <- err
					return
				}
				mine = mine[k:]
			}
			errs <- nil
		})
	}
	wg.Wait()
	for range writers {
		require.NoError(t, <-errs)
	}
	for n := range messages {
		require.Equal(t, wire.Delivered, b.row(n).State)
		require.Len(t, b.steps(n), 4)
	}
	require.Len(t, b.all(store.Filter{}, 50), messages)
	waiting, foreign := b.parking()
	require.Zero(t, waiting+foreign)
}

// meeting has one writer tell msg_ids while another brings the events: they
// must meet, whoever commits last.
func meeting(t *testing.T, b *bench) {
	const messages = 100
	var wg sync.WaitGroup
	errs := make(chan error, 2*messages)
	for n := range messages {
		wg.Go(func() {
			_, err := b.Apply(context.Background(), []store.News{b.outcome(n, wire.Accepted, 1)})
			errs <- err
		})
		wg.Go(func() {
			_, err := b.Apply(context.Background(), []store.News{b.event(n, wire.Delivered, 1)})
			errs <- err
		})
	}
	wg.Wait()
	for range 2 * messages {
		require.NoError(t, <-errs)
	}
	waiting, _ := b.parking()
	require.Zero(t, waiting)
	n, err := b.Count(context.Background(), store.Filter{States: []wire.State{wire.Delivered}}, 1000)
	require.NoError(t, err)
	require.Equal(t, messages, n)
}
