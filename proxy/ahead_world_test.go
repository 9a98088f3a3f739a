package proxy_test

import (
	"context"
	"encoding/base64"
	"encoding/xml"
	"net/http/httptest"
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
	l.fill(pub, 1550)
	l.robot(k)
	return l
}

// fill puts records of a follower, who shares our partition, into the queue, a
// hundred at once: a producer takes no more than it can hand on.
func (l *line) fill(pub *kafka.Producer, n int) {
	l.t.Helper()
	for ; n > 0; n -= 100 {
		l.put(pub, min(n, 100))
	}
}

func (l *line) put(pub *kafka.Producer, n int) {
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
func (l *line) poll(worked int) { l.t.Helper(); l.works(2*time.Second, worked) }

func (l *line) works(d time.Duration, worked int) {
	l.t.Helper()
	before := l.committed()
	for range worked {
		l.work <- struct{}{}
	}
	require.Eventually(l.t, func() bool { return l.committed() >= before+int64(worked) }, 30*time.Second, 10*time.Millisecond)
	l.pass(d)
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
	for range 3 { // the speed is believed after some seconds of work
		l.works(5*time.Second, 250)
	}
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
