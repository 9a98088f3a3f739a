package app

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/kafka/kafkamem"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/run"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
	"tidegate/robot"
	"tidegate/sender"
)

//go:embed dev_rules.yaml
var devRules []byte

// devAccount is the account's name in `tidegate dev`.
const devAccount = "demo"

// devFreshness lets the simulator's clock be moved by hours and days.
const devFreshness = 10 * 365 * 24 * time.Hour

// devFollowers is how many followers the simulated account has.
const devFollowers = 200

// devWorld is everything that runs in `tidegate dev`.
type devWorld struct {
	log     *zap.Logger
	dir     string
	began   time.Time
	cfg     Config
	engines *engines
	sim     *wechatsim.Sim
	key     string // API key of the simulated business system
	parts   map[Role]*part
	ops     *run.HTTPServer
	api     *run.HTTPServer
	breaker *breaker // nil unless a fault is injected
	roles   *run.Group
	stack   run.Stack
	pushes  atomic.Int64 // accepted pushes
}

// startDev starts engines, simulator and roles. The returned world is never
// nil, so that what was begun can be stopped after an error.
func startDev(ctx context.Context, o DevOptions, dir string, log *zap.Logger) (*devWorld, error) {
	w := &devWorld{log: log, dir: dir, began: time.Now(), parts: map[Role]*part{}, roles: run.NewGroup(context.WithoutCancel(ctx))}
	secrets, err := devSecrets(filepath.Join(dir, "account.json"))
	if err != nil {
		return w, err
	}
	w.cfg = devConfig(o, dir, secrets)
	if err := w.startEngines(); err != nil {
		return w, err
	}
	if err := w.startSim(o, secrets); err != nil {
		return w, err
	}
	w.cfg.WeChat.BaseURLs = []string{w.sim.URL()}
	if err := w.startBackend(); err != nil {
		return w, err
	}
	return w, w.startRoles(ctx, o)
}

// devConfig is the configuration of every role at once.
func devConfig(o DevOptions, dir string, s wechatsim.Account) Config {
	c := DefaultConfig()
	c.Topics.Partitions, c.Topics.Replication, c.Topics.MinISR = wire.PartitionsEmbedded, 1, 1
	c.Database.DSN = filepath.Join(dir, "tidegate.db")
	c.Database.Synchronous = "normal"
	c.Permits.MaxNodes, c.Permits.Timeout, c.Permits.PlaceLife = 1, 150*time.Millisecond, 500*time.Millisecond // one process, which is busy
	c.Rules = o.Rules
	// The summary promises an echo for each callback, also on a machine that is too
	// busy for the rate: nobody is refused.
	c.Robot.Overload.Vital, c.Robot.Overload.Query = 0, 0
	c.Robot.Overload.Event, c.Robot.Overload.Marketing = 0, 0
	c.Robot.Dialogue.Key = rand.Text() // dialogues end with the embedded Redis
	c.Accounts = []AccountConfig{{
		Name: devAccount, GhID: s.GhID, Secret: s.Secret,
		Credentials: wechat.Credentials{AppID: s.AppID, Token: s.Token, EncodingAESKey: s.EncodingAESKey, Mode: wechat.ModeSafe, Freshness: devFreshness},
		Robot:       robot.Limits{Rate: 1000, Burst: 50, Concurrency: 64},
		Sender: sender.Limits{
			Replies:      ratelimit.Limit{Rate: 1000, Burst: 50, Concurrency: 64},
			Template:     ratelimit.Limit{Rate: 200, Burst: 20, Concurrency: 32},
			Subscription: ratelimit.Limit{Rate: 200, Burst: 20, Concurrency: 32},
		},
	}}
	c.Proxy.HTTP.Addr = devAddr(o.Port, 0)
	c.Proxy.Spool.Dir = filepath.Join(dir, "spool")
	c.API.Addr = devAddr(o.Port, 1)
	c.Ops.Addr = devAddr(o.Port, 2)
	c.nameGroups()
	return c
}

// devAddr is 127.0.0.1 with the n-th port of the run. A port that is taken
// is replaced by a free one: the run prints what it uses.
func devAddr(first, n int) string {
	if first > 0 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(first+n))
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	return "127.0.0.1:0"
}

// startEngines starts Kafka, Redis and SQL inside this process. What the
// embedded Redis knows is gone after a restart; nothing depends on it.
func (w *devWorld) startEngines() error {
	broker, err := kafkamem.Start(kafkamem.Options{Dir: filepath.Join(w.dir, "kafka"), Partitions: wire.PartitionsEmbedded})
	if err != nil {
		return fmt.Errorf("embedded Kafka: %w", err)
	}
	w.stack.Push("embedded Kafka", func(context.Context) error { return broker.Close() })
	cache, err := redismem.Start("127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("embedded Redis: %w", err)
	}
	w.stack.Push("embedded Redis", func(context.Context) error { cache.Close(); return nil })
	w.cfg.Kafka.Brokers = []string{broker.Addr()}
	w.cfg.Redis.Addrs = []string{cache.Addr()}
	w.engines = newEngines(w.cfg, w.log)
	w.stack.Push("clients", w.engines.stack.Stop)
	return nil
}

// startSim starts the simulated WeChat. Its journal lies in the data
// directory, so that a verdict spans restarts.
func (w *devWorld) startSim(o DevOptions, a wechatsim.Account) error {
	cfg := wechatsim.DefaultConfig()
	if o.For > 0 {
		// WeChat repeats after 5 and 10 s. A run that ends by itself would spend
		// most of its time waiting for the last repeats.
		cfg.Timeout = 1500 * time.Millisecond
	}
	cfg.Accounts = []wechatsim.Account{a}
	cfg.Journal.File = filepath.Join(w.dir, "journal.ndjson")
	cfg.Seed = 1
	cfg.Addr = devAddr(portOf(w.cfg.Proxy.HTTP.Addr), 3)
	sim, err := wechatsim.New(cfg, w.log.Named("sim"))
	if err != nil {
		return fmt.Errorf("simulator: %w", err)
	}
	w.sim = sim
	w.stack.Push("simulator", func(context.Context) error { return sim.Close() })
	return sim.Start()
}

func portOf(addr string) int {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return 0
	}
	return n
}

// startRoles makes the topics, starts the rooms against the stream, so that
// nobody publishes into the void, and opens the door last.
func (w *devWorld) startRoles(ctx context.Context, o DevOptions) error {
	w.engines.cfg = w.cfg
	admin, err := w.engines.Admin()
	if err != nil {
		return err
	}
	if _, err := admin.EnsureTopics(ctx, w.cfg.topicSpecs()); err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	if err := w.makeKey(ctx); err != nil {
		return err
	}
	w.stack.Push("roles", func(context.Context) error {
		w.roles.Stop()
		_, err := waitFor(w.roles, w.stopTimeout())
		return err
	})
	ops, err := w.engines.newOps()
	if err != nil {
		return err
	}
	for _, role := range []Role{RoleReceipts, RoleSender, RoleRobot, RoleProxy} {
		p, err := buildPart(ctx, role, w.engines, partOptions{rules: w.rulesSource(o), breakBy: o.Break, breaker: &w.breaker})
		if err != nil {
			return fmt.Errorf("%s: %w", role, err)
		}
		w.parts[role] = p
		p.register(ops)
		for _, s := range p.services {
			w.roles.Go(s)
		}
	}
	if err := w.openListeners(ops); err != nil {
		return err
	}
	door := "http://" + w.parts[RoleProxy].addr["door"] + "/wx/" + devAccount
	return w.sim.SetCallbackURL(ctx, "", door, true)
}

// openListeners serves both shares of the public API on one address, as a
// reverse proxy in front of sender and receipts would.
func (w *devWorld) openListeners(ops http.Handler) error {
	api := http.NewServeMux()
	api.Handle("/v1/pushes", w.parts[RoleSender].handler)
	api.Handle("/v1/pushes:batch", w.parts[RoleSender].handler)
	api.Handle("/v1/openapi.json", w.parts[RoleSender].handler)
	api.Handle("/v1/accounts/{id}/token", w.parts[RoleSender].handler)
	api.Handle("/", w.parts[RoleReceipts].handler)
	if h := w.parts[RoleRobot].handler; h != nil {
		api.Handle("/v1/accounts/", h)
	}
	for _, l := range []struct {
		server **run.HTTPServer
		name   string
		cfg    run.HTTPConfig
		h      http.Handler
	}{{&w.ops, "operations", w.cfg.Ops.HTTPConfig, ops}, {&w.api, "api", w.cfg.API, api}} {
		s, err := run.NewHTTPServer(l.name, l.cfg, l.h, w.log)
		if err != nil {
			return err
		}
		*l.server = s
		w.roles.Go(s)
	}
	return nil
}

func (w *devWorld) rulesSource(o DevOptions) rulesSource {
	if o.Rules != "" {
		return rulesSource{path: o.Rules}
	}
	return rulesSource{path: "(built-in rules)", content: devRules}
}

// makeKey gives the simulated business system a key of its own.
func (w *devWorld) makeKey(ctx context.Context) error {
	db, err := w.engines.DB(ctx)
	if err != nil {
		return err
	}
	if err := api.Migrate(ctx, db); err != nil {
		return err
	}
	_, key, err := api.NewBook(db, nil).Add(ctx, "demo", append(api.DefaultScopes(), api.AllApps), []string{devAccount})
	if err != nil {
		return fmt.Errorf("make an API key: %w", err)
	}
	w.key = key
	return nil
}

// stop ends everything within the deadline of a clean stop.
func (w *devWorld) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), w.stopTimeout())
	defer cancel()
	err := w.stack.Stop(ctx)
	_ = w.log.Sync()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func (w *devWorld) stopTimeout() time.Duration {
	if w.cfg.StopTimeout > 0 {
		return w.cfg.StopTimeout
	}
	return 15 * time.Second
}
