package robot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/control"
	"tidegate/pkg/credit"
	"tidegate/pkg/kafka"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/redis"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
	"tidegate/robot/allowance"
	"tidegate/robot/backend"
	"tidegate/robot/backend/bot"
	"tidegate/robot/binding"
	"tidegate/robot/dialogue"
	"tidegate/robot/engine"
	"tidegate/robot/history"
	"tidegate/robot/plugin"
	"tidegate/robot/suspect"
)

// Publisher puts a record into the queue and returns once every in-sync
// replica has it. It must tolerate many callers.
type Publisher interface {
	Publish(ctx context.Context, r kafka.Record) (kafka.Record, error)
}

// sequencer is a Publisher that has a short way for all that one callback causes;
// *kafka.Producer is one.
type sequencer interface {
	PublishInTurn(ctx context.Context, rs []kafka.Record, limit time.Duration) (done int, err error)
}

// Engine decides what to do with a callback; *engine.Rules is one. It must be
// safe for concurrent use and must not block.
type Engine interface {
	Terms(c *wire.Callback) engine.Terms
	Decide(c *wire.Callback) (engine.Decision, error)
	Fallback() string   // text for a callback that no rule could be followed for
	Backends() []string // names of what decisions may call
}

// Deps is what the robot works with.
type Deps struct {
	Kafka     kafka.Config // for the consumer group
	Topics    wire.Topics
	Publisher Publisher
	Redis     *redis.Client // remembers what was in hand when a process died; nil does not
	Rules     Engine
	Log       *zap.Logger
	Hasher    telemetry.Hasher
	Registry  prometheus.Registerer
	Alarms    *alarm.Board // nil tells nobody
	// Permits makes the caps of accounts and back ends; nil: this process alone
	// holds to them.
	Permits func(name string, l ratelimit.Limit) ratelimit.Permits
	Credits *credit.Ledger   // nil: nobody counts what WeChat takes
	Knobs   *control.Knobs   // nil: the caps are the configuration's
	Node    string           // names this process in alarms
	Now     func() time.Time // nil is the real clock; it stamps letters only
}

// Robot is the room.
type Robot struct {
	cfg      Config
	d        Deps
	m        *metrics
	receipts string // the topic
	backends map[string]*backend.Client
	lines    map[string]*line // of the back ends
	bots     map[string]*bot.Bot
	rules    atomic.Pointer[Engine]
	recent   *recent
	arrivals *arrivals
	pending  *pending
	suspects *suspect.Book
	engines  map[string]*plugin.Client // external ones

	dialogues  *dialogue.Store // nil: no place for them
	allowances *allowance.Book // nil: nobody counts
	holds      *holds
	bindings   *binding.Book // nil: nobody knows
	history    *history.Book // nil: nothing is remembered

	mu      sync.Mutex
	members map[string]*member
	base    context.Context // set while Run runs
	working sync.WaitGroup
	failed  chan error
	guards  map[string]*backend.Guarded
	percent *prometheus.GaugeVec // of the followers whom bots have
}

// New makes the room; it does not connect.
func New(cfg Config, accounts []Account, d Deps) (*Robot, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Log == nil {
		d.Log = zap.NewNop()
	}
	d.Registry = telemetry.Registerer(d.Registry)
	r := &Robot{
		cfg: cfg, d: d, m: newMetrics(d.Registry), receipts: d.Topics.Receipts(), backends: map[string]*backend.Client{}, lines: map[string]*line{}, bots: map[string]*bot.Bot{},
		recent: newRecent(cfg.Recent), arrivals: newArrivals(cfg.Recent), pending: newPending(), members: map[string]*member{}, failed: make(chan error, 1),
	}
	r.engines, r.holds = map[string]*plugin.Client{}, newHolds()
	r.suspects = suspect.New(d.Redis, maxAhead, cfg.Workers/2, d.Log)
	bm := backend.NewMetrics(d.Registry)
	for _, b := range cfg.Backends {
		l := r.d.permits("backend."+b.Name, b.Limit())
		r.lines[b.Name] = newLine("backend", "back end "+b.Name, l, cfg.Overload.patience(), r.m.waiting)
		c, err := backend.New(b, r.lines[b.Name], bm)
		if err != nil {
			return nil, err
		}
		r.backends[b.Name] = c
		r.steerBackend(b, c, l)
	}
	if err := r.makeBots(); err != nil {
		return nil, err
	}
	if err := errors.Join(r.makeEngines(), r.makeDialogues(), r.makeFollowers()); err != nil {
		return nil, err
	}
	if err := r.SetRules(d.Rules); err != nil {
		r.closeFollowers()
		return nil, err
	}
	if err := r.SetAccounts(accounts); err != nil {
		r.closeFollowers()
		return nil, err
	}
	if err := r.makeGuards(); err != nil { // the last: they work from here on
		return nil, err
	}
	return r, nil
}

// Name implements run.Service.
func (r *Robot) Name() string { return "robot" }

// SetRules swaps the rules; callbacks in hand finish with the ones they began
// with. On an error the old ones stay.
func (r *Robot) SetRules(rules Engine) error {
	if e, ok := rules.(*engine.Rules); rules == nil || ok && e == nil {
		return fmt.Errorf("set rules: there are none: name a rules file (rules)")
	}
	for _, name := range rules.Backends() {
		if r.backends[name] == nil || r.bots[name] != nil {
			return fmt.Errorf("set rules: a rule calls the back end %q, which is not configured: add it to robot.backends or restart with it", name)
		}
	}
	if err := errors.Join(r.knowsBots(rules), r.knowsGuards(rules), r.knowsDialogues(rules), r.knowsFollowers(rules)); err != nil {
		return err
	}
	r.rules.Store(&rules)
	r.showShares(rules)
	return nil
}

// Run works callbacks until ctx ends; then it finishes what is in hand,
// commits and leaves the group.
func (r *Robot) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	if r.base != nil {
		r.mu.Unlock()
		return fmt.Errorf("run robot: it is running already")
	}
	r.base = ctx
	for _, m := range r.members {
		r.start(m)
	}
	r.working.Go(func() { r.watchShedding(ctx) })
	r.mu.Unlock()

	var err error
	select {
	case <-ctx.Done():
	case err = <-r.failed:
		cancel()
	}
	r.mu.Lock()
	r.base = nil
	r.mu.Unlock()
	r.working.Wait()
	r.closeGuards()
	for _, b := range r.backends {
		b.Close()
	}
	for _, e := range r.engines {
		e.Close()
	}
	r.closeFollowers()
	return err
}
