package proxy_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/dedupe"
	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/proxy"
)

// site is a door with a real producer and broker behind it, all of which can
// go away and come back.
type site struct {
	t      *testing.T
	topics wire.Topics
	dir    string // of the spool
	kafka  kafka.Config
	claims *dedupe.Store

	mu   sync.RWMutex // users hold the read side; the door changes under the write side
	door http.Handler
	reg  *prometheus.Registry
	stop func()
}

func newSite(t *testing.T, broker, prefix string) *site {
	t.Helper()
	s := &site{t: t, topics: wire.Topics{Prefix: prefix}, dir: t.TempDir(), kafka: kafka.DefaultConfig()}
	s.kafka.Brokers = []string{broker}
	cache, err := redismem.Start("127.0.0.1:0")
	require.NoError(t, err)
	c, err := redis.Open(redis.Config{Mode: "single", Addrs: []string{cache.Addr()}}, nopLog)
	require.NoError(t, err)
	s.claims = dedupe.New(c, dedupe.DefaultOptions())
	s.start()
	t.Cleanup(func() {
		s.stop()
		_ = c.Close()
		cache.Close()
	})
	return s
}

// start opens the door; stop closes it as a clean stop does.
func (s *site) start() {
	s.t.Helper()
	s.reg = prometheus.NewRegistry()
	producer, err := kafka.NewProducer(s.kafka, kafka.ProducerOptions{}, nopLog, s.reg)
	require.NoError(s.t, err)
	cfg := proxy.DefaultConfig()
	cfg.HTTP.Addr = "127.0.0.1:0"
	cfg.Spool.Dir = s.dir
	p, err := proxy.New(cfg, one(account(wechat.ModePlain)), proxy.Deps{
		Topics: s.topics, Publisher: producer, Claims: s.claims, Log: nopLog, Registry: s.reg,
	})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	s.door = p.Handler()
	s.stop = func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
		end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = producer.Close(end) // with the broker away it says what it could not send; the spool has it
	}
}

func (s *site) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	s.start()
}

// post is one delivery of a user's n-th text, with the time that its answer
// took.
func (s *site) post(user string, n int) (time.Duration, int) {
	ts, nonce := "1893456000", user+strconv.Itoa(n)
	v := url.Values{"timestamp": {ts}, "nonce": {nonce}, "signature": {wechat.Signature(token, ts, nonce)}, "openid": {user}}
	r := httptest.NewRequest(http.MethodPost, "/wx/card?"+v.Encode(), strings.NewReader(textFrom(user, 1000+n, fmt.Sprintf("%d", n))))
	w := httptest.NewRecorder()
	s.mu.RLock()
	defer s.mu.RUnlock()
	began := time.Now()
	s.door.ServeHTTP(w, r)
	return time.Since(began), w.Code
}

// metric adds up the values of a metric over its labels.
func (s *site) metric(name string) float64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all, err := s.reg.Gather()
	if err != nil {
		s.t.Error(err)
	}
	sum := 0.0
	for _, f := range all {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func (s *site) until(what string, ok func() bool) {
	s.t.Helper()
	require.Eventually(s.t, ok, 60*time.Second, 10*time.Millisecond, what)
}

// G1, G6, T27, T28 at the door: Kafka goes away under load, the proxy is
// restarted meanwhile, Kafka comes back, and the proxy is restarted once more
// when it has begun to replay. Every callback is acknowledged, none is lost, and
// each user's are in the log in the order of the acks.
func TestKafkaAwayUnderLoad(t *testing.T) {
	opt := kafkamem.Options{Dir: t.TempDir(), Addr: "127.0.0.1:0"}
	broker, err := kafkamem.Start(opt)
	require.NoError(t, err)
	opt.Addr = broker.Addr()
	defer func() { require.NoError(t, broker.Close()) }()
	outage{prefix: "tidegate", broker: broker.Addr(), away: func() { require.NoError(t, broker.Close()) }, back: func() {
		broker, err = kafkamem.Start(opt)
		require.NoError(t, err)
	}}.run(t)
}

// The same on a real Kafka that is killed, and one that hangs, for as long as
// TIDEGATE_TEST_OUTAGE says. It is for a broker of its own, since everything
// else that uses it suffers: TIDEGATE_ENGINES_DIR names it.
func TestRealKafkaAwayUnderLoad(t *testing.T) {
	addr, long := os.Getenv("TIDEGATE_TEST_KAFKA"), os.Getenv("TIDEGATE_TEST_OUTAGE")
	if addr == "" || long == "" {
		t.Skip("TIDEGATE_TEST_KAFKA and TIDEGATE_TEST_OUTAGE are not set")
	}
	d, err := time.ParseDuration(long)
	require.NoError(t, err)
	engines := func(args ...string) func() {
		return func() {
			out, err := exec.Command("../deployments/dev/engines", args...).CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
	}
	for name, o := range map[string]outage{
		"killed": {away: engines("kill", "kafka"), back: engines("restart", "kafka")},
		"paused": {away: engines("pause", "kafka"), back: engines("resume", "kafka")},
	} {
		t.Run(name, func(t *testing.T) {
			o.prefix, o.broker, o.long = fmt.Sprintf("%s-%d", name, time.Now().UnixNano()), addr, d
			o.run(t)
		})
	}
}

// outage is Kafka going away and coming back.
type outage struct {
	prefix, broker string
	away, back     func()
	long           time.Duration // at least
}

func (o outage) run(t *testing.T) {
	t.Helper()
	s := newSite(t, o.broker, o.prefix)
	topic := wire.Topics{Prefix: o.prefix}.Callbacks("card")
	ensure(t, s.kafka, topic)
	l := s.load(24)
	s.until("load flows", l.grown(500))
	require.Zero(t, s.metric("tidegate_proxy_spool_records"))
	o.away()
	l.phase("away")
	over := time.After(o.long)
	s.until("records go to the spool", func() bool { return s.metric("tidegate_proxy_spool_records") > 500 })
	require.Positive(t, s.metric("tidegate_proxy_breaker_open"), "the outage has happened")
	s.restart()
	require.GreaterOrEqual(t, s.metric("tidegate_proxy_spool_records"), 500.0, "the spool outlives the process")
	s.until("the door stays open", l.grown(1000))
	require.Positive(t, s.metric("tidegate_proxy_spool_oldest_seconds"))
	<-over
	most := s.metric("tidegate_proxy_spool_records")
	o.back()
	l.phase("back")
	s.until("replay has begun", func() bool {
		return s.metric("tidegate_proxy_spool_records_total") > s.metric("tidegate_proxy_spool_records")+100
	})
	s.restart()
	s.until("live traffic goes past the spool again", l.grown(2000))
	l.end()
	s.until("the spool is empty", func() bool { return s.metric("tidegate_proxy_spool_records") == 0 })
	require.Zero(t, l.refused.Load(), "the door stayed open all the time")
	verify(t, s.kafka, topic, l.acked)
	t.Logf("CI: at most %.0f records in the spool; acks %s", most, l.times())
}

// load is users who send, wait for the ack and send again.
type load struct {
	acked          []atomic.Int64
	refused, total atomic.Int64
	end            func()

	mu     sync.Mutex
	phases []string
	took   [][]time.Duration
}

func (s *site) load(users int) *load {
	l := &load{acked: make([]atomic.Int64, users)}
	l.phase("first")
	ctx, cancel := context.WithCancel(s.t.Context())
	var wg sync.WaitGroup
	for u := range users {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; {
				took, code := s.post(user(u), n)
				if code != http.StatusOK {
					l.refused.Add(1) // the same again, as WeChat does
					continue
				}
				n++
				l.acked[u].Store(int64(n))
				l.total.Add(1)
				l.note(took)
			}
		})
	}
	l.end = func() { cancel(); wg.Wait() }
	s.t.Cleanup(l.end)
	return l
}

func (l *load) grown(by int64) func() bool {
	want := l.total.Load() + by
	return func() bool { return l.total.Load() >= want }
}

func (l *load) phase(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phases, l.took = append(l.phases, name), append(l.took, nil)
}

func (l *load) note(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took[len(l.took)-1] = append(l.took[len(l.took)-1], d)
}

// times gives p99 and worst of every phase.
func (l *load) times() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for i, name := range l.phases {
		d := l.took[i]
		if len(d) == 0 {
			continue
		}
		slices.Sort(d)
		out = append(out, fmt.Sprintf("%s %d: p99 %s, worst %s", name, len(d), d[len(d)*99/100].Round(100*time.Microsecond), d[len(d)-1].Round(100*time.Microsecond)))
	}
	return strings.Join(out, "; ")
}

func user(u int) string { return fmt.Sprintf("oUser%02d", u) }

func ensure(t *testing.T, cfg kafka.Config, topic string) {
	t.Helper()
	a, err := kafka.NewAdmin(cfg)
	require.NoError(t, err)
	defer a.Close()
	_, err = a.EnsureTopics(t.Context(), []kafka.TopicSpec{{Name: topic, Partitions: 4, Replication: 1, MinInsync: 1, Retention: time.Hour}})
	require.NoError(t, err)
}

// verify reads the log and compares it with what was acknowledged.
func verify(t *testing.T, cfg kafka.Config, topic string, acked []atomic.Int64) {
	t.Helper()
	var mu sync.Mutex
	next := map[string]int{}
	want, seen, doubled := int64(0), int64(0), 0
	for u := range acked {
		want += acked[u].Load()
	}
	ctx, done := context.WithTimeout(t.Context(), 60*time.Second)
	defer done()
	g, err := kafka.NewGroup(cfg, kafka.GroupOptions{Group: "verify", Topics: []string{topic}, Workers: 4, Handler: func(_ context.Context, r kafka.Record) error {
		c, err := wire.Decode[wire.Callback](r.Value, r.Headers)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(c.Content)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case n == next[c.OpenID]:
			next[c.OpenID]++
			if seen++; seen == want {
				done()
			}
		case n > next[c.OpenID]:
			t.Errorf("user %s: %d is in the log before %d", c.OpenID, n, next[c.OpenID])
			done()
		default:
			doubled++
		}
		return nil
	}}, nopLog, nil)
	require.NoError(t, err)
	require.NoError(t, g.Run(ctx))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, want, seen, "lost")
	for u := range acked {
		require.EqualValues(t, acked[u].Load(), next[user(u)])
	}
	t.Logf("%d acknowledged, lost 0, out of order 0, in the log twice %d", want, doubled)
}
