package sender_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/control"
	"tidegate/pkg/kafka"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
)

func steered(s *setup) { s.steered = true }

// order gives an order, or with nil takes it back, and gives the time at which
// that was answered.
func (r *room) order(t *testing.T, kind, name string, o *control.Order) time.Time {
	t.Helper()
	_, err := r.panel.SetOrder(t.Context(), control.OrderChange{Kind: kind, Name: name, To: o, By: "duty", Reason: "test"})
	require.NoError(t, err)
	return time.Now()
}

// states gives the states of a message's receipts, in their order.
func (w *world) states(id string) (out []wire.State) {
	for _, r := range w.outcomes(id) {
		out = append(out, r.State)
	}
	return out
}

// ended waits until a message is in one of its ends.
func (w *world) ended(id string) wire.Receipt {
	w.t.Helper()
	var last wire.Receipt
	require.Eventually(w.t, func() bool {
		got := w.outcomes(id)
		if len(got) > 0 {
			last = got[len(got)-1]
		}
		return len(got) > 0 && last.State != wire.Held
	}, 30*time.Second, 5*time.Millisecond, "%s has not ended", id)
	return last
}

// rows counts what is held.
func (r *room) rows(t *testing.T) (n int64) {
	t.Helper()
	groups, err := r.Held(t.Context())
	require.NoError(t, err)
	for _, g := range groups {
		n += g.Rows
	}
	return n
}

// waiting waits until so many letters are held.
func (r *room) waiting(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return r.rows(t) == int64(n) }, 30*time.Second, 5*time.Millisecond, "held %d", n)
}

// sql runs a statement on the world's database.
func (w *world) sql(q string, args ...any) {
	w.t.Helper()
	db, err := sqldb.Open(w.t.Context(), w.db)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, db.Close()) }()
	_, err = db.Exec(w.t.Context(), q, args...)
	require.NoError(w.t, err)
}

// lag is how many letters of a lane are not committed.
func (w *world) lag(lane string) (n int64) {
	w.t.Helper()
	admin, err := kafka.NewAdmin(w.kafka)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, admin.Close()) }()
	parts, err := admin.Lag(w.t.Context(), w.topics().SenderGroup(account, lane), []string{w.topics().Lane(account, lane)})
	require.NoError(w.t, err)
	for _, p := range parts {
		n += p.Lag
	}
	return n
}

// D8, D9, D10: paused pushes leave the queue for rows, each with a receipt, and
// what was queued is lag and held at every moment; when the pause is lifted each
// goes once. Replies go on all the time.
func TestPausedPushesAreHeldAndConserved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(steered)
	r.order(t, control.KindPause, "night", &control.Order{Account: account})
	const n = 60
	var ids []string
	for i := range n {
		ids = append(ids, w.push(fmt.Sprint("push ", i), func(p *wire.Push) {
			p.OpenID = w.followers[i%20]
			if i%2 == 0 {
				p.Lane = wire.LaneBulk
			}
		}))
	}
	require.Equal(t, wire.Accepted, w.outcome(w.reply("replies go on")).State)
	sum := func() int64 { return w.lag(wire.LaneRealtime) + w.lag(wire.LaneBulk) + r.rows(t) }
	for r.rows(t) < n {
		require.GreaterOrEqual(t, sum(), int64(n), "a letter is in the queue or in a row, for a moment in both")
	}
	require.Eventually(t, func() bool { return sum() == n }, 20*time.Second, 10*time.Millisecond, "at rest in one of them")
	require.Empty(t, w.arrivals(wechatsim.PathTemplateSend))
	for _, id := range ids {
		got := w.outcome(id)
		require.Equal(t, wire.Held, got.State)
		require.Equal(t, "paused", got.Reason)
	}
	r.order(t, control.KindPause, "night", nil)
	for _, id := range ids {
		require.Equal(t, wire.Accepted, w.ended(id).State)
	}
	require.Eventually(t, func() bool { return sum() == 0 }, 20*time.Second, 10*time.Millisecond)
	require.Len(t, w.arrivals(wechatsim.PathTemplateSend), n)
	t.Logf("| %-44s | %-10s | %-10s |\n| %-44s | %-10d | %-10d |\n| %-44s | %-10d | %-10d |", "G30 short: pushes through a pause", "bar", "measured",
		"sent once after the pause", n, len(w.arrivals(wechatsim.PathTemplateSend)), "left in queue and rows", 0, sum())
}

// D9: a cancel ends what is held and what is queued, and nothing that comes after
// it; a pause of one template stops no other.
func TestCancelEndsHeldAndQueuedPushes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(steered)
	r.order(t, control.KindPause, "p", &control.Order{Template: template})
	other := w.push("other template", func(p *wire.Push) { p.TemplateID = "another-template-0000000000000000000000000" })
	var ids []string
	for i := range 20 {
		ids = append(ids, w.push(fmt.Sprint("push ", i), func(p *wire.Push) { p.OpenID = w.followers[i] }))
	}
	r.waiting(t, 20)
	held, err := r.CountHeld(t.Context(), control.Order{App: "crm", Lane: wire.LaneRealtime})
	require.NoError(t, err)
	require.EqualValues(t, 20, held, "it can be counted first")
	require.NotEqual(t, wire.Held, w.outcome(other).State)

	r.order(t, control.KindCancel, "c", &control.Order{App: "crm"})
	for _, id := range ids {
		require.Equal(t, wire.Cancelled, w.ended(id).State)
	}
	r.waiting(t, 0)
	late := w.push("accepted before, read later", func(p *wire.Push) { p.AcceptedAt -= 60_000 })
	require.Equal(t, wire.Cancelled, w.ended(late).State)
	after := w.push("accepted after", func(p *wire.Push) { p.AcceptedAt += 60_000 })
	r.order(t, control.KindPause, "p", nil)
	require.Equal(t, wire.Accepted, w.ended(after).State)
	for _, e := range w.arrivals(wechatsim.PathTemplateSend) {
		require.NotContains(t, append(ids, late), e.ClientMsgID, "G23: what was cancelled never goes")
	}
}

// What is known of a letter's past stays known over a hold: one that WeChat
// refused for its quota was not sent, and is not called doubtful afterwards.
func TestAHeldLettersPastStaysKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.sim.SetFaults(wechatsim.Fault{API: wechatsim.PathTemplateSend, Do: wechatsim.FaultErrcode, Errcode: 45009, Count: 1}))
	r := w.start(steered, func(s *setup) { s.cfg.QuotaPause = time.Hour })
	id := w.push("no quota")
	r.waiting(t, 1)
	require.Equal(t, "quota", w.outcome(id).Reason)
	// An hour later, in another process, when the intent would be too old for a
	// push that may have arrived.
	r.stop()
	w.sql("UPDATE intent SET first_try_at = first_try_at - 3600000")
	w.sql("UPDATE held SET due_at = 1")
	w.start(steered)
	got := w.ended(id)
	require.Equal(t, wire.Accepted, got.State, "%s", got.Reason)
	require.Equal(t, 2, got.Attempt)
	require.Len(t, w.arrivals(wechatsim.PathTemplateSend), 2)
}

// A copy of a held letter – its offset was not committed, or a row was fed back
// twice – changes nothing.
func TestCopiesOfHeldLettersAreRecognised(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.sim.SetFaults(wechatsim.Fault{API: wechatsim.PathTemplateSend, Do: wechatsim.FaultErrcode, Errcode: 45009, Count: 1}))
	r := w.start(steered, func(s *setup) { s.cfg.QuotaPause = time.Hour })
	id := w.push("once")
	r.waiting(t, 1)
	r.stop()
	w.push("once") // the first life's record again, after the hold
	w.sql("UPDATE held SET due_at = 1")
	w.sql(`UPDATE outcome SET news = '{"held":{"due":1,"why":"quota","past":{"gen":1,"requests":1}}}' WHERE news LIKE '%"held"%'`)
	r = w.start(steered)
	require.Equal(t, wire.Accepted, w.ended(id).State)
	w.push("once")
	require.Equal(t, wire.Accepted, w.ended(w.push("behind it")).State)
	r.waiting(t, 0)
	sent := 0
	for _, e := range w.arrivals(wechatsim.PathTemplateSend) {
		if e.ClientMsgID == id && e.Visible {
			sent++
		}
	}
	require.Equal(t, 1, sent)
}

// A held push whose time is over ends as expired.
func TestHeldPushExpires(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(steered)
	r.order(t, control.KindPause, "p", &control.Order{All: true})
	id := w.push("short-lived", func(p *wire.Push) { p.ExpiresAt = time.Now().Add(1500 * time.Millisecond).UnixMilli() })
	got := w.ended(id)
	require.Equal(t, wire.Expired, got.State)
	require.Contains(t, w.states(id), wire.Held)
	require.Empty(t, w.arrivals(wechatsim.PathTemplateSend))
}

// not_before and quiet hours hold pushes and no replies.
func TestNotBeforeAndQuietHoursHoldPushes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now().UTC()
	r := w.start(steered, func(s *setup) {
		s.quiet.Zone = "UTC"
		s.quiet.From, s.quiet.To = now.Add(-time.Hour).Format("15:04"), now.Add(time.Hour).Format("15:04")
		s.quiet.Lanes = []string{wire.LaneBulk}
	})
	later := w.push("later", func(p *wire.Push) { p.NotBefore = now.Add(time.Hour).UnixMilli() })
	quiet := w.push("quiet", func(p *wire.Push) { p.Lane = wire.LaneBulk })
	require.Equal(t, wire.Accepted, w.outcome(w.push("now")).State)
	require.Equal(t, wire.Accepted, w.outcome(w.reply("awake")).State)
	r.waiting(t, 2)
	require.Equal(t, "not_before", w.outcome(later).Reason)
	require.Equal(t, "quiet_hours", w.outcome(quiet).Reason)
}

// D9: a sender that cannot read the orders sends no pushes; replies go on.
func TestWithoutTheOrdersNoPushLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(steered)
	require.Equal(t, wire.Accepted, w.outcome(w.push("before")).State)
	w.sql("ALTER TABLE control_head RENAME TO control_gone")
	require.Eventually(t, func() bool { return !r.panel.Orders().Current() }, 20*time.Second, 5*time.Millisecond)
	id := w.push("blind")
	require.Equal(t, wire.Accepted, w.outcome(w.reply("goes on")).State)
	require.Len(t, w.arrivals(wechatsim.PathTemplateSend), 1)
	w.sql("ALTER TABLE control_gone RENAME TO control_head")
	require.Equal(t, wire.Accepted, w.ended(id).State)
}

// The kill switch stops replies too, in the order that they came, and lets them
// go in it.
func TestKillSwitchKeepsReplies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(steered)
	r.order(t, control.KindPause, "stop", &control.Order{Account: account, Replies: true})
	first, second := w.reply("first"), w.reply("second")
	push := w.push("push")
	r.waiting(t, 1)
	require.Empty(t, w.outcomes(first))
	require.Empty(t, w.arrivals(wechatsim.PathCustomSend))
	r.order(t, control.KindPause, "stop", nil)
	require.Equal(t, wire.Accepted, w.ended(first).State)
	require.Equal(t, wire.Accepted, w.ended(second).State)
	require.Equal(t, wire.Accepted, w.ended(push).State)
	got := w.arrivals(wechatsim.PathCustomSend)
	require.Equal(t, []string{"first", "second"}, []string{got[0].Text, got[1].Text})
}
