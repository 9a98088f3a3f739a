package control

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/redis"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/telemetry"
)

// Config is the section of the configuration.
type Config struct {
	// SlowStart is how long a limit that was raised takes to reach its new value,
	// in a straight line; 0 is at once. What is lowered always holds at once.
	SlowStart time.Duration `koanf:"slow_start"`
}

// DefaultConfig gives a back end that was let go some time to warm up.
func DefaultConfig() Config { return Config{SlowStart: 10 * time.Second} }

// Validate checks the section.
func (c Config) Validate() error {
	if c.SlowStart < 0 || c.SlowStart > time.Hour {
		return fmt.Errorf("control.slow_start %s: use 0s to 1h", c.SlowStart)
	}
	return nil
}

// Options are what a panel works with.
type Options struct {
	Config
	// DB is an open database whose tables Migrate has made; it stays open. Or
	Dial func(context.Context) (*sqldb.DB, error) // opens one for the panel alone, when it can be reached: the panel makes the tables and closes it
	DB   *sqldb.DB
	// Off says why there is neither; then the file's values hold.
	Off string
	// Redis announces changes and tells who applies what; nil: neither.
	Redis    *redis.Client
	Node     string // names this process
	Log      *zap.Logger
	Registry prometheus.Registerer
	Now      func() time.Time // nil: the real clock
}

// stepEvery is how often a limit on its way is moved.
const stepEvery = 100 * time.Millisecond

// Panel is the live settings of one process: its view, its knobs, and the way
// to change them.
type Panel struct {
	o      Options
	log    *zap.Logger
	met    *metrics
	view   *View
	knobs  *Knobs
	orders *Orders
	news   chan struct{} // something to report

	closing sync.Once
	closed  error
}

// New makes the panel; nothing is asked before Run.
func New(o Options) (*Panel, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	p := &Panel{o: o, log: o.Log, news: make(chan struct{}, 1)}
	var err error
	p.met, err = newMetrics(telemetry.Registerer(o.Registry), func() float64 {
		if age := p.view.Age(); age != Never {
			return age.Seconds()
		}
		return -1
	})
	if err != nil {
		return nil, fmt.Errorf("live settings: %w", err)
	}
	p.view = newView(o.Log, o.Now, p.met)
	p.knobs = newKnobs(o.SlowStart, o.Now, p.met)
	p.knobs.applied = -1
	if o.DB != nil {
		p.view.store = NewStore(o.DB, o.Now)
	}
	p.orders = newOrders(p.view) // before the version is told to be applied
	p.view.Watch(func(version int64, rows []Row) {
		p.knobs.take(version, rows)
		p.tell()
	})
	return p, nil
}

// Name implements run.Service.
func (p *Panel) Name() string { return "control" }

// Knobs are what rooms put their limits into.
func (p *Panel) Knobs() *Knobs { return p.knobs }

// View is what this process knows of the settings.
func (p *Panel) View() *View { return p.view }

// Run follows the settings until ctx ends. Nothing that is away ends it.
func (p *Panel) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { every(ctx, stepEvery, nil, func() { p.knobs.step() }) })
	if p.o.Redis != nil {
		all.Go(func() { p.listen(ctx) })
		all.Go(func() { p.report(ctx) })
	}
	if p.o.Off != "" {
		<-ctx.Done()
		return nil
	}
	p.view.run(ctx, p.dial)
	if err := p.Close(); err != nil {
		p.log.Warn("the database of the live settings did not close", zap.Error(err))
	}
	return nil
}

// primeTimeout bounds the first look: a role starts without it.
const primeTimeout = 2 * time.Second

// Prime looks once, before Run and before the rooms put their knobs in, so that
// a process which starts lets nothing through that the settings forbid. While
// the database is away the files' values hold, and Run goes on asking.
func (p *Panel) Prime(ctx context.Context) {
	if p.o.Off != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, primeTimeout)
	defer cancel()
	if p.view.open() == nil {
		p.view.dial(ctx, p.dial)
	}
	if s := p.view.open(); s != nil {
		p.view.look(ctx, s)
	}
}

// Close closes a database of the panel's own. Run does so at its end; it is for
// whoever has primed a panel that never runs.
func (p *Panel) Close() error {
	s := p.view.open()
	if s == nil || p.o.DB != nil {
		return nil
	}
	p.closing.Do(func() { p.closed = s.db.Close() })
	return p.closed
}

// dial opens a database of the panel's own and makes the tables.
func (p *Panel) dial(ctx context.Context) (*sqldb.DB, error) {
	if p.o.Dial == nil {
		return nil, errors.New("no database is configured")
	}
	db, err := p.o.Dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := Migrate(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// listen looks when a change is announced. A subscription that breaks is made
// anew; what is announced meanwhile is found by the poll.
func (p *Panel) listen(ctx context.Context) {
	every(ctx, reportEvery, nil, func() {
		err := p.o.Redis.Subscribe(ctx, func(redis.Message) { p.view.Look() }, channel)
		if err != nil && ctx.Err() == nil {
			p.log.Debug("announcements of live settings are not heard; the poll finds them", zap.Error(err))
		}
	})
}

// announce tells every node that there is something new.
func (p *Panel) announce(ctx context.Context, version int64) {
	p.view.Look()
	if p.o.Redis == nil {
		return
	}
	if err := p.o.Redis.Publish(ctx, channel, strconv.FormatInt(version, 10)); err != nil {
		p.met.unheard.Inc()
		p.log.Info("a change of live settings was not announced; nodes find it within half a second", zap.Error(err))
	}
}

// tell has a report written soon.
func (p *Panel) tell() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// report says what this node applies, until ctx ends; then it takes it back.
func (p *Panel) report(ctx context.Context) {
	n, made := nodes{p.o.Redis}, 0
	every(ctx, reportEvery, p.news, func() {
		made++
		if err := n.save(ctx, p.self(), made%sweepEvery == 1); err != nil && ctx.Err() == nil {
			p.log.Debug("this node's report on live settings was not taken", zap.Error(err))
		}
	})
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportEvery)
	defer cancel()
	_ = n.drop(last, p.o.Node) // it lapses by itself
}

// self is this node's report.
func (p *Panel) self() report {
	r := report{Node: p.o.Node, AgeMS: ageMS(p.view.Age()), Off: p.o.Off != ""}
	r.Version, r.Newest, r.Limits = p.knobs.states()
	return r
}

func ageMS(age time.Duration) int64 {
	if age == Never {
		return -1
	}
	return age.Milliseconds()
}

// every calls fn at once, then each d and whenever poke tells, until ctx ends.
func every(ctx context.Context, d time.Duration, poke <-chan struct{}, fn func()) {
	t := time.NewTicker(d)
	defer t.Stop()
	for ctx.Err() == nil {
		fn()
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-poke:
		}
	}
}
