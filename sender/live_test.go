package sender_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
	"tidegate/sender"
)

// G10 on one node: no window of arrivals holds more than rate × length + burst,
// over both lanes together, and no more requests are under way than allowed.
func TestCapIsNeverExceeded(t *testing.T) {
	const rate, burst, places, each = 120.0, 6, 4, 120
	w := newWorld(t)
	require.NoError(t, w.sim.SetFaults(
		wechatsim.Fault{Do: wechatsim.FaultSlow, DelayMS: 15, API: wechatsim.PathTemplateSend},
		wechatsim.Fault{Do: wechatsim.FaultReset, Applied: true, API: wechatsim.PathTemplateSend, Rate: 0.05},
	))
	var ids []string
	for i := range each {
		ids = append(ids,
			w.push(fmt.Sprint("realtime ", i), func(p *wire.Push) { p.OpenID = w.followers[i%20] }),
			w.push(fmt.Sprint("bulk ", i), func(p *wire.Push) { p.OpenID, p.Lane = w.followers[i%20], wire.LaneBulk }))
	}
	w.start(func(s *setup) {
		s.limits.Template = ratelimit.Limit{Rate: rate, Burst: burst, Concurrency: places}
	})
	for _, id := range ids {
		require.Equal(t, wire.Accepted, w.outcome(id).State)
	}
	a := w.arrivals(wechatsim.PathTemplateSend)
	require.Greater(t, len(a), 2*each, "retries take permits too, so there must have been some")
	fullest := 0
	for _, length := range []time.Duration{100 * time.Millisecond, time.Second} {
		// Departures keep the bound exactly (pkg/ratelimit); arrivals bunch by
		// what the machine adds, for which a twentieth and two are allowed.
		most := int((rate*length.Seconds()+burst)*1.05) + 2
		for i, j := 0, 0; j < len(a); j++ {
			for a[j].At-a[i].At > int64(length) {
				i++
			}
			require.LessOrEqual(t, j-i+1, most, "arrivals within %s", length)
			fullest = max(fullest, j-i+1)
		}
	}
	// Of the best second, since a busy machine may not give every one.
	require.Greater(t, float64(fullest), rate*0.5, "and the cap is used")
}

func TestRealtimeGoesBeforeBulk(t *testing.T) {
	const places = 4
	w := newWorld(t)
	var bulk []string
	for i := range 150 {
		bulk = append(bulk, w.push(fmt.Sprint("bulk ", i), func(p *wire.Push) { p.OpenID, p.Lane = w.followers[i%20], wire.LaneBulk }))
	}
	w.start(func(s *setup) { s.limits.Template = ratelimit.Limit{Rate: 20, Burst: 1, Concurrency: places} })
	require.Eventually(t, func() bool { return len(w.arrivals(wechatsim.PathTemplateSend)) >= 10 }, 20*time.Second, time.Millisecond)
	realtime := map[string]bool{}
	for i := range 20 {
		realtime[w.push(fmt.Sprint("realtime ", i), func(p *wire.Push) { p.OpenID = w.followers[i] })] = true
	}
	waiting := len(w.arrivals(wechatsim.PathTemplateSend)) // from here on all of them wait, however long it took to queue them
	for id := range realtime {
		require.Equal(t, wire.Accepted, w.outcome(id).State)
	}
	between, left := 0, len(realtime)
	for i, e := range w.arrivals(wechatsim.PathTemplateSend) {
		if realtime[e.ClientMsgID] {
			left--
		} else if i >= waiting && left > 0 {
			between++
		}
	}
	require.LessOrEqual(t, between, 3*places, "bulk that went although realtime waited")
	require.Empty(t, w.outcomes(bulk[len(bulk)-1]), "bulk must still be waiting")
}

func shopAccount(l sender.Limits) sender.Account {
	return sender.Account{Name: account, AppID: appID, Secret: secret, Limits: l}
}

func bankAccount(l sender.Limits) sender.Account {
	return sender.Account{Name: bank, AppID: bankID, Secret: secret, Limits: l}
}

func ofBank(w *world) func(*wire.Push) {
	followers, err := w.sim.Followers(bankID, 0)
	require.NoError(w.t, err)
	return func(p *wire.Push) { p.Account, p.OpenID = bank, followers[0] }
}

// An account is served as soon as it is configured, and left alone as soon as
// it is not; nothing that waits is lost.
func TestAccountsComeAndGoWhileTheRoomRuns(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	l := sender.DefaultLimits()
	early := w.push("before the account", ofBank(w))
	require.Equal(t, wire.Accepted, w.outcome(w.push("shop 1")).State)
	require.Empty(t, w.outcomes(early))

	require.NoError(t, r.SetAccounts([]sender.Account{shopAccount(l), bankAccount(l)}))
	got := w.outcome(early)
	require.Equal(t, wire.Accepted, got.State)
	require.Equal(t, bank, got.Account)
	for _, e := range w.arrivals(wechatsim.PathTemplateSend) {
		require.Zero(t, e.Errcode, "no account's token is used for another")
	}

	require.NoError(t, r.SetAccounts([]sender.Account{bankAccount(l)}))
	require.Equal(t, wire.Accepted, w.outcome(w.push("bank 2", ofBank(w))).State)
	require.Eventually(t, func() bool { return r.Serves() == 1 }, 20*time.Second, 5*time.Millisecond)
	waiting := w.push("shop 2")
	require.Equal(t, wire.Accepted, w.outcome(w.push("bank 3", ofBank(w))).State)
	require.Empty(t, w.outcomes(waiting))

	require.NoError(t, r.SetAccounts([]sender.Account{shopAccount(l), bankAccount(l)}))
	require.Equal(t, wire.Accepted, w.outcome(waiting).State)

	for name, bad := range map[string][]sender.Account{
		"is not an appid":   {{Name: account, Secret: secret}},
		"secret is missing": {{Name: account, AppID: appID}},
		"name must be":      {{Name: "Shop!", AppID: appID, Secret: secret}},
		"is there twice":    {shopAccount(l), shopAccount(l)},
		"limits.template":   {{Name: account, AppID: appID, Secret: secret, Limits: sender.Limits{Template: ratelimit.Limit{Rate: -1}}}},
	} {
		err := r.SetAccounts(bad)
		require.Equal(t, fault.Invalid, fault.KindOf(err))
		require.ErrorContains(t, err, name)
		require.NotContains(t, err.Error(), secret)
	}
	require.Equal(t, wire.Accepted, w.outcome(w.push("shop 3")).State, "bad accounts change nothing")
}

// joins counts the generations of a lane's group that the room has joined.
func (w *world) joins(r *room, lane string) (n int) {
	families, err := r.reg.Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "tidegate_kafka_rebalances_total" && l.GetValue() == w.prefix+".sender."+account+"."+lane {
					n += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return n
}

// More requests at once were allowed than the lane had workers for: it gets
// them without a restart.
func TestMorePlacesGetMoreWorkers(t *testing.T) {
	const few, many, slow = 1, 60, 3 * time.Second
	w := newWorld(t, func(c *wechatsim.Config) { c.Accounts[0].Followers = many })
	r := w.start(func(s *setup) { s.limits.Replies = ratelimit.Limit{Rate: 1000, Burst: many, Concurrency: few} })
	require.Eventually(t, func() bool { return w.joins(r, wire.LaneReplies) == 1 }, 20*time.Second, 5*time.Millisecond)
	l := sender.DefaultLimits()
	l.Replies = ratelimit.Limit{Rate: 1000, Burst: many, Concurrency: many}
	require.NoError(t, r.SetAccounts([]sender.Account{shopAccount(l)}))
	require.Eventually(t, func() bool { return w.joins(r, wire.LaneReplies) == 2 }, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, w.sim.SetFaults(wechatsim.Fault{Do: wechatsim.FaultSlow, DelayMS: int(slow.Milliseconds()), API: wechatsim.PathCustomSend}))
	var ids []string
	for i, f := range w.followers {
		ids = append(ids, w.reply(fmt.Sprint("reply ", i), func(p *wire.Reply) { p.OpenID = f }))
	}
	for _, id := range ids {
		require.Equal(t, wire.Accepted, w.outcome(id).State)
	}
	a := w.arrivals(wechatsim.PathCustomSend)
	require.Len(t, a, many)
	require.Less(t, a[many-1].At-a[0].At, int64(slow), "all were under way before the first was answered")
}

// G21: one account's WeChat hangs; the other does not notice.
func TestAccountsAreApart(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	l := sender.DefaultLimits()
	l.Template.Concurrency = 2
	require.NoError(t, r.SetAccounts([]sender.Account{shopAccount(l), bankAccount(l)}))
	require.NoError(t, w.sim.SetFaults(wechatsim.Fault{Do: wechatsim.FaultSlow, DelayMS: 2500, API: wechatsim.PathTemplateSend, Account: bankID}))
	for i := range 30 {
		w.push(fmt.Sprint("bank ", i), ofBank(w))
	}
	require.Eventually(t, func() bool { return w.sim.Faults()[0].Hits > 0 }, 20*time.Second, time.Millisecond)
	begun := time.Now()
	var ids []string
	for i := range 40 {
		ids = append(ids, w.push(fmt.Sprint("shop ", i), func(p *wire.Push) { p.OpenID = w.followers[i%20] }))
	}
	for _, id := range ids {
		require.Equal(t, wire.Accepted, w.outcome(id).State)
	}
	require.Less(t, time.Since(begun), 2*time.Second)
}
