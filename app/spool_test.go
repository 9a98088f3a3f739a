package app

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/run"
	"tidegate/pkg/wechat"
)

// spooled is a door whose Kafka can be stopped.
type spooled struct {
	t      *testing.T
	src    Source
	dir    string
	opt    kafkamem.Options
	broker *kafkamem.Broker
	p      *part
	stop   func()
}

func newSpooled(t *testing.T, withSpool bool) *spooled {
	t.Helper()
	s := &spooled{t: t, opt: kafkamem.Options{Dir: t.TempDir(), Addr: "127.0.0.1:0"}}
	s.startKafka()
	s.opt.Addr = s.broker.Addr()
	t.Cleanup(func() { _ = s.broker.Close() })
	cache, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(cache.Close)
	s.dir = filepath.Join(t.TempDir(), "spool")
	spool := ""
	if withSpool {
		spool = fmt.Sprintf(", spool: {dir: '%s'}", s.dir)
	}
	file := filepath.Join(t.TempDir(), "tidegate.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
log: {hash_key: the-same-everywhere}
kafka: {brokers: ["%s"]}
redis: {addrs: ["%s"], timeout: 2s}
topics: {prefix: spooled, partitions: 4, replication: 1, min_insync_replicas: 1}
proxy: {http: {addr: "127.0.0.1:0"}%s}
accounts:
  - {name: card, app_id: wx-card, token: token-card, mode: plain, allow_from: [any]}
`, s.broker.Addr(), cache.Addr(), spool), 0o600))
	s.src = Source{File: file}
	s.startDoor()
	return s
}

func (s *spooled) startKafka() {
	b, err := kafkamem.Start(s.opt)
	require.NoError(s.t, err)
	s.broker = b
}

func (s *spooled) startDoor() {
	c, err := loadFor(s.src, RoleProxy)
	require.NoError(s.t, err)
	e := newEngines(c, zap.NewNop())
	admin, err := e.Admin()
	require.NoError(s.t, err)
	_, err = admin.EnsureTopics(s.t.Context(), c.topicSpecs())
	require.NoError(s.t, err)
	s.p, err = buildPart(s.t.Context(), RoleProxy, e, partOptions{})
	require.NoError(s.t, err)
	g := run.NewGroup(s.t.Context())
	for _, service := range s.p.services {
		g.Go(service)
	}
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		g.Stop()
		require.NoError(s.t, g.Wait())
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		_ = e.stack.Stop(ctx) // with Kafka away the producer says what it could not send; the spool has it
	}
	s.t.Cleanup(func() { s.stop() })
}

func (s *spooled) post(user string, n int) int {
	now, nonce := strconv.FormatInt(time.Now().Unix(), 10), user+"-"+strconv.Itoa(n)
	q := url.Values{"timestamp": {now}, "nonce": {nonce}, "signature": {wechat.Signature("token-card", now, nonce)}}
	body := fmt.Sprintf("<xml><ToUserName><![CDATA[gh_1]]></ToUserName><FromUserName><![CDATA[%s]]></FromUserName><CreateTime>1893456001</CreateTime>"+
		"<MsgType><![CDATA[text]]></MsgType><Content><![CDATA[%d]]></Content><MsgId>%d</MsgId></xml>", user, n, 1000+n)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Post("http://"+s.p.addr["door"]+"/wx/card?"+q.Encode(), "text/xml", strings.NewReader(body))
	require.NoError(s.t, err)
	require.NoError(s.t, res.Body.Close())
	return res.StatusCode
}

func (s *spooled) ready() error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
	defer cancel()
	return s.p.ready["queue"](ctx)
}

// D12: the spool of a node that does not come back is emptied by hand.
func TestTheSpoolOfADeadNodeIsInspectedAndDrained(t *testing.T) {
	s := newSpooled(t, true)
	require.NoError(t, s.ready())
	require.NoError(t, s.broker.Close())
	const users, each = 5, 8
	for n := range each {
		for u := range users {
			require.Equal(t, 200, s.post(fmt.Sprintf("oFollower%d", u), n))
		}
	}
	require.NoError(t, s.ready(), "the spool makes callbacks durable")
	var out bytes.Buffer
	require.NoError(t, SpoolInspect(s.src, s.dir, &out))
	require.Contains(t, out.String(), "used by a process")
	require.ErrorContains(t, SpoolDrain(t.Context(), s.src, s.dir, &out), "another process uses the directory")
	s.stop() // the node is gone

	out.Reset()
	require.NoError(t, SpoolInspect(s.src, s.dir, &out))
	require.Contains(t, out.String(), "40 records wait for the queue")
	require.Regexp(t, `spooled\.card\.callbacks\s+40\s+5`, out.String())
	require.Regexp(t, `[0-9a-f]{12}\s+8\s+spooled\.card\.callbacks`, out.String())
	require.NotContains(t, out.String(), "oFollower", "openids are shown hashed")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out.Reset()
	require.ErrorContains(t, SpoolDrain(ctx, s.src, s.dir, &out), "40 records are left")
	s.startKafka()
	out.Reset()
	require.NoError(t, SpoolDrain(t.Context(), s.src, s.dir, &out))
	require.Equal(t, "40 records replayed, 0 of them as dead letters; 0 left\n", out.String())
	out.Reset()
	require.NoError(t, SpoolDrain(t.Context(), s.src, s.dir, &out))
	require.Contains(t, out.String(), "is empty")
	require.Error(t, SpoolDrain(t.Context(), s.src, s.dir+"-mistyped", &out))
	require.NoDirExists(t, s.dir+"-mistyped")
	s.requireOrder(users, each)
}

func (s *spooled) requireOrder(users, each int) {
	s.t.Helper()
	c, err := loadFor(s.src, "")
	require.NoError(s.t, err)
	next := map[string]int{}
	ctx, done := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer done()
	seen := 0
	g, err := kafka.NewGroup(c.Kafka, kafka.GroupOptions{Group: "check", Topics: []string{"spooled.card.callbacks"}, Workers: 1,
		Handler: func(_ context.Context, r kafka.Record) error {
			if strings.Contains(string(r.Value), fmt.Sprintf(`"content":"%d"`, next[string(r.Key)])) {
				next[string(r.Key)]++
			}
			if seen++; seen == users*each {
				done()
			}
			return nil
		}}, zap.NewNop(), nil)
	require.NoError(s.t, err)
	require.NoError(s.t, g.Run(ctx))
	require.Len(s.t, next, users)
	for u, n := range next {
		require.Equal(s.t, each, n, "in order, of user %s", u)
	}
}

func TestWithoutASpoolTheDoorIsNotReadyWhileKafkaIsAway(t *testing.T) {
	s := newSpooled(t, false)
	require.NoError(t, s.ready())
	require.NoError(t, s.broker.Close())
	require.Equal(t, http.StatusServiceUnavailable, s.post("oFollower", 1))
	require.ErrorContains(t, s.ready(), "no spool is configured")
}

func TestTheDoctorLooksIntoTheSpool(t *testing.T) {
	s := newSpooled(t, true)
	examine := func() string {
		var out bytes.Buffer
		_ = Doctor(t.Context(), s.src, RoleProxy, &out) // what it says of the rest is not the question
		return out.String()
	}
	require.Contains(t, examine(), "is empty")
	require.NoError(t, s.broker.Close())
	require.Equal(t, 200, s.post("oFollower", 1))
	require.Contains(t, examine(), "1 callbacks wait for Kafka, the oldest since")
	s.stop()
	require.Contains(t, examine(), "1 acknowledged callbacks wait for Kafka and no door is running")
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "00000000000000000001-0.bad"), []byte("x"), 0o600))
	require.Contains(t, examine(), "1 records were put aside")
	require.NoError(t, os.RemoveAll(s.dir))
	require.Contains(t, examine(), "is made when the door starts")
}
