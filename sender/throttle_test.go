package sender_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/control"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
	"tidegate/sender"
)

// capped gives a room's only account caps, as a new version of the file does.
func (w *world) capped(r *room, c sender.Caps) {
	w.t.Helper()
	a := shopAccount(defaults(nil).limits)
	a.Caps = c
	require.NoError(w.t, r.SetAccounts([]sender.Account{a}))
}

// why counts the held letters by what they wait for.
func (r *room) why(t *testing.T) map[string]int64 {
	t.Helper()
	groups, err := r.Held(t.Context())
	require.NoError(t, err)
	out := map[string]int64{}
	for _, g := range groups {
		out[g.Reason] += g.Rows
	}
	return out
}

// G11 through the door: WeChat's quota of the day is asked for and used up by two
// senders together without one call too many, of which WeChat says so itself; what
// is left over is held until its midnight.
func TestDayQuotaOfWeChatIsKept(t *testing.T) {
	t.Parallel()
	const quota, offered = 40, 60
	w := newWorld(t, func(c *wechatsim.Config) { c.Limits.Daily = map[string]int{wechatsim.PathTemplateSend: quota} })
	rooms := []*room{w.start(), w.start(func(s *setup) { s.cfg.Node = "another" })}
	for i := range offered {
		w.push(fmt.Sprint("push ", i), func(p *wire.Push) { p.OpenID = w.followers[i%20] })
	}
	rooms[0].waiting(t, offered-quota)
	refused := 0
	for _, e := range w.arrivals(wechatsim.PathTemplateSend) {
		if e.Errcode != 0 {
			refused++
		}
	}
	fmt.Fprintf(os.Stdout, "G11 two senders, quota %d, offered %d\n  %-28s %-9s %s\n", quota, offered, "bar", "measured", "verdict")
	for _, row := range []struct {
		bar       string
		got, want int
	}{{"sent exactly 40", len(w.arrivals(wechatsim.PathTemplateSend)) - refused, quota}, {"refused by WeChat 0", refused, 0}, {"held for the quota 20", int(rooms[0].why(t)["day_quota"]), offered - quota}} {
		verdict := "ok"
		if row.got != row.want {
			verdict = "MISSED"
		}
		fmt.Fprintf(os.Stdout, "  %-28s %-9d %s\n", row.bar, row.got, verdict)
		require.Equal(t, row.want, row.got, row.bar)
	}
	groups, err := rooms[0].Held(t.Context())
	require.NoError(t, err)
	due := groups[0].FirstDue.In(time.FixedZone("UTC+8", 8*3600))
	require.Equal(t, []int{0, 0, 5}, []int{due.Hour(), due.Minute(), due.Second()}, "midnight in Beijing, and the seam")
}

// A user gets no more than the cap in any period, whatever template and application;
// realtime is not capped unless a file says so; a template and an application have
// rates of their own, which operators can change; the rest goes on.
func TestCapsOfTemplateAppAndUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(steered)
	w.capped(r, sender.Caps{
		User:      sender.UserCap{Limit: 2, Period: 24 * time.Hour},
		Templates: []sender.NamedCap{{Name: "seldom", Rate: 1, Per: 2 * time.Hour}, {Name: template, Rate: 60000, Per: time.Minute, Burst: 50}},
		Apps:      []sender.NamedCap{{Name: "slow", Rate: 1, Per: time.Hour}},
	})
	bulk := func(p *wire.Push) { p.Lane = wire.LaneBulk }
	var ids []string
	for i := range 5 {
		ids = append(ids, w.push(fmt.Sprint("bulk ", i), bulk))
	}
	r.waiting(t, 3)
	require.Equal(t, map[string]int64{"user_cap": 3}, r.why(t))
	sent := 0
	for _, id := range ids {
		for _, s := range w.states(id) {
			if s == wire.Accepted {
				sent++
			}
		}
	}
	require.Equal(t, 2, sent)
	require.Equal(t, wire.Accepted, w.outcome(w.push("realtime")).State)
	require.Equal(t, wire.Accepted, w.outcome(w.push("another follower", bulk, func(p *wire.Push) { p.OpenID = w.followers[1] })).State)

	w.push("of a template", func(p *wire.Push) { p.TemplateID = "seldom" })
	w.push("of an application", func(p *wire.Push) { p.App = "slow" })
	r.waiting(t, 5)
	require.Equal(t, map[string]int64{"user_cap": 3, "template_cap": 1, "app_cap": 1}, r.why(t))
	require.Equal(t, wire.Accepted, w.outcome(w.reply("replies have caps of their own")).State)
	require.Len(t, w.arrivals(wechatsim.PathTemplateSend), 4)
}

// What is paid for and not used is given back: letters that a pause meets behind
// their toll, and letters that expire there, leave the user's cap as it was.
func TestTollThatIsNotUsedIsGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(func(s *setup) { s.limits.Template.Rate, s.limits.Template.Burst = 0.7, 1 })
	a := shopAccount(defaults(nil).limits)
	a.Limits.Template.Rate, a.Limits.Template.Burst = 0.7, 1
	a.Caps = sender.Caps{User: sender.UserCap{Limit: 1, Period: time.Hour, Lanes: []string{wire.LaneRealtime}}}
	require.NoError(t, r.SetAccounts([]sender.Account{a}))
	// The first permit comes after 1.4 s, so this one pays, waits, and expires.
	late := w.push("too late", func(p *wire.Push) { p.ExpiresAt = time.Now().Add(700 * time.Millisecond).UnixMilli() })
	next := w.push("instead of it")
	require.Equal(t, wire.Expired, w.ended(late).State)
	require.Equal(t, wire.Accepted, w.ended(next).State)
	require.Len(t, w.arrivals(wechatsim.PathTemplateSend), 1)
}

// Named caps are live limits: what an operator sets holds at once, whatever the file
// says when it is read again.
func TestNamedCapsAreLiveLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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
	r := w.start(func(s *setup) { s.knobs = p.Knobs() })
	file := sender.Caps{Apps: []sender.NamedCap{{Name: "crm", Rate: 1000, Burst: 10}}}
	w.capped(r, file)
	require.Equal(t, wire.Accepted, w.outcome(w.push("first")).State)
	e, err := p.SetLimit(t.Context(), control.LimitChange{Subject: "sender.shop.app.crm", To: &control.Limit{Rate: 1e-4, Burst: 1}, By: "duty", Reason: "test"})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return p.Overview(t.Context()).Nodes[0].Version >= e.Version }, 20*time.Second, time.Millisecond)
	w.capped(r, file)
	w.push("second")
	r.waiting(t, 1)
	require.Equal(t, map[string]int64{"app_cap": 1}, r.why(t))
	w.capped(r, sender.Caps{})
	require.Equal(t, wire.Accepted, w.outcome(w.push("third")).State)
}
