package robot_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"tidegate/pkg/alarm"
	"tidegate/pkg/control"
	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
	"tidegate/robot"
	"tidegate/robot/backend"
	"tidegate/robot/engine"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(victimEnv); text != "" {
		os.Exit(victim(text))
	}
	goleak.VerifyTestMain(m)
}

const (
	appID   = "wx9f3c7b21d08e4a56"
	patient = 40 * time.Second // for what a group's rebalance may delay
	rules   = `version: 1
fallback: busy
rules:
  - name: ask
    match: {text: {prefix: "ask "}}
    call: {backend: core, path: /ask, body: {text: "{{ .Content }}"}}
    reply: {text: "{{ .Answer.text }}"}
    fallback: core is away
  - name: bare
    match: {text: {prefix: "bare "}}
    call: {backend: core, path: /ask}
    reply: {text: "{{ .Answer.missing }}"}
  - name: two
    match: {text: {prefix: "two "}}
    reply: [{text: "1 {{ .Content }}"}, {text: "2 {{ .Content }}"}]
  - name: hush
    match: {text: {prefix: "hush "}}
    silence: true
  - name: echo
    match: {text: {any: true}}
    reply: {text: "{{ .Content }}"}
`
)

// world is a queue with its topics, and everything that a robot published, in
// the order in which it became durable.
type world struct {
	t       *testing.T
	kafka   kafka.Config
	topics  wire.Topics
	prod    *kafka.Producer
	cfg     robot.Config
	group   string
	logs    *observer.ObservedLogs
	log     *zap.Logger
	reg     *prometheus.Registry
	engine  robot.Engine
	now     func() time.Time
	alarms  *alarm.Board
	knobs   *control.Knobs
	refuse  func(kafka.Record) error // asked before a robot's record is published
	mu      sync.Mutex
	durable []kafka.Record
}

// Publish lets the world be the robot's publisher.
func (w *world) Publish(ctx context.Context, r kafka.Record) (kafka.Record, error) {
	w.mu.Lock()
	refuse := w.refuse
	w.mu.Unlock()
	if refuse != nil {
		if err := refuse(r); err != nil {
			return r, err
		}
	}
	out, err := w.prod.Publish(ctx, r)
	if err == nil {
		w.mu.Lock()
		w.durable = append(w.durable, out)
		w.mu.Unlock()
	}
	return out, err
}

// PublishInTurn is the short way of a real producer.
func (w *world) PublishInTurn(ctx context.Context, rs []kafka.Record, limit time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for i, r := range rs {
		if err := kafka.Owned(ctx); err != nil {
			return i, err
		}
		if _, err := w.Publish(ctx, r); err != nil {
			return i, err
		}
	}
	return len(rs), nil
}

func (w *world) setRefuse(f func(kafka.Record) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = f
}

func newWorld(t *testing.T, accounts ...string) *world {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	suffix := strings.ToLower(rand.Text()[:8])
	w := &world{t: t, kafka: kafka.DefaultConfig(), topics: wire.Topics{Prefix: "tgr-" + suffix}, cfg: robot.DefaultConfig(),
		group: "tgr-" + suffix, logs: logs, log: zap.New(core)}
	w.kafka.Brokers = []string{os.Getenv("TIDEGATE_TEST_KAFKA")}
	if w.kafka.Brokers[0] == "" {
		b, err := kafkamem.Start(kafkamem.Options{Dir: t.TempDir()})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		w.kafka.Brokers[0] = b.Addr()
	}
	w.cfg.Group = w.group
	for _, a := range accounts {
		w.ensure(w.topics.Callbacks(a), w.topics.Replies(a))
	}
	w.ensure(w.topics.Shared()...)
	var err error
	w.prod, err = kafka.NewProducer(w.kafka, kafka.ProducerOptions{MaxBlock: 20 * time.Second}, zap.NewNop(), prometheus.NewRegistry())
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, w.prod.Close(ctx))
	})
	w.engine, err = engine.Parse("rules.yaml", []byte(rules), engine.Known{})
	require.NoError(t, err)
	w.cfg.Backends = []backend.Config{{Name: "core", BaseURL: "http://127.0.0.1:1", Attempts: 1}}
	return w
}

func (w *world) ensure(topics ...string) {
	w.t.Helper()
	a, err := kafka.NewAdmin(w.kafka)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, a.Close()) }()
	var specs []kafka.TopicSpec
	for _, name := range topics {
		specs = append(specs, kafka.TopicSpec{Name: name, Partitions: wire.PartitionsEmbedded, Replication: 1})
	}
	_, err = a.EnsureTopics(w.t.Context(), specs)
	require.NoError(w.t, err)
}

// backend puts a business system behind the name core.
func (w *world) backend(h http.HandlerFunc, change ...func(*backend.Config)) {
	s := httptest.NewServer(h)
	w.t.Cleanup(s.Close)
	c := backend.Config{Name: "core", BaseURL: s.URL, Attempts: 1, Rate: 1e5, Burst: 1000, Concurrency: 1000}
	for _, f := range change {
		f(&c)
	}
	w.cfg.Backends = []backend.Config{c}
}

func account(name string) robot.Account { return robot.Account{Name: name} }

// running is a robot that runs; stop ends it and waits.
type running struct {
	*robot.Robot
	stop func()
}

func (w *world) start(accounts ...robot.Account) *running {
	w.t.Helper()
	w.reg = prometheus.NewRegistry()
	r, err := robot.New(w.cfg, accounts, robot.Deps{
		Kafka: w.kafka, Topics: w.topics, Publisher: w, Rules: w.engine, Log: w.log,
		Hasher: telemetry.NewHasher([]byte("k")), Registry: w.reg, Now: w.now,
		Alarms: w.alarms, Knobs: w.knobs, Node: "node-1",
	})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			require.NoError(w.t, <-done)
		})
	}
	w.t.Cleanup(stop)
	return &running{r, stop}
}

// callback makes the letter that the door would write.
func callback(acct, openid string, n int, content string) *wire.Callback {
	identity := fmt.Sprintf("%s/%s/%d", acct, openid, n)
	hash := idgen.HashOf(identity)
	return &wire.Callback{
		ID: idgen.Derive(idgen.User(appID, openid), hash), IdentityHash: hash.String(), Identity: identity, Account: acct, OpenID: openid,
		MsgType: "text", MsgID: strconv.Itoa(n), CreateTime: 1893456001, Content: content, ReceivedAt: wire.Millis(time.Now()),
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

// send publishes callbacks in order, as the door does.
func (w *world) send(cs ...*wire.Callback) {
	w.t.Helper()
	for _, c := range cs {
		key, value, headers, err := wire.Encode(c)
		require.NoError(w.t, err)
		w.raw(c.Account, kafka.Record{Key: key, Value: value, Headers: headers})
	}
}

func (w *world) raw(acct string, r kafka.Record) {
	w.t.Helper()
	r.Topic = w.topics.Callbacks(acct)
	_, err := w.prod.Publish(w.t.Context(), r)
	require.NoError(w.t, err)
}

// published gives the letters of one kind in the order of durability.
func published[T any, P interface {
	*T
	wire.Letter
}](w *world) []*T {
	w.t.Helper()
	var l T
	kind := string(P(&l).Kind())
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*T
	for _, r := range w.durable {
		if wire.HeaderValue(r.Headers, wire.HeaderKind) != kind {
			continue
		}
		letter, err := wire.Decode[T, P](r.Value, r.Headers)
		require.NoError(w.t, err)
		out = append(out, letter)
	}
	return out
}

func (w *world) replies() []*wire.Reply    { return published[wire.Reply](w) }
func (w *world) receipts() []*wire.Receipt { return published[wire.Receipt](w) }
func (w *world) dead() []*wire.DeadLetter  { return published[wire.DeadLetter](w) }
func (w *world) receipt(id string) *wire.Receipt {
	w.t.Helper()
	var found []*wire.Receipt
	for _, r := range w.receipts() {
		if r.ID == id {
			found = append(found, r)
		}
	}
	require.Len(w.t, found, 1, "one receipt per callback")
	return found[0]
}

func (w *world) awaitReceipts(n int) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return len(w.receipts()) >= n }, patient, 20*time.Millisecond, "%d receipts are expected", n)
	require.Len(w.t, w.receipts(), n)
}

// texts are the replies to one follower, in order.
func (w *world) texts(openid string) []string {
	var out []string
	for _, r := range w.replies() {
		if r.OpenID == openid {
			out = append(out, r.Content.Text)
		}
	}
	return out
}

// uncommitted is how many callbacks of an account the group has not finished.
func (w *world) uncommitted(acct string) int64 {
	w.t.Helper()
	a, err := kafka.NewAdmin(w.kafka)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, a.Close()) }()
	lags, err := a.Lag(w.t.Context(), w.group+"."+acct, []string{w.topics.Callbacks(acct)})
	require.NoError(w.t, err)
	var sum int64
	for _, l := range lags {
		sum += l.Lag
	}
	return sum
}
