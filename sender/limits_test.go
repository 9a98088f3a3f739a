package sender_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/control"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
	"tidegate/sender"
)

// D9: the cap of one API is changed under load, and no other; a configuration
// that is read again does not undo it; more places come with workers for them;
// taken back, the file's value holds.
func TestACapIsChangedWhileTheRoomRuns(t *testing.T) {
	const many = 40
	w := newWorld(t, func(c *wechatsim.Config) { c.Accounts[0].Followers = many })
	db, err := sqldb.Open(t.Context(), w.db)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, control.Migrate(t.Context(), db))
	p, err := control.New(control.Options{DB: db, Node: "node-1"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	var limits sender.Limits
	r := w.start(func(s *setup) {
		s.knobs = p.Knobs()
		s.limits.Replies.Concurrency = 1
		limits = s.limits
	})
	set := func(l *control.Limit) {
		t.Helper()
		e, err := p.SetLimit(t.Context(), control.LimitChange{Subject: "sender.shop.replies", To: l, By: "duty", Reason: "test"})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return p.Overview(t.Context()).Nodes[0].Version >= e.Version }, 20*time.Second, time.Millisecond)
	}
	require.Equal(t, wire.Accepted, w.outcome(w.reply("first")).State)
	set(&control.Limit{Rate: 1e-4, Burst: 1, Concurrency: many})
	require.Eventually(t, func() bool { return w.joins(r, wire.LaneReplies) == 2 }, 20*time.Second, 5*time.Millisecond, "places come with workers")
	var ids []string
	for i, f := range w.followers {
		ids = append(ids, w.reply(fmt.Sprint("reply ", i), func(p *wire.Reply) { p.OpenID = f }))
	}
	require.Equal(t, wire.Accepted, w.outcome(w.push("another API")).State)
	require.NoError(t, r.SetAccounts([]sender.Account{shopAccount(limits)}))
	require.Equal(t, wire.Accepted, w.outcome(w.push("still")).State)
	require.LessOrEqual(t, len(w.arrivals(wechatsim.PathCustomSend)), 2, "one had gone, one may have had a permit")
	set(nil)
	for _, id := range ids {
		require.Equal(t, wire.Accepted, w.outcome(id).State)
	}
	limits.Replies = ratelimit.Limit{Rate: 500, Burst: 5, Concurrency: 2}
	require.NoError(t, r.SetAccounts([]sender.Account{shopAccount(limits)}))
	for _, l := range p.Overview(t.Context()).Limits {
		if l.Subject == "sender.shop.replies" {
			require.Equal(t, control.Limit{Rate: 500, Burst: 5, Concurrency: 2}, *l.Effective, "the file's new value")
		}
	}
}
