package sender_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/credit"
	"tidegate/pkg/redis"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
)

// ledger is what robots and senders share, by the clock now.
func (w *world) ledger(now func() time.Time) *credit.Ledger {
	rc := redis.DefaultConfig()
	rc.Addrs, rc.Prefix, rc.Timeout = []string{w.redisAddr}, w.prefix, 5*time.Second
	c, err := redis.Open(rc, nil)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, c.Close()) })
	cfg := credit.DefaultConfig()
	cfg.Timeout = 5 * time.Second
	l, err := credit.New(cfg, c, now, nil)
	require.NoError(w.t, err)
	return l
}

// hears notes what a follower did, as the robot does, and gives when it was
// received.
func (w *world) hears(l *credit.Ledger, openid string, a credit.Act, at time.Time) int64 {
	a.Account, a.OpenID, a.ID = account, openid, fmt.Sprint(a.Event, at.UnixNano())
	a.CreateTime, a.ReceivedAt = at.Unix(), at.UnixMilli()
	l.Note(a)
	ctx, cancel := context.WithCancel(w.t.Context())
	cancel()
	require.NoError(w.t, l.Run(ctx))
	return a.ReceivedAt
}

var (
	says   = credit.Act{MsgType: "text"}
	clicks = credit.Act{MsgType: "event", Event: "CLICK"}
)

func likeWeChat(c *wechatsim.Config) {
	c.Limits.Message = wechatsim.Window{Count: 5, Life: 48 * time.Hour}
}

// G24, the count: 20 followers with five messages each are owed ten. What WeChat
// would refuse is expired without a request.
func TestNoReplyBeyondTheCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, likeWeChat)
	l := w.ledger(nil)
	w.start(func(s *setup) { s.credits = l })
	var ids []string
	for _, f := range w.followers {
		at := w.hears(l, f, says, time.Now())
		for i := range 10 {
			ids = append(ids, w.reply(fmt.Sprint(f, i), func(r *wire.Reply) { r.OpenID, r.ReceivedAt = f, at }))
		}
	}
	states := map[wire.State]int{}
	for _, id := range ids {
		got := w.outcome(id)
		states[got.State]++
		if got.State == wire.Expired {
			require.Zero(t, got.Attempt)
			require.Contains(t, got.Reason, "WeChat takes no more messages")
		}
	}
	require.Equal(t, map[wire.State]int{wire.Accepted: 100, wire.Expired: 100}, states)
	require.Len(t, w.arrivals(wechatsim.PathCustomSend), 100, "nothing was tried in vain")
}

// G24, the time: 200 replies to menus wait for longer than a minute, of which the
// clock tells.
func TestNoReplyBehindItsWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, likeWeChat)
	begin := time.Now()
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	l := w.ledger(now)
	var ids []string
	for i := range 200 {
		f := w.followers[i%len(w.followers)]
		at := w.hears(l, f, clicks, begin.Add(time.Duration(i/len(w.followers))*time.Millisecond))
		ids = append(ids, w.reply(fmt.Sprint("late", i), func(r *wire.Reply) { r.OpenID, r.ReceivedAt = f, at }))
	}
	ahead.Store(int64(61 * time.Second))
	w.start(func(s *setup) { s.credits, s.now = l, now })
	for _, id := range ids {
		got := w.outcome(id)
		require.Equal(t, wire.Expired, got.State)
		require.Contains(t, got.Reason, "was over before it could be sent")
	}
	require.Empty(t, w.arrivals(wechatsim.PathCustomSend))
	f := w.followers[0]
	at := w.hears(l, f, says, now())
	require.Equal(t, wire.Accepted, w.outcome(w.reply("in time", func(r *wire.Reply) { r.OpenID, r.ReceivedAt = f, at })).State)
}

// Somebody else sent through the same account: WeChat's refusal is learned, and
// the next reply is not tried.
func TestLedgerLearnsWhatOthersSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, likeWeChat)
	l := w.ledger(nil)
	w.start(func(s *setup) { s.credits = l })
	f := w.followers[3]
	at := w.hears(l, f, says, time.Now())
	other, err := wechat.NewClient(nil, wechat.Options{BaseURLs: []string{w.sim.URL()}})
	require.NoError(t, err)
	t.Cleanup(other.CloseIdle)
	tok, err := other.StableToken(t.Context(), appID, secret, false)
	require.NoError(t, err)
	for range 5 {
		require.NoError(t, other.CustomSend(t.Context(), tok.Token, wechat.CustomMessage{ToUser: f, Text: &wechat.CustomText{Content: "by another system"}}))
	}
	to := func(r *wire.Reply) { r.OpenID, r.ReceivedAt = f, at }
	got := w.outcome(w.reply("first", to))
	require.Equal(t, wire.Rejected, got.State)
	require.Equal(t, 45047, got.ErrCode)
	require.Equal(t, wire.Expired, w.outcome(w.reply("second", to)).State)
	require.Len(t, w.arrivals(wechatsim.PathCustomSend), 6)
}

// A letter that was sent and comes back, since its offset was lost with its sender,
// has used the window up itself: it stays accepted, also when it has expired since.
func TestWhatWasSentIsNotExpiredLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, likeWeChat)
	l := w.ledger(nil)
	room := w.start(func(s *setup) { s.credits = l })
	f := w.followers[6]
	at := w.hears(l, f, says, time.Now())
	soon := time.Now().Add(30 * time.Second).UnixMilli()
	var last string
	to := func(r *wire.Reply) { r.OpenID, r.ReceivedAt, r.ExpiresAt = f, at, soon }
	for i := range 5 {
		last = w.reply(fmt.Sprint("to be sent ", i), to)
		require.Equal(t, wire.Accepted, w.outcome(last).State)
	}
	room.stop()
	later := func() time.Time { return time.Now().Add(time.Minute) }
	for n, now := range []func() time.Time{nil, later} { // used up; expired as well
		room = w.start(func(s *setup) { s.credits, s.now = l, now })
		require.Equal(t, last, w.reply("to be sent 4", to))
		require.Eventually(t, func() bool { return len(w.outcomes(last)) == n+2 }, 20*time.Second, 5*time.Millisecond)
		require.Equal(t, wire.Accepted, w.outcome(last).State)
		room.stop()
	}
	require.Len(t, w.arrivals(wechatsim.PathCustomSend), 5)
}

// A text that is too long for one message goes as several, in order, and takes as
// many credits; if there are too few, none of them goes.
func TestLongTextsGoInParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, likeWeChat)
	l := w.ledger(nil)
	w.start(func(s *setup) { s.credits = l })
	f := w.followers[5]
	at := w.hears(l, f, says, time.Now())
	marks := []string{w.sim.Mark(), w.sim.Mark(), w.sim.Mark()}
	text := marks[0] + strings.Repeat("你好，", 200) + "\n" + marks[1] + strings.Repeat("再见。", 224) + "\n" + marks[2]
	long := func(r *wire.Reply) {
		r.OpenID, r.ReceivedAt, r.Content.Text = f, at, text
	}
	got := w.outcome(w.reply("long", long))
	require.Equal(t, wire.Accepted, got.State)
	require.Equal(t, 3, got.Attempt)
	arrived := w.arrivals(wechatsim.PathCustomSend)
	require.Len(t, arrived, 3)
	for i, e := range arrived {
		require.Equal(t, marks[i:i+1], e.Tokens, "in order, and cut at the end of a line")
	}
	got = w.outcome(w.reply("long again", long))
	require.Equal(t, wire.Expired, got.State, "two are left, and it needs three")
	require.Equal(t, wire.Accepted, w.outcome(w.reply("short", func(r *wire.Reply) { r.OpenID, r.ReceivedAt = f, at })).State)
}
