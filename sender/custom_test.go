package sender_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/credit"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
)

// custom queues a customer-service message that a business system asked for.
func (w *world) custom(name string, change ...func(*wire.Push)) string {
	return w.push(name, append([]func(*wire.Push){func(p *wire.Push) {
		p.PushKind, p.TemplateID, p.Data = wire.PushCustom, "", nil
		p.Content = &wire.Content{Type: "text", Text: name}
	}}, change...)...)
}

// A push of kind custom goes the way of replies and is accounted for as a push.
func TestCustomPushesAreSentAndAccountedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	good := w.custom("your parcel is here")
	got := w.outcome(good)
	require.Equal(t, wire.Accepted, got.State)
	require.Equal(t, wire.KindPush, got.MessageKind)
	require.Equal(t, "crm", got.App)
	require.Equal(t, wire.LaneRealtime, got.Lane)
	require.Equal(t, "your parcel is here", got.Reference)
	sent := w.arrivals(wechatsim.PathCustomSend)
	require.Len(t, sent, 1)

	empty := w.custom("nothing in it", func(p *wire.Push) { p.Content = nil })
	require.Equal(t, wire.Dead, w.outcome(empty).State)
	odd := w.custom("odd class", func(p *wire.Push) { p.Class = "prefer_rain" })
	require.Equal(t, wire.Dead, w.outcome(odd).State)
	require.Len(t, w.arrivals(wechatsim.PathCustomSend), 1, "what cannot be read is not tried")
}

// D7 for pushes of kind custom: WeChat would show a repeat twice, so what may have
// arrived ends by its class.
func TestCustomPushesWithADoubtfulPastEndByTheirClass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	begun := func(class string) func(*wire.Push) {
		return func(p *wire.Push) {
			p.Class = class
			w.begunLater(p.IdentityHash, p.OpenID, time.Minute)
		}
	}
	loss := w.custom("loss", begun(wire.PreferLoss))
	again := w.custom("again", begun(wire.PreferDuplicate))
	w.start()
	require.Equal(t, wire.Unknown, w.outcome(loss).State)
	got := w.outcome(again)
	require.Equal(t, wire.Accepted, got.State)
	require.True(t, got.PossibleDuplicate)
	require.Len(t, w.arrivals(wechatsim.PathCustomSend), 1)
}

// A push answers nothing, so it spends of the window that is there (G24).
func TestCustomPushesSpendCredits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, likeWeChat)
	l := w.ledger(nil)
	w.start(func(s *setup) { s.credits = l })
	w.hears(l, w.followers[0], credit.Act{MsgType: "text"}, time.Now())
	states := map[wire.State]int{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		states[w.outcome(w.custom(name)).State]++
	}
	require.Equal(t, map[wire.State]int{wire.Accepted: 5, wire.Expired: 2}, states)
	require.Len(t, w.arrivals(wechatsim.PathCustomSend), 5)
}
