package sender

import (
	"context"
	"fmt"
	"net/http"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/api"
	"tidegate/pkg/api/openapi"
	"tidegate/pkg/control"
	"tidegate/pkg/credit"
	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/redis"
	"tidegate/pkg/run"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/sender/catalogue"
	"tidegate/sender/hold"
	"tidegate/sender/intake"
	"tidegate/sender/intent"
	"tidegate/sender/token"
)

// WeChat is the part of WeChat's API that the sender calls; *wechat.Client is
// one.
type WeChat interface {
	StableToken(ctx context.Context, appID, secret string, force bool) (wechat.AccessToken, error)
	CustomSend(ctx context.Context, token string, m wechat.CustomMessage) error
	TemplateSend(ctx context.Context, token string, m wechat.TemplateMessage) (wechat.SendResult, error)
	BizSend(ctx context.Context, token string, m wechat.SubscriptionMessage) (wechat.SendResult, error)
	TemplateList(ctx context.Context, token string) ([]wechat.Template, error)
	SubscriptionTemplateList(ctx context.Context, token string) ([]wechat.SubscriptionTemplate, error)
}

// Deps is what the room works with; it closes none of it.
type Deps struct {
	Kafka     kafka.Config
	Publisher Publisher
	Redis     *redis.Client // nil: tokens are kept by this node alone
	DB        *sqldb.DB
	WeChat    WeChat
	Keys      intake.Keys
	IDs       intake.IDs
	Topics    wire.Topics
	Log       *zap.Logger
	Reg       prometheus.Registerer
	Alarms    *alarm.Board     // nil tells nobody
	Permits   Permits          // nil: the caps hold in this process alone
	Credits   *credit.Ledger   // nil: WeChat alone knows what it takes
	Orders    *control.Orders  // nil: nobody pauses or cancels
	Knobs     *control.Knobs   // nil: the caps are the configuration's
	Now       func() time.Time // nil: the real clock
	MaxNodes  int              // senders that ever share caps; 0 is 8
}

// Sender is the room.
type Sender struct {
	cfg     Config
	kafka   kafka.Config
	wechat  WeChat
	topics  wire.Topics
	log     *zap.Logger
	reg     prometheus.Registerer
	now     func() time.Time
	alarms  *alarm.Board
	knobs   *control.Knobs
	orders  *control.Orders
	permits Permits
	credits *credit.Ledger
	met     *metrics
	outbox  outbox
	memory  *memory
	intents *intent.Store
	days    *ratelimit.Days  // quotas of a day
	joint   *ratelimit.Joint // caps of templates, apps and users; nil without Redis
	held    *hold.Store
	tokens  *token.Keeper
	given   http.Handler // tokens for other systems
	intake  *intake.Intake
	shelves *catalogue.Catalogue

	// stopping ends when Run's context does: it cuts pauses, not requests.
	stopping context.Context
	stop     context.CancelFunc

	serving  atomic.Int64
	mu       sync.Mutex
	stations map[string]*station
	capKnobs map[string]bool // the named caps that knobs turn
	group    *run.Group      // of the stations, while Run runs
}

// New opens the room's tables and prepares it. Nothing runs and nothing is
// sent before Run.
func New(ctx context.Context, cfg Config, d Deps) (*Sender, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := d.Topics.Validate(); err != nil {
		return nil, err
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	d.Reg = telemetry.Registerer(d.Reg)
	log := d.Log.Named("sender")
	met, err := newMetrics(d.Reg)
	if err != nil {
		return nil, fmt.Errorf("new sender: %w", err)
	}
	s := &Sender{
		cfg: cfg, kafka: d.Kafka, wechat: d.WeChat, topics: d.Topics, log: log, reg: d.Reg, now: d.Now,
		alarms: d.Alarms, knobs: d.Knobs, orders: d.Orders, permits: d.Permits, credits: d.Credits, met: met, outbox: outbox{d.Publisher}, memory: newMemory(), stations: map[string]*station{},
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	if s.intents, err = intent.Open(ctx, d.DB, intent.Options{Node: cfg.Node, Keep: cfg.KeepIntents, Now: d.Now}, d.Reg); err != nil {
		return nil, err
	}
	if s.held, err = hold.Open(ctx, d.DB, hold.Options{Config: cfg.Hold, Node: cfg.Node, Now: d.Now, Log: log.Named("hold")}, d.Reg); err != nil {
		return nil, err
	}
	s.orders.OnChange(s.held.Look)
	if err := s.openThrottles(ctx, d); err != nil {
		return nil, err
	}
	if err := d.Reg.Register(newRoadsNow(s)); err != nil {
		return nil, fmt.Errorf("new sender: %w", err)
	}
	var shared *token.Shared
	if d.Redis != nil {
		shared = token.NewShared(d.Redis)
	}
	if s.tokens, err = token.New(caller{d.WeChat}, shared, token.Options{Judge: token.JudgeWeChat, Now: d.Now, Told: s.tokenTold}, log, d.Reg); err != nil {
		return nil, err
	}
	given, err := newTokensAPI(s.tokens, log, d.Reg, d.Now)
	if err != nil {
		return nil, fmt.Errorf("new sender: %w", err)
	}
	s.given = d.Keys.Authorize(api.TokensRead, given)
	s.intake, err = s.newIntake(ctx, d, log)
	return s, err
}

// caller is WeChat for the token keeper.
type caller struct{ w WeChat }

func (c caller) StableToken(ctx context.Context, appID, secret string, force bool) (string, time.Duration, error) {
	t, err := c.w.StableToken(ctx, appID, secret, force)
	return t.Token, t.Life, err
}

// Handler serves the push API, POST /v1/pushes and /v1/pushes:batch, the document of
// the whole API, and problems for the rest.
func (s *Sender) Handler() http.Handler {
	m := http.NewServeMux()
	m.Handle("POST /v1/pushes", s.intake.Handler())
	m.Handle("/v1/pushes", api.OnlyMethods(http.MethodPost))
	m.Handle("POST /v1/pushes:batch", s.intake.BatchHandler())
	m.Handle("/v1/pushes:batch", api.OnlyMethods(http.MethodPost))
	m.Handle("GET /v1/openapi.json", openapi.Handler())
	m.Handle("/v1/openapi.json", api.OnlyMethods(http.MethodGet))
	m.Handle("GET /v1/accounts/{id}/token", s.given)
	m.Handle("/v1/accounts/{id}/token", api.OnlyMethods(http.MethodGet))
	m.HandleFunc("/", api.NotFound)
	return m
}

// SetAccounts replaces the accounts, also while the room runs: new ones are
// served at once, changed limits hold at once unless an operator has set others,
// an account that is gone is drained and left. A bad account changes nothing.
func (s *Sender) SetAccounts(accounts []Account) error {
	appIDs := make(map[string]string, len(accounts))
	tokens := make([]token.Account, 0, len(accounts))
	for _, a := range accounts {
		if err := a.validate(); err != nil {
			return fault.Wrap(fault.Invalid, "set accounts", err)
		}
		if err := s.needsRedis(a); err != nil {
			return err
		}
		if _, twice := appIDs[a.Name]; twice {
			return fault.New(fault.Invalid, "set accounts", "account %s is there twice", a.Name)
		}
		appIDs[a.Name] = a.AppID
		tokens = append(tokens, token.Account{Name: a.Name, AppID: a.AppID, Secret: a.Secret})
	}
	s.tokens.SetAccounts(tokens)
	s.intake.SetAccounts(appIDs)
	gone := s.setStations(accounts)
	s.steer(accounts, gone)
	s.steerCaps(accounts)
	s.setPolicies(accounts)
	return nil
}

// setStations makes and ends the stations, and gives the names of those that are
// gone.
func (s *Sender) setStations(accounts []Account) (gone []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stays := make(map[string]bool, len(accounts))
	for _, a := range accounts {
		stays[a.Name] = true
		s.setStation(a)
	}
	for name, st := range s.stations {
		if !stays[name] {
			delete(s.stations, name)
			st.leave()
			s.forget(st)
			if s.group == nil {
				st.close() // nothing runs that would do it
			}
			gone = append(gone, name)
		}
	}
	return gone
}

// setStation is called with mu held. The caps of one that is there are turned by
// its knobs.
func (s *Sender) setStation(a Account) {
	if st := s.stations[a.Name]; st != nil {
		st.gate.set(a.Caps, st)
		st.setQuiet(a.Quiet)
		return
	}
	st := newStation(a, s.cfg.QuotaPause, s.permits, s.log)
	st.setQuiet(a.Quiet)
	s.announce(st)
	st.gate = s.newGate(a, st)
	s.stations[a.Name] = st
	if s.group != nil {
		s.startStation(st)
	}
}

// startStation is called with mu held, while Run runs.
func (s *Sender) startStation(st *station) {
	s.group.Go(run.Func("sender of "+st.name, func(ctx context.Context) error { return s.consume(ctx, st) }))
}

// showEvery is how often the state of the roads is published as metrics, and
// looked at for alarms that nothing else would end.
const showEvery = 2 * time.Second

// Run works until ctx ends: then pauses are cut, requests under way come back
// and are booked, offsets are committed. It may be called once.
func (s *Sender) Run(ctx context.Context) error {
	// The writer of intents and the keeper end last: letters under way need them.
	rear, endRear := context.WithCancel(context.WithoutCancel(ctx))
	defer endRear()
	behind := run.NewGroup(rear)
	behind.Go(s.intents)
	behind.Go(s.held)
	behind.Go(s.tokens)
	behind.Go(s.intake)
	behind.Go(s.shelves)
	behind.Go(s.keepQuotas())
	defer context.AfterFunc(ctx, s.stop)()
	g := run.NewGroup(ctx)
	g.Go(run.Func("sender metrics", func(ctx context.Context) error {
		run.Every(ctx, showEvery, func(context.Context) {
			all := s.all()
			s.met.show(all)
			s.relieve(all, s.now())
		})
		return nil
	}))
	g.Go(run.Func("sender releaser", func(ctx context.Context) error {
		s.held.Release(ctx, &feeder{s: s})
		return nil
	}))
	g.Go(run.Func("sender support", func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-behind.Done():
			return behind.Wait()
		}
	}))
	s.mu.Lock()
	s.group = g
	for _, st := range s.stations {
		s.startStation(st)
	}
	s.mu.Unlock()
	<-g.Done()
	s.stop()
	s.mu.Lock()
	s.group = nil // from here on SetAccounts starts nothing
	s.mu.Unlock()
	err := g.Wait()
	endRear()
	if rearErr := behind.Wait(); err == nil {
		err = rearErr
	}
	return err
}

func (s *Sender) all() []*station {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*station, 0, len(s.stations))
	for _, st := range s.stations {
		out = append(out, st)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out
}

// Serves is how many accounts have consumers that run, also while they drain.
func (s *Sender) Serves() int { return int(s.serving.Load()) }

// Problems says in words which accounts and APIs are closed and why, for the
// operations listener. It is empty when all is well.
func (s *Sender) Problems() []string {
	var out []string
	for _, st := range s.all() {
		out = append(out, st.problems()...)
	}
	for name, why := range s.tokens.Stopped() {
		out = append(out, "account "+name+": "+why)
	}
	sort.Strings(out)
	return out
}
