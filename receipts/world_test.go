package receipts_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tidegate/pkg/alarm"
	"tidegate/pkg/api"
	"tidegate/pkg/control"
	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
	"tidegate/receipts"
	"tidegate/receipts/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a receipts room with everything around it: queue, database, keys.
type world struct {
	*testing.T
	room     *receipts.Room
	cfg      receipts.Config
	kafka    kafka.Config
	topics   wire.Topics
	producer *kafka.Producer
	gate     *gate
	admin    *kafka.Admin
	db       *sqldb.DB
	book     *api.Book
	reg      *prometheus.Registry
	log      *zap.Logger
	logs     *observer.ObservedLogs
	clock    *clock
	alarms   *told
	hasher   telemetry.Hasher
	keys     map[string]string // name to key text
	stop     func()
}

// each runs a test on every database at hand; the queue is the real one where
// TIDEGATE_TEST_KAFKA names it.
func each(t *testing.T, test func(w *world), change ...func(*receipts.Config)) {
	t.Parallel() // worlds share nothing, and mostly wait
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) { test(newWorld(t, db, change...)) })
}

func newWorld(t *testing.T, db *sqldb.DB, change ...func(*receipts.Config)) *world {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	w := &world{T: t, topics: wire.Topics{Prefix: "r" + strings.ToLower(rand.Text()[:12])}, db: db, reg: prometheus.NewRegistry(),
		clock: &clock{}, alarms: &told{}, hasher: telemetry.NewHasher([]byte("key of the test")), keys: map[string]string{}, logs: logs, log: zap.New(core)}
	w.startKafka()
	require.NoError(t, api.Migrate(t.Context(), db))
	require.NoError(t, control.Migrate(t.Context(), db))
	w.book = api.NewBook(db, w.clock.now)
	w.key("card", api.DefaultScopes(), "bank", "shop")
	w.key("till", api.DefaultScopes(), "shop")
	w.key("ops", append(api.DefaultScopes(), api.AllApps), "*")
	w.cfg = receipts.DefaultConfig()
	w.cfg.Group = w.topics.Prefix
	w.cfg.HousekeepingEvery = 100 * time.Millisecond
	for _, c := range change {
		c(&w.cfg)
	}
	w.open()
	w.start()
	return w
}

func (w *world) startKafka() {
	addr := os.Getenv("TIDEGATE_TEST_KAFKA")
	if addr == "" {
		b, err := kafkamem.Start(kafkamem.Options{})
		require.NoError(w, err)
		w.Cleanup(func() { require.NoError(w, b.Close()) })
		addr = b.Addr()
	}
	w.kafka = kafka.Config{Brokers: []string{addr}}
	admin, err := kafka.NewAdmin(w.kafka)
	require.NoError(w, err)
	w.admin = admin
	w.Cleanup(func() { require.NoError(w, admin.Close()) })
	var specs []kafka.TopicSpec
	for _, name := range append(append(w.topics.OfAccount("bank"), w.topics.OfAccount("shop")...), w.topics.Shared()...) {
		specs = append(specs, kafka.TopicSpec{Name: name, Partitions: 2, Replication: 1})
	}
	_, err = admin.EnsureTopics(w.Context(), specs)
	require.NoError(w, err)
	p, err := kafka.NewProducer(w.kafka, kafka.ProducerOptions{MaxBlock: 20 * time.Second}, zap.NewNop(), nil)
	require.NoError(w, err)
	w.producer, w.gate = p, &gate{Producer: p}
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(w, p.Close(ctx))
	})
}

func (w *world) key(name string, scopes []string, accounts ...string) {
	w.Helper()
	_, text, err := w.book.Add(w.Context(), name, scopes, accounts)
	require.NoError(w, err)
	w.keys[name] = text
}

func (w *world) open() {
	w.Helper()
	var err error
	w.room, err = receipts.New(w.Context(), w.cfg, receipts.Deps{Kafka: w.kafka, Publisher: w.gate, Queues: w.admin, DB: w.db, Keys: api.NewKeys(w.book),
		Topics: w.topics, Log: w.log, Registry: w.reg, Now: w.clock.now, Audit: control.NewStore(w.db, w.clock.now),
		Alarms: alarm.NewBoard(w.log, nil, w.clock.now, w.alarms), Hasher: w.hasher})
	require.NoError(w, err)
	require.NoError(w, w.room.SetAccounts([]string{"bank", "shop"}))
}

func (w *world) start() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.room.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w, <-done)
	})
	w.Cleanup(w.stop)
}

// put queues a letter as a room does.
func (w *world) put(topic string, l wire.Letter) {
	w.Helper()
	key, value, headers, err := wire.Encode(l)
	require.NoError(w, err)
	w.raw(kafka.Record{Topic: topic, Key: key, Value: value, Headers: headers})
}

func (w *world) raw(r kafka.Record) kafka.Record {
	w.Helper()
	r, err := w.producer.Publish(w.Context(), r)
	require.NoError(w, err)
	return r
}

func openID(n int) string { return fmt.Sprintf("oFollower-%04d", n) }

func idOf(n int) (string, string) {
	h := idgen.HashOf("test", fmt.Sprint(n))
	return idgen.Derive(idgen.User("wx1", openID(n)), h), h.String()
}

func (w *world) push(n int) *wire.Push {
	id, h := idOf(n)
	return &wire.Push{ID: id, IdentityHash: h, Account: "bank", App: "card", Lane: wire.LaneRealtime, PushKind: wire.PushTemplate,
		OpenID: openID(n), TemplateID: "tpl-1", Reference: fmt.Sprint("bill ", n), Data: map[string]string{"thing1": "账单"},
		AcceptedAt: w.clock.now().UnixMilli()}
}

func (w *world) queue(p *wire.Push) { w.put(w.topics.Pushes(p.Account, p.Lane), p) }

func (w *world) outcome(p *wire.Push, st wire.State, change ...func(*wire.Receipt)) {
	r := &wire.Receipt{Source: wire.FromSender, MessageKind: wire.KindPush, ID: p.ID, IdentityHash: p.IdentityHash, Account: p.Account,
		OpenID: p.OpenID, App: p.App, Lane: p.Lane, TemplateID: p.TemplateID, Reference: p.Reference, State: st, Attempt: 1, At: w.clock.now().UnixMilli()}
	for _, c := range change {
		c(r)
	}
	w.put(w.topics.Receipts(), r)
}

func (w *world) event(p *wire.Push, msgID string, st wire.State) {
	w.put(w.topics.Receipts(), &wire.Receipt{Source: wire.FromWeChat, MessageKind: wire.KindPush, Account: p.Account, OpenID: p.OpenID,
		MsgID: msgID, State: st, Reason: string(st), Event: "TEMPLATESENDJOBFINISH", At: w.clock.now().UnixMilli()})
}

// call sends a request to the API with an app's key.
func (w *world) call(app, method, path string, body any) (int, map[string]any) {
	w.Helper()
	code, _, text := w.fetch(app, method, path, body)
	var out map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	require.NoError(w, d.Decode(&out), "%s", text)
	return code, out
}

func (w *world) fetch(app, method, path string, body any) (int, http.Header, []byte) {
	w.Helper()
	var in io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		require.NoError(w, err)
		in = bytes.NewReader(b)
	}
	r := httptest.NewRequest(method, path, in)
	r.Header.Set("Authorization", "Bearer "+w.keys[app])
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	rec := httptest.NewRecorder()
	w.room.Handler().ServeHTTP(rec, r)
	return rec.Code, rec.Header(), rec.Body.Bytes()
}

// metric adds up a metric over its labels.
func (w *world) metric(name string) float64 {
	w.Helper()
	families, err := w.reg.Gather()
	require.NoError(w, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// message waits until a message is in a state and gives it.
func (w *world) message(id string, st wire.State) map[string]any {
	w.Helper()
	var got map[string]any
	require.Eventually(w, func() bool {
		_, got = w.call("ops", http.MethodGet, "/v1/messages/"+id, nil)
		return got["state"] == string(st)
	}, 30*time.Second, 10*time.Millisecond, "message %s does not become %s", id, st)
	return got
}

// settled waits until n rows are in a state.
func (w *world) settled(n int, st wire.State) {
	w.Helper()
	require.Eventually(w, func() bool {
		got, err := w.room.Store().Count(context.Background(), store.Filter{States: []wire.State{st}}, 1_000_000)
		return err == nil && got == n
	}, 30*time.Second, 10*time.Millisecond)
}

// read collects what is on a topic, until it has n records.
func (w *world) read(topic string, n int) []kafka.Record {
	w.Helper()
	var mu sync.Mutex
	var got []kafka.Record
	enough := make(chan struct{}, 1)
	g, err := kafka.NewGroup(w.kafka, kafka.GroupOptions{Group: w.topics.Prefix + rand.Text(), Topics: []string{topic},
		Handler: func(_ context.Context, r kafka.Record) error {
			mu.Lock()
			defer mu.Unlock()
			if got = append(got, r); len(got) >= n {
				select {
				case enough <- struct{}{}:
				default:
				}
			}
			return nil
		}}, zap.NewNop(), prometheus.NewRegistry())
	require.NoError(w, err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	select {
	case <-enough:
	case <-ctx.Done():
	}
	cancel()
	require.NoError(w, <-done)
	mu.Lock()
	defer mu.Unlock()
	require.Len(w, got, n)
	return got
}
