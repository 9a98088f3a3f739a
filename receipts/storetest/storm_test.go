package storetest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/idgen"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

const (
	stormWriters = 4      // partitions that are written at once
	stormWindow  = 10_000 // so far news is out of order
	stormApps    = 50
)

// storm is what a mass push brings, in disorder: for each message the sender's
// outcome and WeChat's event, of which every twentieth piece comes twice.
type storm struct {
	messages int
	base     time.Time // of the first birth
}

func (s storm) born(i int) int64 {
	return s.base.Add(time.Duration(i) * 6 * time.Hour / time.Duration(s.messages)).UnixMilli()
}
func (s storm) openid(i int) string { return fmt.Sprintf("oStorm-%08d", i%(s.messages/4+1)) }
func (s storm) app(i int) string    { return "app-" + strconv.Itoa(i*7919%stormApps) }

// refused tells whether the follower refused the i-th message.
func (s storm) refused(i int) bool { return i%33 == 0 }

func (s storm) news(t testing.TB, i int, event bool) store.News {
	h := idgen.HashOf("storm", strconv.Itoa(i))
	r := wire.Receipt{Source: wire.FromSender, MessageKind: wire.KindPush, Account: "bank", OpenID: s.openid(i), MsgID: strconv.Itoa(3_000_000_000 + i), At: s.born(i) + 200}
	if event {
		r.Source, r.State, r.Event, r.Reason, r.At = wire.FromWeChat, wire.Delivered, "TEMPLATESENDJOBFINISH", "success", s.born(i)+900
		if s.refused(i) {
			r.State, r.Reason = wire.RefusedByUser, "failed:user block"
		}
	} else {
		r.ID, r.IdentityHash, r.App, r.Lane, r.TemplateID = idgen.Derive(idgen.User("wx", r.OpenID), h), h.String(), s.app(i), wire.LaneBulk, "tpl-"+strconv.Itoa(i%5)
		r.Reference, r.State, r.Attempt, r.BornAt = "bill "+strconv.Itoa(i), wire.Accepted, 1, s.born(i)
	}
	n, err := store.FromReceipt(&r, s.base.Add(12*time.Hour))
	require.NoError(t, err)
	return n
}

// pour gives the news of every stormWriters-th message to apply, out of order
// within a window that slides by half of its length. It tells how many pieces.
func (s storm) pour(t testing.TB, writer int, apply func([]store.News)) int {
	rng := rand.New(rand.NewPCG(uint64(writer), 1))
	var window []store.News
	total := 0
	shuffle := func() {
		rng.Shuffle(len(window), func(a, b int) { window[a], window[b] = window[b], window[a] })
	}
	take := func(n int) {
		for n > 0 && len(window) > 0 {
			k := min(n, store.MaxBatch, len(window))
			apply(window[:k])
			total += k
			window, n = window[k:], n-k
		}
	}
	for i := writer; i < s.messages; i += stormWriters {
		for _, event := range []bool{false, true} {
			n := s.news(t, i, event)
			window = append(window, n)
			if rng.IntN(20) == 0 {
				window = append(window, n)
			}
		}
		if len(window) >= stormWindow {
			shuffle()
			take(stormWindow / 2)
		}
	}
	shuffle()
	take(len(window))
	return total
}

// load applies the storm and tells how many pieces it had and how long it took.
func (s storm) load(t testing.TB, st store.Store) (int, time.Duration) {
	var wg sync.WaitGroup
	counts, errs := make([]int, stormWriters), make([]error, stormWriters)
	began := time.Now()
	for w := range stormWriters {
		wg.Go(func() {
			counts[w] = s.pour(t, w, func(news []store.News) {
				if _, err := st.Apply(context.Background(), news); err != nil {
					errs[w] = err
				}
			})
		})
	}
	wg.Wait()
	took, total := time.Since(began), 0
	for w := range stormWriters {
		require.NoError(t, errs[w])
		total += counts[w]
	}
	return total, took
}

// check asks whether every row is right, as far as sums, counts and samples tell.
func (s storm) check(t *testing.T, st store.Store) {
	ctx := t.Context()
	refused := (s.messages + 32) / 33
	ts, err := st.Tallies(ctx, time.Time{}, time.Time{})
	require.NoError(t, err)
	require.ElementsMatch(t, []store.Tally{{Account: "bank", Kind: wire.KindPush, State: wire.Delivered, N: int64(s.messages - refused)},
		{Account: "bank", Kind: wire.KindPush, State: wire.RefusedByUser, N: int64(refused)}}, ts)
	again, err := st.Recount(ctx, false)
	require.NoError(t, err)
	require.EqualValues(t, s.messages, again.Rows)
	require.Zero(t, again.Wrong, "%v", again.Deviations)
	waiting, foreign, err := st.Parking(ctx)
	require.NoError(t, err)
	require.Zero(t, waiting+foreign, "every event has met its message")
	for i := 0; i < s.messages; i += max(s.messages/500, 1) {
		want := s.news(t, i, false)
		ms, err := st.Get(ctx, want.ID)
		require.NoError(t, err)
		require.Len(t, ms, 1)
		event := s.news(t, i, true)
		m := ms[0]
		require.Equal(t, []string{string(event.State), event.Reason, want.Reference, want.App, want.MsgID}, []string{string(m.State), m.Reason, m.Reference, m.App, m.MsgID})
		require.Equal(t, []int64{s.born(i), want.At, event.At}, []int64{m.At, m.AcceptedAt, m.SettledAt})
		require.Empty(t, m.Contradiction)
		steps, err := st.Steps(ctx, m.ID, 0)
		require.NoError(t, err)
		require.Len(t, steps, 2)
	}
}

// TestG20StormOfReceipts is the short form of the bar, by counts: events before
// answers, twice and out of order, and every one is joined to its row.
func TestG20StormOfReceipts(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	s := storm{messages: 1500, base: now.Add(-6 * time.Hour)}
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		st, err := store.Open(t.Context(), db, func() time.Time { return now })
		require.NoError(t, err)
		total, _ := s.load(t, st)
		require.Greater(t, total, 2*s.messages*103/100, "about every twentieth comes twice")
		s.check(t, st)
		seen := map[string]bool{} // more rows than Each holds at once
		last := now.UnixMilli()
		require.NoError(t, st.Each(t.Context(), store.Filter{}, func(m *store.Message) error {
			require.False(t, seen[m.ID], "no row comes twice")
			require.LessOrEqual(t, m.At, last, "newest first")
			seen[m.ID], last = true, m.At
			return nil
		}))
		require.Len(t, seen, s.messages)
	})
}
