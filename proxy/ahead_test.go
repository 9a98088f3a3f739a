package proxy_test

import (
	"context"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/dedupe"
	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
	"tidegate/proxy"
)

const cardTopic, cardGroup, cardPartitions = "tidegate.card.callbacks", "tidegate.robot.card", 4

// line is a door over a real queue, with a robot that works as many callbacks as
// it is told to. Its clock moves only by hand, so speeds are exact.
type line struct {
	*world
	admin *kafka.Admin
	reg   *prometheus.Registry

	mu   sync.Mutex
	now  time.Time
	work chan struct{} // one token lets the robot work one record
	seen []kafka.Record
}

func newLine(t *testing.T, mode wechat.Mode, atOnce proxy.AtOnce, change ...func(*proxy.Config)) *line {
	t.Helper()
	b, err := kafkamem.Start(kafkamem.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	k := kafka.DefaultConfig()
	k.Brokers = []string{b.Addr()}
	l := &line{world: &world{t: t, mode: mode}, now: time.Now(), work: make(chan struct{}, 10_000), reg: prometheus.NewRegistry()}
	l.admin, err = kafka.NewAdmin(k)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.admin.Close()) })
	_, err = l.admin.EnsureTopics(t.Context(), []kafka.TopicSpec{{Name: cardTopic, Partitions: cardPartitions, Replication: 1}})
	require.NoError(t, err)
	l.redis, err = redismem.Start("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(l.redis.Close)
	rc, err := redis.Open(redis.Config{Mode: "single", Addrs: []string{l.redis.Addr()}}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = rc.Close() })
	pub, err := kafka.NewProducer(k, kafka.ProducerOptions{}, zap.NewNop(), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, pub.Close(ctx))
	})
	cfg := proxy.DefaultConfig()
	cfg.HTTP.Addr, cfg.Ahead.Enabled = "127.0.0.1:0", true
	for _, ch := range change {
		ch(&cfg)
	}
	store := dedupe.New(rc, dedupe.DefaultOptions())
	d := proxy.Deps{
		Topics: wire.Topics{Prefix: "tidegate"}, Publisher: pub, Claims: store, Notices: store, AtOnce: atOnce,
		Admin: l.admin, Log: zap.NewNop(), Registry: l.reg, Now: l.clock,
	}
	d.Groups.Robot, d.Groups.Receipts = "tidegate.robot", "tidegate.receipts"
	l.p, err = proxy.New(cfg, []proxy.Account{account(mode)}, d)
	require.NoError(t, err)
	l.h = l.p.Handler()
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, l.p.Run(ended)) // closes what New has opened
	})
	l.fill(pub, 1000)
	l.robot(k)
	return l
}

// fill puts records of a follower, who shares our partition, into the queue.
func (l *line) fill(pub *kafka.Producer, n int) {
	l.t.Helper()
	results := make(chan error, n)
	for range n {
		go func() {
			_, err := pub.Publish(l.t.Context(), kafka.Record{Topic: cardTopic, Key: []byte(openid), Value: []byte("{}")})
			results <- err
		}()
	}
	for range n {
		require.NoError(l.t, <-results)
	}
}

func (l *line) robot(k kafka.Config) {
	g, err := kafka.NewGroup(k, kafka.GroupOptions{
		Group: cardGroup, Topics: []string{cardTopic}, DrainTimeout: time.Second,
		Handler: func(ctx context.Context, r kafka.Record) error {
			select {
			case <-l.work:
				l.mu.Lock()
				defer l.mu.Unlock()
				l.seen = append(l.seen, r)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}, zap.NewNop(), nil)
	require.NoError(l.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	l.t.Cleanup(func() { cancel(); require.NoError(l.t, <-done) })
}

func (l *line) clock() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

func (l *line) pass(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.now.Add(d)
}

// poll lets two seconds pass, in which the robot works so many.
func (l *line) poll(worked int) {
	l.t.Helper()
	before := l.committed()
	for range worked {
		l.work <- struct{}{}
	}
	require.Eventually(l.t, func() bool { return l.committed() >= before+int64(worked) }, 30*time.Second, 10*time.Millisecond)
	l.pass(2 * time.Second)
	require.NoError(l.t, l.p.CheckQueues(l.t.Context()))
}

func (l *line) committed() int64 {
	l.t.Helper()
	lags, err := l.admin.Lag(l.t.Context(), cardGroup, []string{cardTopic})
	require.NoError(l.t, err)
	sum := int64(0)
	for _, p := range lags {
		sum += max(0, p.Committed)
	}
	return sum
}

// busy is a queue that takes 16 s: 800 records, 50 a second.
func (l *line) busy() {
	l.t.Helper()
	require.NoError(l.t, l.p.CheckQueues(l.t.Context()))
	l.poll(100)
	l.poll(100)
}

// told opens a passive answer as WeChat would and gives its text.
func (l *line) told(rec *httptest.ResponseRecorder) string {
	l.t.Helper()
	require.Equal(l.t, 200, rec.Code)
	require.Equal(l.t, "text/xml; charset=utf-8", rec.Header().Get("Content-Type"), "%s", rec.Body)
	plain := rec.Body.Bytes()
	if l.mode != wechat.ModePlain {
		var env struct{ Encrypt, MsgSignature, TimeStamp, Nonce string }
		require.NoError(l.t, xml.Unmarshal(plain, &env))
		require.Equal(l.t, wechat.Signature(token, env.TimeStamp, env.Nonce, env.Encrypt), env.MsgSignature)
		key, err := wechat.DecodeAESKey(aesKey)
		require.NoError(l.t, err)
		_, err = base64.StdEncoding.DecodeString(env.Encrypt)
		require.NoError(l.t, err)
		plain, err = wechat.Decrypt(key, appID, env.Encrypt)
		require.NoError(l.t, err)
	}
	var m struct{ ToUserName, FromUserName, MsgType, Content string }
	require.NoError(l.t, xml.Unmarshal(plain, &m))
	require.Equal(l.t, []string{openid, ghID, "text"}, []string{m.ToUserName, m.FromUserName, m.MsgType})
	return m.Content
}

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
	l.poll(100)
	l.poll(100)
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
