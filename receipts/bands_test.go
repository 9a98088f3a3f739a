package receipts_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/idgen"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
	"tidegate/receipts"
	"tidegate/receipts/store"
)

// hourOf makes messages that were born in the hour so many hours ago: n of them, the
// first bad ones in a state, the others delivered.
func (w *world) hourOf(ago, n, bad int, state wire.State, errcode int) {
	w.Helper()
	born := w.clock.now().Truncate(time.Hour).Add(-time.Duration(ago) * time.Hour).UnixMilli()
	news := make([]store.News, n)
	for i := range news {
		r := &wire.Receipt{Source: wire.FromSender, MessageKind: wire.KindPush, Account: "bank", OpenID: openID(i), App: "card", State: wire.Delivered, BornAt: born, At: born}
		if i < bad {
			r.State, r.ErrCode, r.Reason = state, errcode, "said "+string(state)
		}
		h := idgen.HashOf("band", string(state), time.UnixMilli(born).String(), openID(i))
		r.ID, r.IdentityHash = idgen.Derive(idgen.User("wx1", r.OpenID), h), h.String()
		one, err := store.FromReceipt(r, w.clock.now())
		require.NoError(w, err)
		news[i] = one
	}
	_, err := w.room.Store().Apply(w.Context(), news)
	require.NoError(w, err)
}

func (w *world) firing() map[string]bool {
	out := map[string]bool{}
	for _, t := range w.alarms.all() {
		out[t.Name+" "+t.Subject] = t.Firing
	}
	return out
}

func TestSharesThatLeaveTheirBandAreTold(t *testing.T) {
	each(t, func(w *world) {
		for ago := 2; ago < 32; ago++ {
			w.hourOf(ago, 40, 1+ago%2, wire.Rejected, 40037) // 2.5 to 5 per cent are usual
		}
		w.hourOf(1, 40, 3, wire.Rejected, 40037) // more than ever, and still noise
		w.room.LookAtBands(w.Context())
		require.Empty(w, w.firing())

		w.hourOf(0, 100, 30, wire.Rejected, 47003)
		w.room.LookAtBands(w.Context())
		require.Equal(w, map[string]bool{"push_failures bank": true, "push_failure_reason bank rejected 47003": true}, w.firing())
		require.Contains(w, w.alarms.all()[0].Text, "30.0 % (30 of 100)")
		w.room.LookAtBands(w.Context())
		require.Len(w, w.alarms.all(), 2, "a condition that lasts is told once")

		w.clock.step(3 * time.Hour)
		w.hourOf(0, 100, 1, wire.Rejected, 47003)
		w.room.LookAtBands(w.Context())
		require.Equal(w, map[string]bool{"push_failures bank": false, "push_failure_reason bank rejected 47003": false}, w.firing())
	}, quietBands)
}

func TestMissingReceiptsAreToldWhenTheirTimeIsOver(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t), quietBands)
	for ago := 26; ago < 60; ago++ {
		w.hourOf(ago, 50, 1, wire.NoReceipt, 0)
	}
	w.hourOf(25, 50, 25, wire.NoReceipt, 0)
	w.hourOf(3, 50, 0, wire.Dead, 0)
	w.room.LookAtBands(t.Context())
	require.Equal(t, map[string]bool{"push_no_receipt bank": true}, w.firing())
}

// Without a history only what is never usual is told, and few messages never are.
func TestAnAccountWithoutHistory(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t), quietBands)
	w.hourOf(1, 19, 19, wire.Rejected, 40037)
	w.hourOf(0, 60, 20, wire.Dead, 0)
	w.room.LookAtBands(t.Context())
	require.Empty(t, w.firing())
	w.clock.step(2 * time.Hour)
	w.hourOf(0, 60, 31, wire.Dead, 0)
	w.room.LookAtBands(t.Context())
	require.Equal(t, map[string]bool{"push_failures bank": true, "push_failure_reason bank dead": true}, w.firing())
}

// quietBands leaves looking to the test.
func quietBands(c *receipts.Config) {
	c.Bands.Every, c.Bands.MinMessages = 0, 20
}
