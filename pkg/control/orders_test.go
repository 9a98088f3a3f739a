package control_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/control"
	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

func TestOrdersCoverWhatTheirConditionsSay(t *testing.T) {
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	push := control.Message{Account: "shop", App: "crm", Template: "t1", Lane: "bulk", AcceptedAt: at}
	reply := control.Message{Account: "shop", Lane: "replies", AcceptedAt: at, Reply: true}
	for _, c := range []struct {
		order       control.Order
		push, reply bool
	}{
		{control.Order{All: true}, true, false},
		{control.Order{All: true, Replies: true}, true, true},
		{control.Order{Account: "shop"}, true, false},
		{control.Order{Account: "shop", Replies: true}, true, true},
		{control.Order{Account: "bank", Replies: true}, false, false},
		{control.Order{App: "crm", Template: "t1", Lane: "bulk"}, true, false},
		{control.Order{App: "crm", Template: "t2"}, false, false},
		{control.Order{Lane: "realtime"}, false, false},
		{control.Order{All: true, AcceptedBefore: at}, false, false},
		{control.Order{All: true, AcceptedBefore: at.Add(time.Millisecond)}, true, false},
	} {
		require.NoError(t, c.order.Validate())
		require.Equal(t, c.push, c.order.Covers(push), "%s", c.order)
		require.Equal(t, c.reply, c.order.Covers(reply), "%s", c.order)
	}
}

func TestOrdersThatCannotBeMeantAreRefused(t *testing.T) {
	for field, o := range map[string]control.Order{
		"account:":         {},
		"all:":             {All: true, App: "crm"},
		"lane:":            {Lane: "replies"},
		"replies:":         {App: "crm", Replies: true},
		"template:":        {Template: "t'; DROP TABLE control; --"},
		"accepted_before:": {All: true, AcceptedBefore: time.UnixMilli(1)},
	} {
		err := o.Validate()
		require.ErrorContains(t, err, field)
		require.Equal(t, fault.Invalid, fault.KindOf(err))
	}
}

// D9: an order is at work on every node whether it was announced or not, ends by
// itself, is an entry of the audit, and a pause that cannot be read stops rather
// than lets through.
func TestOrdersReachEveryNode(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, cfg sqldb.Config) {
		addr := redisAddr(t)
		a := start(t, control.Options{Node: "a", DB: openDB(t, cfg), Redis: openRedis(t, addr)})
		b := start(t, control.Options{Node: "b", DB: openDB(t, cfg)}) // hears nothing
		push := control.Message{Account: "shop", Lane: "bulk", AcceptedAt: time.Now().Add(-time.Minute)}
		paused := func(n *node, want bool) {
			t.Helper()
			require.Eventually(t, func() bool { _, is := n.Orders().Paused(push); return is == want }, within, 5*time.Millisecond)
		}
		give := func(kind, name string, o *control.Order, life time.Duration) {
			t.Helper()
			_, err := a.SetOrder(t.Context(), control.OrderChange{Kind: kind, Name: name, To: o, By: "duty", Reason: "test", ExpiresIn: life})
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool { return a.Orders().Current() }, within, 5*time.Millisecond)
		give(control.KindPause, "p", &control.Order{Account: "shop"}, 0)
		paused(a, true)
		paused(b, true)
		give(control.KindPause, "p", nil, 0)
		paused(b, false)
		give(control.KindPause, "short", &control.Order{All: true}, time.Second)
		paused(b, true)
		paused(b, false)

		give(control.KindCancel, "c", &control.Order{Account: "shop"}, 0)
		require.Eventually(t, func() bool { _, is := b.Orders().Cancelled(push); return is }, within, 5*time.Millisecond)
		later := push
		later.AcceptedAt = time.Now().Add(time.Minute)
		_, is := b.Orders().Cancelled(later)
		require.False(t, is, "a cancel is about what was accepted before it")

		_, err := control.NewStore(openDB(t, cfg), nil).Apply(t.Context(), control.Change{Kind: control.KindPause, Subject: "new", By: "x", Reason: "y",
			Value: []byte(`{"account":"other","weekday":"monday"}`)})
		require.NoError(t, err)
		paused(b, true)
		v := a.OrdersOverview(t.Context(), control.KindPause)
		require.Contains(t, v.Orders[0].Problem, "knows more")

		p, err := a.Verify(t.Context())
		require.NoError(t, err)
		require.Empty(t, p.Broken)
		require.EqualValues(t, 5, p.Entries)
		_, err = openDB(t, cfg).Exec(t.Context(), "UPDATE control SET value = '{\"account\":\"bank\"}' WHERE subject = 'c'")
		require.NoError(t, err)
		p, err = a.Verify(t.Context())
		require.NoError(t, err)
		require.Contains(t, p.Broken, "changed behind the audit")
	})
}
