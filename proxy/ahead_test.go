package proxy_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
	"tidegate/proxy"
)

// Point for point what is promised: the place in the acknowledgement, once per
// follower and interval, the same for a redelivery, and the letter is worked as
// any other.
func TestAheadTellsThePlace(t *testing.T) {
	for _, mode := range []wechat.Mode{wechat.ModePlain, wechat.ModeSafe} {
		t.Run(string(mode), func(t *testing.T) {
			l := newLine(t, mode, nil)
			requireAck(t, l.post(text(1, "before anything is known")))
			l.busy()
			said := l.told(l.post(text(2, "bill")))
			require.Equal(t, "前面约有 800 人，预计等待 20 秒。", said)
			requireAck(t, l.post(text(3, "hello?"))) // the same follower, a moment later
			require.Equal(t, said, l.told(l.post(text(2, "bill"))), "a redelivery is answered alike")
			requireAck(t, l.post(text(3, "hello?")))
			requireAck(t, l.post(textFrom(somebodyElsewhere(), 4, "hello")))
			requireAck(t, l.post(view(5, "https://example.com")))

			l.poll(600) // shorter now
			require.Equal(t, said, l.told(l.post(text(2, "bill"))), "also when the queue has become short")
			requireAck(t, l.post(text(6, "thanks")))

			l.poll(206) // all that is left
			worked := 0
			for _, r := range l.records() {
				if string(r.Value) == "{}" {
					continue
				}
				c, err := wire.Decode[wire.Callback](r.Value, r.Headers)
				require.NoError(t, err)
				require.Empty(t, c.Answered, "the robot still owes the reply")
				worked++
			}
			require.Equal(t, 6, worked)
			requireCount(t, l.reg, map[string]float64{"told": 1, "again": 2, "recent": 2})
		})
	}
}

func (l *line) records() []kafka.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen)
}

func somebodyElsewhere() string {
	for i := 0; ; i++ {
		u := fmt.Sprintf("oElsewhere%d", i)
		if kafka.Partition([]byte(u), cardPartitions) != kafka.Partition([]byte(openid), cardPartitions) {
			return u
		}
	}
}

func view(second int, url string) string {
	return fmt.Sprintf("<xml><ToUserName><![CDATA[%s]]></ToUserName><FromUserName><![CDATA[%s]]></FromUserName><CreateTime>%d</CreateTime><MsgType><![CDATA[event]]></MsgType><Event><![CDATA[VIEW]]></Event><EventKey><![CDATA[%s]]></EventKey></xml>", ghID, openid, second, url)
}

func requireCount(t *testing.T, reg *prometheus.Registry, want map[string]float64) {
	t.Helper()
	all, err := reg.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range all {
		if f.GetName() != "tidegate_proxy_notices_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, lb := range m.GetLabel() {
				if lb.GetName() == "result" {
					got[lb.GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
	}
	require.Equal(t, want, got)
}

// A rule that answers at once is the answer, and Redis is not needed for an ack.
func TestAheadStandsBack(t *testing.T) {
	rule := func(c *wire.Callback) (proxy.Instant, bool) {
		return proxy.Instant{Rule: "hours", Text: "9 to 5"}, c.Content == "hours"
	}
	l := newLine(t, wechat.ModeSafe, rule)
	l.busy()
	require.Equal(t, "9 to 5", l.told(l.post(text(1, "hours"))))
	require.Contains(t, l.told(l.post(text(2, "bill"))), "800")

	// Redis away: no notice, and soon no waiting for it either.
	l.redis.Close()
	for i := range 6 {
		requireAck(t, l.post(text(i+3, "bill")))
	}
	begun := time.Now()
	for i := range 20 {
		requireAck(t, l.post(text(i+10, "bill")))
	}
	require.Less(t, time.Since(begun), 2*time.Second)
}

// Nothing moves: nobody can know how long it takes, so nothing is promised. Nor
// from a measurement that is old.
func TestAheadPromisesNothingThatNobodyKnows(t *testing.T) {
	l := newLine(t, wechat.ModePlain, nil)
	l.busy()
	l.pass(20 * time.Second)
	requireAck(t, l.post(text(1, "the measurement is old")))
	for range 20 {
		l.poll(0)
	}
	requireAck(t, l.post(text(2, "nothing moves")))
	l.poll(30)
	requireAck(t, l.post(text(4, "it moves again, nobody knows how fast")))
	for range 6 {
		l.poll(30)
	}
	require.NotEmpty(t, l.told(l.post(text(3, "it moves again"))))
}

// WeChat's own reader takes the notice for a well-formed passive reply.
func TestAheadBeforeTheSimulator(t *testing.T) {
	for mode, simMode := range map[wechat.Mode]string{wechat.ModeSafe: wechatsim.ModeSafe, wechat.ModeCompatible: wechatsim.ModeCompatible} {
		t.Run(string(mode), func(t *testing.T) {
			l := newLine(t, mode, nil, func(c *proxy.Config) { c.Ahead.Language = "en" })
			l.busy()
			door := httptest.NewServer(l.h)
			defer door.Close()
			cfg := wechatsim.DefaultConfig()
			cfg.Accounts = []wechatsim.Account{{AppID: appID, Secret: strings.Repeat("5", 32), GhID: ghID, Token: token, EncodingAESKey: aesKey,
				Mode: simMode, CallbackURL: door.URL + "/wx/card", Followers: 1}}
			sim, err := wechatsim.New(cfg, zap.NewNop())
			require.NoError(t, err)
			require.NoError(t, sim.Start())
			defer func() { require.NoError(t, sim.Close()) }()
			user := sameAs(t, sim)
			d, err := sim.Act(t.Context(), appID, wechatsim.Text(user, "bill"))
			require.NoError(t, err)
			require.Equal(t, wechatsim.JudgedPassive, d.Judged, d.Error)
			require.Equal(t, "About 800 ahead of you, expected wait: 20 seconds.", d.Text)
			d, err = sim.Act(t.Context(), appID, wechatsim.View(user, "https://example.com"))
			require.NoError(t, err)
			require.Equal(t, wechatsim.JudgedSuccess, d.Judged, "a view takes no answer")
		})
	}
}

// sameAs is a follower in the same partition as ours.
func sameAs(t *testing.T, sim *wechatsim.Sim) string {
	t.Helper()
	users, err := sim.AddFollowers(appID, 100)
	require.NoError(t, err)
	for _, u := range users {
		if kafka.Partition([]byte(u), cardPartitions) == kafka.Partition([]byte(openid), cardPartitions) {
			return u
		}
	}
	require.FailNow(t, "none of 100 followers")
	return ""
}

// The watch follows the accounts of a reload, and the endpoint is the room's.
func TestQueuesFollowTheAccounts(t *testing.T) {
	l := newLine(t, wechat.ModePlain, nil)
	shown := func() string {
		require.NoError(t, l.p.CheckQueues(t.Context()))
		rec := httptest.NewRecorder()
		l.p.Queues().ServeHTTP(rec, httptest.NewRequest("GET", "/ops/v1/queues", nil))
		return rec.Body.String()
	}
	require.Contains(t, shown(), `"account":"card"`)
	other := account(wechat.ModePlain)
	other.Name = "loan"
	require.NoError(t, l.p.SetAccounts(one(other)))
	require.Contains(t, shown(), `"account":"loan"`)
	require.NotContains(t, shown(), `"account":"card"`)
}
