package sender_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
)

// G7: WeChat did it, and the answer was lost in every way there is.
func TestLostAnswersOfPushes(t *testing.T) {
	t.Parallel()
	for _, how := range []string{wechatsim.FaultReset, wechatsim.FaultHTML, wechatsim.FaultGarbage, wechatsim.FaultTruncate} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			require.NoError(t, w.sim.SetFaults(wechatsim.Fault{Do: how, Applied: true, API: wechatsim.PathTemplateSend, Count: 1}))
			w.start()
			id := w.push("bill")
			got := w.outcome(id)
			require.Equal(t, wire.Accepted, got.State)
			require.Equal(t, 2, got.Attempt)
			arrived := w.arrivals(wechatsim.PathTemplateSend)
			require.Len(t, arrived, 2, "the fault must have happened")
			visible := 0
			for _, e := range arrived {
				require.Equal(t, id, e.ClientMsgID, "one id for all tries (T34)")
				if e.Visible {
					visible++
				}
			}
			require.Equal(t, 1, visible)
		})
	}
}

func TestLostAnswersOfReplies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.sim.SetFaults(wechatsim.Fault{Do: wechatsim.FaultReset, Applied: true, API: wechatsim.PathCustomSend, OpenID: w.followers[1], Count: 1},
		wechatsim.Fault{Do: wechatsim.FaultReset, Applied: true, API: wechatsim.PathCustomSend, OpenID: w.followers[2], Count: 1},
		wechatsim.Fault{Do: wechatsim.FaultReset, Applied: true, API: wechatsim.PathCustomSend, OpenID: w.followers[3]}))
	w.start()
	duplicate := w.reply("may come twice", func(r *wire.Reply) { r.OpenID = w.followers[1] })
	loss := w.reply("may be lost", func(r *wire.Reply) { r.OpenID, r.Class = w.followers[2], wire.PreferLoss })
	never := w.reply("no answer ever", func(r *wire.Reply) { r.OpenID = w.followers[3] })

	got := w.outcome(duplicate)
	require.Equal(t, wire.Accepted, got.State)
	require.True(t, got.PossibleDuplicate, "G8")
	got = w.outcome(loss)
	require.Equal(t, wire.Unknown, got.State)
	require.Equal(t, 1, got.Attempt)
	got = w.outcome(never)
	require.Equal(t, wire.Unknown, got.State)
	require.Equal(t, 2, got.Attempt, "a reply goes again once, not for ever")
	require.True(t, got.PossibleDuplicate)
	for _, f := range w.sim.Faults() {
		require.Positive(t, f.Hits)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.sim.SetFaults(
		wechatsim.Fault{Do: wechatsim.FaultErrcode, Errcode: 43004, API: wechatsim.PathTemplateSend, OpenID: w.followers[1]},
		wechatsim.Fault{Do: wechatsim.FaultErrcode, Errcode: 47003, API: wechatsim.PathTemplateSend, OpenID: w.followers[2]},
		wechatsim.Fault{Do: wechatsim.FaultErrcode, Errcode: 45015, API: wechatsim.PathCustomSend, OpenID: w.followers[1]},
		wechatsim.Fault{Do: wechatsim.FaultErrcode, Errcode: 43101, API: wechatsim.PathBizSend, OpenID: w.followers[3]},
	))
	w.start()
	for id, code := range map[string]int{
		w.push("not following", func(p *wire.Push) { p.OpenID = w.followers[1] }):                                      43004,
		w.push("bad data", func(p *wire.Push) { p.OpenID = w.followers[2] }):                                           47003,
		w.push("no subscription", func(p *wire.Push) { p.OpenID, p.PushKind = w.followers[3], wire.PushSubscription }): 43101,
		w.reply("window closed", func(r *wire.Reply) { r.OpenID = w.followers[1] }):                                    45015,
		w.push("stranger", func(p *wire.Push) { p.OpenID = "oNobodyKnowsThisOpenid00000000" }):                         40003,
	} {
		got := w.outcome(id)
		require.Equal(t, wire.Rejected, got.State, "%d: %+v", code, got)
		require.Equal(t, code, got.ErrCode)
		require.Equal(t, 1, got.Attempt)
		require.NotEmpty(t, got.Reason)
	}
}

// G13 through the room: the token dies while sends are under way.
func TestTokenDiesUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ahead atomic.Int64
	r := w.start(func(s *setup) { s.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) } })
	require.Equal(t, wire.Accepted, w.outcome(w.push("first")).State)
	ahead.Store(int64(time.Minute)) // the token is no longer fresh
	other, err := wechat.NewClient(nil, wechat.Options{BaseURLs: []string{w.sim.URL()}})
	require.NoError(t, err)
	defer other.CloseIdle()
	_, err = other.StableToken(t.Context(), appID, secret, true) // another system forces a refresh
	require.NoError(t, err)
	var ids []string
	for i := range 20 {
		ids = append(ids, w.push(fmt.Sprint("load ", i), func(p *wire.Push) { p.OpenID = w.followers[i] }))
	}
	for _, id := range ids {
		require.Equal(t, wire.Accepted, w.outcome(id).State)
	}
	refused := 0
	for _, e := range w.arrivals(wechatsim.PathTemplateSend) {
		if e.Errcode != 0 {
			refused++
		}
	}
	require.Positive(t, refused, "the token must have been refused")
	require.Len(t, w.arrivals(wechatsim.PathStableToken), 3, "ours, theirs, and one normal call after all those refusals")
	require.Empty(t, r.Problems())
}

func TestStoppedAccountWaitsAndGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.sim.SetFaults(wechatsim.Fault{Do: wechatsim.FaultErrcode, Errcode: 48001, API: wechatsim.PathTemplateSend, Count: 1}))
	board := alarm.NewBoard(zap.NewNop(), nil, nil)
	r := w.start(func(s *setup) { s.alarms = board })
	id := w.push("waits")
	require.Eventually(t, func() bool { return len(r.Problems()) == 1 }, 20*time.Second, 5*time.Millisecond)
	require.Len(t, board.Firing(), 1)
	require.Equal(t, "api_stopped", board.Firing()[0].Name)
	require.Contains(t, board.Firing()[0].Text, "check its rights")
	require.Contains(t, r.Problems()[0], "api template_send: stopped")
	require.Equal(t, 1, r.log.FilterMessageSnippet("check its rights").Len())
	require.Equal(t, wire.Accepted, w.outcome(w.reply("another API goes on")).State)
	require.Empty(t, w.outcomes(id))
	require.Len(t, w.arrivals(wechatsim.PathTemplateSend), 1)
}

// The day's quota is used up: letters wait, nothing is lost, nothing asks in a
// loop.
func TestQuotaUsedUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.sim.SetFaults(wechatsim.Fault{Do: wechatsim.FaultErrcode, Errcode: 45009, API: wechatsim.PathTemplateSend, Count: 1}))
	w.start(func(s *setup) { s.cfg.QuotaPause = time.Second })
	id := w.push("tomorrow")
	got := w.outcome(id)
	require.Equal(t, wire.Accepted, got.State)
	require.Equal(t, 2, got.Attempt)
	a := w.arrivals(wechatsim.PathTemplateSend)
	require.Len(t, a, 2)
	require.GreaterOrEqual(t, a[1].At-a[0].At, int64(time.Second))
}

func TestUnreadableLettersAreParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	topic := w.topics().Pushes(account, wire.LaneRealtime)
	headers := func(kind, v string) []kafka.Header {
		return []kafka.Header{{Key: wire.HeaderKind, Value: []byte(kind)}, {Key: wire.HeaderVersion, Value: []byte(v)}}
	}
	for _, r := range []kafka.Record{
		{Value: make([]byte, 900_000), Headers: headers("push", "1")}, // larger than any letter
		{Value: []byte("no JSON"), Headers: headers("push", "1")},
		{Value: []byte(`{}`), Headers: headers("push", "1")},
		{Value: []byte(`{}`), Headers: headers("letter from the future", "1")},
		{Value: []byte(`{}`), Headers: headers("push", "99")},
		{Value: nil},
	} {
		r.Topic, r.Key = topic, []byte("x")
		_, err := w.producer.Publish(t.Context(), r)
		require.NoError(t, err)
	}
	kind := w.push("odd kind", func(p *wire.Push) { p.PushKind = "carrier pigeon" })
	content := w.reply("odd content", func(r *wire.Reply) { r.Content = wire.Content{Type: "hologram"} })
	for _, id := range []string{kind, content} {
		got := w.outcome(id)
		require.Equal(t, wire.Dead, got.State)
		require.Contains(t, got.Reason, "not known to this release")
	}
	nobody := w.outcome(w.push("nobody", func(p *wire.Push) { p.OpenID = "no openid" }))
	require.Equal(t, wire.Dead, nobody.State)
	require.Empty(t, nobody.OpenID, "receipts could not read it otherwise")
	require.Equal(t, wire.Accepted, w.outcome(w.push("good")).State, "the others go on")
	require.Eventually(t, func() bool { return len(w.dead.all()) == 9 }, 20*time.Second, 5*time.Millisecond)
	for _, rec := range w.dead.all() {
		d, err := wire.Decode[wire.DeadLetter](rec.Value, rec.Headers)
		require.NoError(t, err)
		require.Equal(t, "sender", d.Room)
		require.NotEmpty(t, d.Reason)
		require.True(t, strings.HasPrefix(d.Topic, w.prefix))
	}
}

// A clean stop while requests are under way: what arrived is booked, nothing
// goes twice.
func TestCleanStopLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(func(s *setup) { s.limits.Replies.Rate, s.limits.Replies.Burst = 40, 1 })
	ids := map[string]bool{}
	for i := range 60 {
		ids[w.reply(fmt.Sprintf("reply %02d", i), func(r *wire.Reply) { r.OpenID = w.followers[i%20] })] = true
	}
	require.Eventually(t, func() bool { return len(w.arrivals(wechatsim.PathCustomSend)) > 5 }, 20*time.Second, time.Millisecond)
	require.NoError(t, w.sim.SetFaults(wechatsim.Fault{Do: wechatsim.FaultSlow, DelayMS: 300, API: wechatsim.PathCustomSend, Count: 20}))
	require.Eventually(t, func() bool { return w.sim.Faults()[0].Hits > 0 }, 20*time.Second, time.Millisecond)
	begun := time.Now()
	r.stop()
	require.Less(t, time.Since(begun), 5*time.Second)
	require.Less(t, len(w.arrivals(wechatsim.PathCustomSend)), 60, "the stop must have come in the middle")
	w.start()
	for id := range ids {
		got := w.outcome(id)
		require.Equal(t, wire.Accepted, got.State)
	}
	texts := map[string]int{}
	for _, e := range w.arrivals(wechatsim.PathCustomSend) {
		texts[e.Text]++
	}
	require.Len(t, texts, 60)
	for text, n := range texts {
		require.Equal(t, 1, n, "%s", text)
	}
}
