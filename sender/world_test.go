package sender_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
)

// world is everything around a sender: queue, Redis, database, WeChat.
type world struct {
	t         *testing.T
	prefix    string
	kafka     kafka.Config
	redisAddr string
	db        sqldb.Config
	sim       *wechatsim.Sim
	followers []string
	producer  *kafka.Producer
	receipts  *collector
	dead      *collector
	arrived   func(wechatsim.Entry) // hook of arrivals, set before traffic
	hookMu    sync.Mutex
}

const (
	appID    = "wx9f3c7b21d08e4a56"
	secret   = "0123456789abcdef0123456789abcdef"
	account  = "shop"
	bank     = "bank"
	bankID   = "wx00000000000000ba"
	template = "ngqIpbwh8bUfcSsECmogfXcV14J0tQlEpBO27izEYtY"
)

func newWorld(t *testing.T, change ...func(*wechatsim.Config)) *world {
	t.Helper()
	w := &world{t: t, prefix: fmt.Sprintf("t%d", time.Now().UnixNano()), db: database(t), redisAddr: os.Getenv("TIDEGATE_TEST_REDIS")}
	w.startKafka()
	if w.redisAddr == "" {
		r, err := redismem.Start("")
		require.NoError(t, err)
		t.Cleanup(r.Close)
		w.redisAddr = r.Addr()
	}
	door := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "success") }))
	t.Cleanup(door.Close)
	cfg := wechatsim.DefaultConfig()
	cfg.Addr = "127.0.0.1:0"
	cfg.Receipts.Off = true
	cfg.Limits.Message = wechatsim.Window{Count: 1000, Life: 48 * time.Hour}
	cfg.Accounts = []wechatsim.Account{{AppID: appID, Secret: secret, GhID: "gh_5d1e0a77c3b2", Token: "token", Mode: wechatsim.ModePlain, Followers: 20, CallbackURL: door.URL},
		{AppID: bankID, Secret: secret, GhID: "gh_00000000bank", Token: "token", Mode: wechatsim.ModePlain, Followers: 5}}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	w.sim, err = wechatsim.New(cfg, zap.NewNop(), wechatsim.WithArrivalHook(w.hook))
	require.NoError(t, err)
	require.NoError(t, w.sim.Start())
	t.Cleanup(func() { require.NoError(t, w.sim.Close()) })
	w.followers, err = w.sim.Followers(appID, 0)
	require.NoError(t, err)
	for _, f := range w.followers {
		_, err := w.sim.Act(t.Context(), appID, wechatsim.Text(f, "hello"))
		require.NoError(t, err)
	}
	w.producer, err = kafka.NewProducer(w.kafka, kafka.ProducerOptions{MaxBlock: 20 * time.Second}, zap.NewNop(), prometheus.NewRegistry())
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(t, w.producer.Close(ctx))
	})
	w.receipts = w.collect(w.topics().Receipts())
	w.dead = w.collect(w.topics().DeadLetters())
	return w
}

// database is PostgreSQL where the environment names one, and SQLite otherwise.
func database(t *testing.T) sqldb.Config {
	if os.Getenv(sqldbtest.PostgresVar) != "" {
		return sqldbtest.PostgresConfig(t)
	}
	return sqldbtest.SQLiteConfig(t)
}

func (w *world) hook(e wechatsim.Entry) {
	w.hookMu.Lock()
	f := w.arrived
	w.hookMu.Unlock()
	if f != nil {
		f(e)
	}
}

func (w *world) onArrival(f func(wechatsim.Entry)) {
	w.hookMu.Lock()
	defer w.hookMu.Unlock()
	w.arrived = f
}

func (w *world) topics() wire.Topics { return wire.Topics{Prefix: w.prefix} }

func (w *world) startKafka() {
	addr := os.Getenv("TIDEGATE_TEST_KAFKA")
	if addr == "" {
		b, err := kafkamem.Start(kafkamem.Options{})
		require.NoError(w.t, err)
		w.t.Cleanup(func() { require.NoError(w.t, b.Close()) })
		addr = b.Addr()
	}
	w.kafka = kafka.Config{Brokers: []string{addr}}
	admin, err := kafka.NewAdmin(w.kafka)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, admin.Close()) }()
	var specs []kafka.TopicSpec
	names := append(w.topics().OfAccount(account), w.topics().OfAccount(bank)...)
	for _, name := range append(names, w.topics().Shared()...) {
		specs = append(specs, kafka.TopicSpec{Name: name, Partitions: 2, Replication: 1})
	}
	_, err = admin.EnsureTopics(w.t.Context(), specs)
	require.NoError(w.t, err)
}

// collector reads a topic from its beginning.
type collector struct {
	mu   sync.Mutex
	recs []kafka.Record
}

func (w *world) collect(topic string) *collector {
	w.t.Helper()
	c := &collector{}
	g, err := kafka.NewGroup(w.kafka, kafka.GroupOptions{
		Group: w.prefix + ".test." + topic, Topics: []string{topic},
		Handler: func(_ context.Context, r kafka.Record) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.recs = append(c.recs, r)
			return nil
		},
	}, zap.NewNop(), prometheus.NewRegistry())
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-done })
	return c
}

func (c *collector) all() []kafka.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]kafka.Record(nil), c.recs...)
}

// outcome waits for the receipts of a message and gives the last.
func (w *world) outcome(id string) wire.Receipt {
	w.t.Helper()
	var got []wire.Receipt
	require.Eventually(w.t, func() bool { got = w.outcomes(id); return len(got) > 0 }, 30*time.Second, 5*time.Millisecond, "no receipt of %s", id)
	return got[len(got)-1]
}

func (w *world) outcomes(id string) []wire.Receipt {
	w.t.Helper()
	var got []wire.Receipt
	for _, rec := range w.receipts.all() {
		r, err := wire.Decode[wire.Receipt](rec.Value, rec.Headers)
		require.NoError(w.t, err)
		if r.ID == id {
			require.Equal(w.t, r.OpenID, string(rec.Key))
			got = append(got, *r)
		}
	}
	return got
}

func (w *world) put(topic string, l wire.Letter) {
	w.t.Helper()
	key, value, headers, err := wire.Encode(l)
	require.NoError(w.t, err)
	_, err = w.producer.Publish(w.t.Context(), kafka.Record{Topic: topic, Key: key, Value: value, Headers: headers})
	require.NoError(w.t, err)
}

// push queues a template push as intake does and gives its id.
func (w *world) push(name string, change ...func(*wire.Push)) string {
	w.t.Helper()
	h := idgen.HashOf("push", "crm", name)
	p := &wire.Push{
		Account: account, App: "crm", Lane: wire.LaneRealtime, PushKind: wire.PushTemplate, OpenID: w.followers[0],
		TemplateID: template, Data: map[string]string{"thing1": name}, Reference: name,
		IdentityHash: h.String(), AcceptedAt: time.Now().UnixMilli(),
	}
	for _, c := range change {
		c(p)
	}
	p.ID = idgen.Derive(idgen.User(appID, p.OpenID), h)
	w.put(w.topics().Pushes(p.Account, p.Lane), p)
	return p.ID
}

// reply queues a reply as a robot does and gives its id.
func (w *world) reply(name string, change ...func(*wire.Reply)) string {
	w.t.Helper()
	h := idgen.HashOf("reply", name)
	r := &wire.Reply{
		Account: account, OpenID: w.followers[0], Content: wire.Content{Type: "text", Text: name},
		Class: wire.PreferDuplicate, CallbackID: idgen.Derive(idgen.User(appID, w.followers[0]), idgen.HashOf("callback", name)),
		IdentityHash: h.String(), ReceivedAt: time.Now().UnixMilli(), CreatedAt: time.Now().UnixMilli(),
	}
	for _, c := range change {
		c(r)
	}
	r.ID = idgen.Derive(idgen.User(appID, r.OpenID), h)
	w.put(w.topics().Replies(account), r)
	return r.ID
}

// arrivals lists the requests that reached WeChat at a path.
func (w *world) arrivals(path string) []wechatsim.Entry {
	got, _ := w.sim.Journal().Read(0, 1<<20, func(e *wechatsim.Entry) bool {
		return e.Kind == wechatsim.KindArrival && e.What == path
	})
	return got
}
