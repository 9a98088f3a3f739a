//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wire"
)

// sendWorld is what outlives a run: programs, engines, the instant WeChat and the
// topics.
type sendWorld struct {
	settings     sendSettings
	robotWorld   // engines and their clients
	wechat       *instant
	station      *station
	db           *sqldb.DB
	postgresAddr string
	file         string
	ids          []string // of the pushes of the present fill
	counted      int      // intents of earlier runs
}

func (w *sendWorld) open(ctx context.Context) (err error) {
	dsn := os.Getenv("TIDEGATE_TEST_POSTGRES")
	w.kafkaAddr, w.redisAddr = os.Getenv("TIDEGATE_TEST_KAFKA"), os.Getenv("TIDEGATE_TEST_REDIS")
	if w.kafkaAddr == "" || w.redisAddr == "" || dsn == "" {
		return errors.New(`TIDEGATE_TEST_KAFKA, _REDIS and _POSTGRES are not set: run deployments/dev/engines up, then eval "$(deployments/dev/engines env)"`)
	}
	w.id = "benchs" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if w.dir, err = os.MkdirTemp("", "tidegate-bench"); err != nil {
		return err
	}
	w.stack = append(w.stack, func() error { return os.RemoveAll(w.dir) })
	for name, pkg := range map[string]string{"tidegate": ".", "post": "./test/bench/post"} {
		if err := command(ctx, ".", "go", "build", "-tags", "bench", "-o", filepath.Join(w.dir, name), pkg); err != nil {
			return err
		}
	}
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{w.kafkaAddr}
	if w.admin, err = kafka.NewAdmin(cfg); err != nil {
		return err
	}
	w.stack = append(w.stack, w.admin.Close)
	if w.producer, err = kafka.NewProducer(cfg, kafka.ProducerOptions{Linger: 5 * time.Millisecond}, zap.NewNop(), nil); err != nil {
		return err
	}
	w.stack = append(w.stack, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return w.producer.Close(ctx)
	})
	var stop func() error
	if w.wechat, stop, err = startInstant(ctx); err != nil {
		return err
	}
	w.stack = append(w.stack, stop)
	if dsn, err = w.schema(ctx, dsn); err != nil {
		return err
	}
	w.file = filepath.Join(w.dir, "sender.yaml")
	text := fmt.Appendf(nil, sendYAML, w.id, wire.Partitions, w.kafkaAddr, w.redisAddr, dsn, w.wechat.url, ghID, appID, token, w.settings.places)
	if err := os.WriteFile(w.file, text, 0o600); err != nil {
		return err
	}
	if err := command(ctx, w.dir, filepath.Join(w.dir, "tidegate"), "topics", "--config", w.file); err != nil {
		return err
	}
	w.station = &station{w: &w.robotWorld, names: wire.Topics{Prefix: w.id}, copied: w.id + ".none", used: map[string]int64{}, begin: map[string]map[int32]int64{}}
	return nil
}

// schema makes one of our own in PostgreSQL, and gives the DSN that uses it.
func (w *sendWorld) schema(ctx context.Context, dsn string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("TIDEGATE_TEST_POSTGRES is not a URL such as postgres://user@host:5432/name")
	}
	w.postgresAddr = u.Host
	admin, err := sqldb.Open(ctx, sqldb.Config{Driver: sqldb.Postgres, DSN: dsn})
	if err != nil {
		return "", err
	}
	if _, err := admin.Exec(ctx, "CREATE SCHEMA "+w.id); err != nil {
		return "", errors.Join(err, admin.Close())
	}
	w.stack = append(w.stack, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_, err := admin.Exec(ctx, "DROP SCHEMA "+w.id+" CASCADE")
		return errors.Join(err, admin.Close())
	})
	q := u.Query()
	q.Set("search_path", w.id)
	u.RawQuery = q.Encode()
	if w.db, err = sqldb.Open(ctx, sqldb.Config{Driver: sqldb.Postgres, DSN: u.String()}); err != nil {
		return "", err
	}
	w.stack = append(w.stack, w.db.Close)
	return u.String(), nil
}

// The sender as it is shipped: the configuration names engines, an account and its
// WeChat, and a cap that is none. Only the places are the benchmark's.
const sendYAML = `
log: {level: warn, format: json, hash_key: bench}
topics: {prefix: %[1]s, partitions: %[2]d, replication: 1, min_insync_replicas: 1, retention: 24h}
kafka: {brokers: ["%[3]s"]}
redis: {addrs: ["%[4]s"], prefix: %[1]s}
database: {driver: postgres, dsn: "%[5]s"}
wechat: {base_urls: ["%[6]s"]}
accounts:
  - name: bench
    mode: safe
    gh_id: %[7]s
    app_id: %[8]s
    token: %[9]s
    encoding_aes_key: Qm7rT0xkV3sZ9bYh2LdNcP5wEaGfJu8oXiKyRzMt4Bq
    secret: 0123456789abcdef0123456789abcdef
    sender: {template: {rate: 100000, burst: 10000, concurrency: %[10]d}}
`

// topic is where the pushes wait.
func (w *sendWorld) topic() string {
	return w.station.names.Pushes(robotAccount, wire.LaneRealtime)
}

// fill publishes n pushes to 10,000 users, as the intake does.
func (w *sendWorld) fill(ctx context.Context, n int) error {
	const chunk = 5000
	w.station.n, w.ids = n, make([]string, 0, n)
	batch := make([]kafka.Record, 0, chunk)
	for i := range n {
		r, id, err := w.push(w.station.next)
		if err != nil {
			return err
		}
		w.station.next++
		w.ids = append(w.ids, id)
		if batch = append(batch, r); len(batch) == chunk || i == n-1 {
			if err := w.producer.PublishAll(ctx, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}

func (w *sendWorld) push(i int) (kafka.Record, string, error) {
	openid := fmt.Sprintf("oBench%022d", i%users)
	h := idgen.HashOf("push", w.id, strconv.Itoa(i))
	p := &wire.Push{
		ID: idgen.Derive(idgen.User(appID, openid), h), IdentityHash: h.String(), Account: robotAccount, App: "shop", Lane: wire.LaneRealtime, PushKind: wire.PushTemplate,
		OpenID: openid, TemplateID: "ngqIpbwh8bUfcSsECmogfXcV14J0tQlEpBO27izEYtY", URL: "https://shop.example/orders/" + strconv.Itoa(i),
		Data:      map[string]string{"character_string1": strconv.Itoa(100_000_000 + i), "thing2": "parcel " + strings.Repeat("x", 12), "time3": "2026-11-30 12:00"},
		Reference: "order-" + strconv.Itoa(i), AcceptedAt: time.Now().UnixMilli(), TraceParent: fmt.Sprintf("00-%032x-%016x-01", i+1, i+1),
	}
	key, value, headers, err := wire.Encode(p)
	return kafka.Record{Topic: w.topic(), Key: key, Value: value, Headers: headers}, p.ID, err
}
