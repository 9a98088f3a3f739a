package guard

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
	"tidegate/pkg/slice"
)

// Deps are what a guard works with. All may be nil.
type Deps struct {
	// Redis joins the nodes; without it this process is the only one.
	Redis *redis.Client
	// Log gets changes of state, never keys or values.
	Log *zap.Logger
	// Registerer takes the metrics, with the back end as label.
	Registerer prometheus.Registerer
}

// Guard stands in front of one back end. It is safe for concurrent use. Close it
// when nobody calls it any more.
type Guard struct {
	cfg   Config
	log   *zap.Logger
	node  string
	stats *stats

	store    *store // nil without Redis
	counters *slice.Counters
	away     *breaker // of Redis
	backend  *breaker
	gate     *gate
	mode     *mode
	local    *localCache
	box      *box // nil if personal values are not cached
	passed   *passed

	voids atomic.Uint64 // invalidations on this node

	mu      sync.Mutex
	flights map[string]*flight
	waiting int
	closed  bool
	owed    map[string]place // resources whose invalidation Redis has not heard of
	alone   time.Time        // until then Redis is not believed: see owe
	used    map[string]struct{}
	last    pulse // the last beat
	lastAt  time.Time
	orphans []orphan

	kick   chan struct{}   // there is something to flush
	urgent chan struct{}   // and at once
	ctx    context.Context // ends at Close; for work that outlives its caller
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

// New makes a guard. It does not ask Redis: a process must be able to start
// while Redis is away. An error is one of configuration (fault.Invalid).
func New(cfg Config, d Deps) (*Guard, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fault.Wrap(fault.Invalid, "guard "+cfg.Backend, err)
	}
	if d.Log == nil {
		d.Log = zap.NewNop()
	}
	secret, _ := cfg.secret() // Validate has read it
	g := &Guard{
		cfg: cfg, log: d.Log.With(zap.String("backend", cfg.Backend)), node: rand.Text(),
		away:    &breaker{after: 3, span: 150 * time.Millisecond, pause: 500 * time.Millisecond},
		backend: &breaker{after: cfg.BreakAfter, pause: cfg.BreakFor},
		mode:    newMode(cfg), local: newLocalCache(cfg.MaxResources, cfg.LocalBytes), passed: newPassed(),
		flights: map[string]*flight{}, owed: map[string]place{}, used: map[string]struct{}{},
		kick: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
	}
	g.store = &store{redis: d.Redis, scripts: newScripts(true), backend: cfg.Backend, secret: secret, cfg: cfg}
	share := cfg.Gate
	if d.Redis != nil {
		g.counters = slice.New(d.Redis)
		share = max(cfg.Gate/cfg.Nodes, 1)
	} else {
		g.cfg.Nodes, g.mode.cfg.Nodes = 1, 1
	}
	g.gate = newGate(share, cfg.MaxWaiting)
	if secret != nil {
		var err error
		if g.box, err = newBox(secret); err != nil {
			return nil, fault.Wrap(fault.Internal, "guard "+cfg.Backend, err)
		}
	}
	g.stats = newStats(d.Registerer, g)
	g.ctx, g.stop = context.WithCancel(context.Background())
	if d.Redis != nil {
		g.wg.Go(func() { g.pump(g.ctx) })
		g.wg.Go(func() { g.listen(g.ctx) })
	}
	return g, nil
}

// Close ends what the guard does by itself and waits for it; callers that wait
// get an error, fetches their context's end.
func (g *Guard) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.stop()
	g.wg.Wait()
}

// Do gives the value of key, which anybody may see: fetched for this caller while
// the demand is low, and shared with others when it is not. An error is either
// fetch's own or, with Result.How Shed, of kind fault.Limited (too much at once)
// or fault.Unavailable (the back end does not answer); both may carry a
// RetryAfter. That Redis is away is no error.
func (g *Guard) Do(ctx context.Context, key string, fetch Fetch) (Result, error) {
	return g.do(ctx, key, false, fetch)
}

// Personal is Do for a value that concerns one person (key must name the person
// too). It passes the gate and is cached only with CachePersonal, encrypted.
func (g *Guard) Personal(ctx context.Context, key string, fetch Fetch) (Result, error) {
	return g.do(ctx, key, true, fetch)
}

func (g *Guard) do(ctx context.Context, key string, personal bool, fetch Fetch) (Result, error) {
	if key == "" || len(key) > MaxKey {
		return Result{How: Shed}, fault.New(fault.Invalid, "guard "+g.cfg.Backend, "a key of %d bytes: use 1 to %d", len(key), MaxKey)
	}
	protected := g.arrive()
	var r Result
	var err error
	switch {
	case personal && g.box == nil:
		r, err = g.apart(ctx, fetch)
	case protected:
		r, err = g.guarded(ctx, g.store.placeOf(key, personal), fetch)
	default:
		r, err = g.pass(ctx, g.store.placeOf(key, personal), fetch)
	}
	g.stats.done(r.How)
	return r, err
}

// Through runs work that no cache can spare, a write for instance, within the
// gate: it waits for a place and is refused if there is none in time.
func (g *Guard) Through(ctx context.Context, work func(ctx context.Context) error) (Result, error) {
	g.arrive()
	r, err := g.apart(ctx, func(ctx context.Context) ([]byte, error) { return nil, work(ctx) })
	g.stats.done(r.How)
	return r, err
}

// arrive counts a request and reports whether it meets protection.
func (g *Guard) arrive() bool {
	now := time.Now()
	if g.mode.deaf(now) {
		g.gate.setLimit(g.mode.gateShare(now))
	}
	protected, began := g.mode.arrive(now, g.shared())
	g.began(began, "demand")
	g.soon(g.kick)
	return protected
}

// began says that protection began here.
func (g *Guard) began(yes bool, why string) {
	if !yes {
		return
	}
	g.log.Info("protection begins: values are shared for a while", zap.String("why", why))
	g.stats.protections.Inc()
	g.soon(g.urgent)
}

func (g *Guard) soon(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// shared reports whether the nodes hear of each other.
func (g *Guard) shared() bool {
	if g.store.redis == nil || g.away.open() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.alone.IsZero() || time.Now().After(g.alone)
}

// asked tells the breaker of Redis how asking went.
func (g *Guard) asked(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		return // the caller went away: that says nothing about Redis
	}
	if err != nil {
		g.stats.redisFailed.Inc()
	}
	if !g.away.note(err == nil) {
		return
	}
	g.local.clear() // it must hold nothing from before a turn
	if err != nil {
		g.mode.forget() // who else is there now cannot be known
		g.gate.setLimit(g.mode.gateShare(time.Now()))
		g.log.Warn("redis does not answer: this node guards the back end alone", zap.Error(err))
		return
	}
	g.log.Info("redis answers again: the nodes guard the back end together")
}

// placeFor waits for a place in the gate, and for an open way. The error is what
// a caller is told.
func (g *Guard) placeFor(ctx context.Context) error {
	if err := g.open(); err != nil {
		return err
	}
	if g.gate.try() {
		return nil
	}
	g.began(g.mode.gateFull(time.Now()), "gate")
	ok, crowded := g.gate.acquire(ctx)
	switch {
	case ok:
		return nil
	case crowded:
		return g.busy("too many callers wait", time.Second)
	case errors.Is(ctx.Err(), context.Canceled):
		return fault.Wrap(fault.Unavailable, "guard "+g.cfg.Backend, ctx.Err())
	}
	return g.busy("no place became free in time", time.Second)
}

// open reports whether the back end may be asked.
func (g *Guard) open() error {
	if ok, left := g.backend.allow(); !ok {
		return fault.New(fault.Unavailable, "guard "+g.cfg.Backend, "the back end failed %d times in a row and is left alone for a while", g.cfg.BreakAfter).WithRetryAfter(left)
	}
	return nil
}

func (g *Guard) busy(why string, again time.Duration) error {
	return fault.New(fault.Limited, "guard "+g.cfg.Backend, "%s: try again", why).WithRetryAfter(again)
}

// call asks the back end. The caller holds a place and gives it back.
func (g *Guard) call(ctx context.Context, fetch Fetch) ([]byte, error) {
	begin := time.Now()
	body, err := fetch(ctx)
	g.stats.fetchSeconds.Observe(time.Since(begin).Seconds())
	switch {
	case errors.Is(err, ErrNotAsked): // says nothing about the back end
	case !failed(err):
		if g.backend.note(true) {
			g.log.Info("the back end answers again")
		}
	case errors.Is(ctx.Err(), context.Canceled): // the caller gave up: nobody's failure
	default:
		g.stats.fetchFailed.Inc()
		if g.backend.note(false) {
			g.log.Warn("the back end failed too often in a row and is left alone for a while", zap.Duration("for", g.cfg.BreakFor))
		}
	}
	return body, err
}

// failed tells a failure of the back end from an answer of it.
func failed(err error) bool {
	if err == nil || errors.Is(err, ErrNoStore) || errors.Is(err, ErrTooLarge) {
		return false
	}
	switch fault.KindOf(err) {
	case fault.Invalid, fault.NotFound, fault.Conflict, fault.Denied, fault.Final:
		return false
	}
	return true
}

// answered turns what a fetch for its own caller returned into a result.
func answered(how How, body []byte, err error) (Result, error) {
	if errors.Is(err, ErrNoStore) {
		err = nil
	}
	return Result{Value: body, How: how}, err
}

var errClosed = errors.New("it is closed")
