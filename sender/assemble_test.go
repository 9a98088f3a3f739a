package sender_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tidegate/pkg/alarm"
	"tidegate/pkg/api"
	"tidegate/pkg/control"
	"tidegate/pkg/credit"
	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/redis"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/sender"
)

// room is a running sender.
type room struct {
	*sender.Sender
	log  *observer.ObservedLogs
	reg  *prometheus.Registry
	stop func()
	keys *api.Book
	// panel gives orders and follows them, in a steered room.
	panel *control.Panel
}

type setup struct {
	cfg       sender.Config
	limits    sender.Limits
	publisher sender.Publisher
	now       func() time.Time
	alarms    *alarm.Board
	wechat    sender.WeChat // nil: the simulator, directly
	secret    string        // the AppSecret; empty: the simulator's
	knobs     *control.Knobs
	credits   *credit.Ledger
	steered   bool // it follows operators' orders
	quiet     sender.QuietHours
}

func defaults(p sender.Publisher) setup {
	s := setup{cfg: sender.DefaultConfig(), publisher: p, limits: sender.Limits{
		Replies: ratelimit.Limit{Rate: 1000, Burst: 50, Concurrency: 16}, Template: ratelimit.Limit{Rate: 1000, Burst: 50, Concurrency: 16},
		Subscription: ratelimit.Limit{Rate: 1000, Burst: 50, Concurrency: 16},
	}}
	s.cfg.Retry.First, s.cfg.Retry.Last = time.Millisecond, 20*time.Millisecond
	return s
}

func (w *world) child() childWorld {
	return childWorld{Kafka: w.kafka.Brokers[0], Prefix: w.prefix, Redis: w.redisAddr, DB: w.db, WeChat: w.sim.URL()}
}

// start runs a sender until the test ends or stop is called.
func (w *world) start(change ...func(*setup)) *room {
	w.t.Helper()
	s := defaults(w.producer)
	for _, c := range change {
		c(&s)
	}
	r, run, closeAll, err := assemble(w.t.Context(), w.child(), s)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(w.t, <-done)
			require.NoError(w.t, closeAll())
		})
	}
	w.t.Cleanup(r.stop)
	return r
}

// assemble makes a sender as package app does.
func assemble(ctx context.Context, w childWorld, s setup) (r *room, run func(context.Context) error, closeAll func() error, err error) {
	core, logs := observer.New(zap.InfoLevel)
	var stack undo
	defer func() {
		if err != nil {
			err = errors.Join(err, stack.close())
		}
	}()
	db, err := sqldb.Open(ctx, w.DB)
	if err != nil {
		return nil, nil, nil, err
	}
	stack = append(stack, db.Close)
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Prefix = []string{w.Redis}, w.Prefix
	rc, err := redis.Open(cfg, zap.NewNop())
	if err != nil {
		return nil, nil, nil, err
	}
	stack = append(stack, rc.Close)
	wx, err := wechat.NewClient(nil, wechat.Options{BaseURLs: []string{w.WeChat}})
	if err != nil {
		return nil, nil, nil, err
	}
	stack = append(stack, func() error { wx.CloseIdle(); return nil })
	if s.secret == "" {
		s.secret = secret
	}
	if s.wechat == nil {
		s.wechat = wx
	}
	if err := api.Migrate(ctx, db); err != nil {
		return nil, nil, nil, err
	}
	r = &room{log: logs, reg: prometheus.NewRegistry(), keys: api.NewBook(db, nil)}
	var orders *control.Orders
	if s.steered {
		if r.panel, err = steer(ctx, db, rc, s.cfg.Node); err != nil {
			return nil, nil, nil, err
		}
		orders = r.panel.Orders()
	}
	var permits sender.Permits
	if w.Shared {
		cl, err := ratelimit.NewCluster(ratelimit.DefaultConfig(), rc, nil, nil)
		if err != nil {
			return nil, nil, nil, err
		}
		stack = append(stack, func() error { return cl.Close(context.Background()) })
		permits = func(name string, l ratelimit.Limit) ratelimit.Permits { return cl.Permits(name, l) }
	}
	r.Sender, err = sender.New(ctx, s.cfg, sender.Deps{
		Kafka: kafka.Config{Brokers: []string{w.Kafka}}, Publisher: s.publisher, Redis: rc, DB: db, WeChat: s.wechat, Keys: api.NewKeys(r.keys),
		IDs: idgen.NewGenerator(idgen.Fixed(3), nil), Topics: wire.Topics{Prefix: w.Prefix}, Log: zap.New(core), Reg: r.reg, Now: s.now, Alarms: s.alarms, Knobs: s.knobs, Credits: s.credits, Orders: orders, Permits: permits,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	err = r.SetAccounts([]sender.Account{{Name: account, AppID: appID, Secret: s.secret, Limits: s.limits, Quiet: s.quiet}})
	return r, r.steered, stack.close, err
}

// steer opens the live settings, as a role does.
func steer(ctx context.Context, db *sqldb.DB, rc *redis.Client, node string) (*control.Panel, error) {
	if err := control.Migrate(ctx, db); err != nil {
		return nil, err
	}
	p, err := control.New(control.Options{DB: db, Redis: rc, Node: node})
	if err == nil {
		p.Prime(ctx)
	}
	return p, err
}

// steered runs the room, and its live settings beside it.
func (r *room) steered(ctx context.Context) error {
	if r.panel == nil {
		return r.Run(ctx)
	}
	beside, end := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	var failed error
	all.Go(func() { failed = r.panel.Run(beside) })
	err := r.Run(ctx)
	end()
	all.Wait()
	return errors.Join(err, failed)
}

// undo closes what was opened, last first.
type undo []func() error

func (s undo) close() error {
	var errs []error
	for i := len(s) - 1; i >= 0; i-- {
		errs = append(errs, s[i]())
	}
	return errors.Join(errs...)
}
