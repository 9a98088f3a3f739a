package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/dedupe"
	"tidegate/pkg/kafka"
	"tidegate/pkg/run"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
	"tidegate/proxy/queues"
)

// Publisher puts a record into the queue and returns once every in-sync
// replica has it.
type Publisher interface {
	Publish(ctx context.Context, r kafka.Record) (kafka.Record, error)
}

// Claims is the short memory of what is being taken (pkg/dedupe).
type Claims interface {
	Claim(ctx context.Context, key string) (dedupe.Verdict, *dedupe.Claim)
	ClaimWithNonce(ctx context.Context, key string, n dedupe.Nonce) (dedupe.Verdict, *dedupe.Claim, dedupe.NonceVerdict)
	ClaimThen(ctx context.Context, key string, n *dedupe.Nonce, on dedupe.Onward) dedupe.Claimed
	Nonce(ctx context.Context, n dedupe.Nonce) dedupe.NonceVerdict
	Repeat(ctx context.Context, account, openid, action, identity string, window time.Duration) (repeat bool, release func(context.Context), err error)
}

// Instant is an answer that fits into the acknowledgement: a static text, or
// the hand-over to the human desk (Desk names one agent, "" lets WeChat
// choose). It is an alias of an unnamed struct, so that whoever decides about
// answers can return it without importing the door.
type Instant = struct {
	Rule     string
	Text     string
	HandOver bool
	Desk     string
}

// AtOnce is the passive table (D2): what the ack itself may answer. It decides
// without I/O and gives the same answer for every delivery of one callback.
type AtOnce func(c *wire.Callback) (Instant, bool)

// Deps is what the door works with.
type Deps struct {
	Topics    wire.Topics
	Publisher Publisher
	Claims    Claims
	AtOnce    AtOnce  // nil answers nothing at once
	Notices   Notices // nil tells nobody how long to wait
	// Admin measures the queues; nil leaves that out. Give the door one of its
	// own: a question to a queue that hangs holds up those behind it.
	Admin    *kafka.Admin
	Groups   struct{ Robot, Receipts string } // begin the names of the rooms' consumer groups
	Log      *zap.Logger
	Registry prometheus.Registerer
	Alarms   *alarm.Board     // nil tells nobody
	Now      func() time.Time // nil is the real clock
}

// Proxy is the room.
type Proxy struct {
	cfg      Config
	d        Deps
	accounts atomic.Pointer[map[string]*entry]
	atOnce   atomic.Pointer[AtOnce]
	repeats  repeatTable
	m        *metrics
	out      *outlet
	server   *run.HTTPServer
	queues   *queues.Watch // nil: nobody watches
	ahead    *ahead        // nil: nobody is told
	watch    *watch
	trusted  run.Addresses // load balancers whose X-Forwarded-For is believed

	// after counts done marks still on their way to Redis.
	after sync.WaitGroup
	slots chan struct{}
}

// maxAfter bounds done marks on their way at once; further ones are left out.
const maxAfter = 4096

// New makes the room and opens its listener.
func New(cfg Config, accounts []Account, d Deps) (*Proxy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	trusted, err := cfg.HTTP.Proxies()
	if err != nil {
		return nil, fmt.Errorf("proxy.http: %w", err)
	}
	for _, slip := range cfg.Repeats.Warnings() {
		d.Log.Warn("a rule about repeats may never fit; correct it if WeChat has no such event", zap.String("setting", slip))
	}
	p := &Proxy{cfg: cfg, d: d, trusted: trusted, repeats: cfg.Repeats.compile(), slots: make(chan struct{}, maxAfter), watch: newWatch(d.Alarms, d.Now)}
	p.SetAtOnce(d.AtOnce)
	reg := telemetry.Registerer(d.Registry)
	p.m = newMetrics(reg)
	if err := p.SetAccounts(accounts); err != nil {
		return nil, err
	}
	out, err := newOutlet(cfg.Spool, d, reg)
	if err != nil {
		return nil, err
	}
	p.out = out
	if p.queues, err = p.newQueues(reg); err != nil {
		return nil, errors.Join(fmt.Errorf("proxy.queues: %w", err), out.close())
	}
	p.ahead = newAhead(cfg.Ahead, p.queues, d.Notices, reg)
	s, err := run.NewHTTPServer("proxy", cfg.HTTP, p.Handler(), d.Log,
		run.Strict(func(reason string) { p.m.refused.WithLabelValues("", reason).Inc() }))
	if err != nil {
		return nil, errors.Join(err, out.close())
	}
	p.server = s
	return p, nil
}

// SetAccounts replaces the accounts; requests in flight finish with the ones
// they began with. On an error the old ones stay.
func (p *Proxy) SetAccounts(accounts []Account) error {
	m := make(map[string]*entry, len(accounts))
	for _, a := range accounts {
		e, err := newEntry(a, p.d.Topics, p.d.Now)
		if err != nil {
			return err
		}
		if _, twice := m[a.Name]; twice {
			return fmt.Errorf("account %s is configured twice", a.Name)
		}
		e.accepted = p.m.taken.WithLabelValues(a.Name, kindAccepted)
		m[a.Name] = e
	}
	p.watch.keep(m)
	p.accounts.Store(&m)
	if p.queues != nil {
		p.queues.SetAccounts(accountNames(m))
	}
	return nil
}

// SetAtOnce replaces the passive table; nil empties it.
func (p *Proxy) SetAtOnce(t AtOnce) {
	if t == nil {
		t = func(*wire.Callback) (Instant, bool) { return Instant{}, false }
	}
	p.atOnce.Store(&t)
}

// Name implements run.Service.
func (p *Proxy) Name() string { return "proxy" }

// Addr is where the door listens.
func (p *Proxy) Addr() string { return p.server.Addr() }

// CanSpool tells whether the disk would take a record now; an error if not, or
// if there is no spool.
func (p *Proxy) CanSpool() error { return p.out.ready() }

// Run serves until ctx ends, finishes what is in flight and waits for the
// last done marks. Meanwhile it hands the queue what is in the spool; what is
// left there waits for the next start.
func (p *Proxy) Run(ctx context.Context) error {
	replay, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { p.out.replay(replay) })
	if p.queues != nil {
		wg.Go(func() { p.queues.Run(replay) })
	}
	wg.Go(func() { run.Every(replay, watchEvery, p.watch.look(p.out)) })
	err := p.leave(ctx, replay, p.server.Run)
	stop()
	wg.Wait()
	p.after.Wait()
	return errors.Join(err, p.out.close())
}

// Handler is the door without its listener.
func (p *Proxy) Handler() http.Handler {
	return recoverer(sentAtOnce(http.HandlerFunc(p.route)), p.d.Log)
}
