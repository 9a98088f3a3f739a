package receipts

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/api"
	"tidegate/pkg/control"
	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/run"
	"tidegate/pkg/schedule"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
	"tidegate/receipts/webhook"
)

// Publisher makes records durable; *kafka.Producer is one.
type Publisher interface {
	PublishAll(ctx context.Context, rs []kafka.Record) error
}

// Deps is what the room works with; it closes none of it.
type Deps struct {
	Kafka     kafka.Config // for the consumer groups
	Publisher Publisher
	Queues    Lagger // measures what waits for the sender; nil measures nothing
	DB        *sqldb.DB
	Keys      *api.Keys
	Topics    wire.Topics
	Log       *zap.Logger
	Registry  prometheus.Registerer
	Audit     *control.Store   // of changes by hand; nil keeps them in the log only
	Alarms    *alarm.Board     // nil tells nobody
	Hasher    telemetry.Hasher // shows openids to operations
	Now       func() time.Time // nil: the real clock
}

// Room is the receipts room.
type Room struct {
	cfg     Config
	d       Deps
	loc     *time.Location // of reports
	reports schedule.Spec
	store   store.Store
	hooks   *webhook.Hub
	// resendWake tells that a re-send has just been confirmed here.
	resendWake chan struct{}

	sealer  *api.Sealer
	met     *metrics
	news    *kafka.Group // receipts and repeats
	queued  *kafka.Group // the letters that wait in the sender's topics
	handler http.Handler
	repeats *watch
	bands   *bandWatch
	exports chan struct{} // a place for each export that runs

	mu       sync.RWMutex
	accounts []string
}

// New opens the room's tables and prepares it; nothing is consumed before Run.
func New(ctx context.Context, cfg Config, d Deps) (*Room, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	loc, err := time.LoadLocation(cfg.Report.Location)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, "load time zone of reports", err)
	}
	reports, err := schedule.ParseSpec(cfg.Report.Schedule, cfg.Report.Location)
	if err != nil {
		return nil, err
	}
	if d.Log == nil {
		d.Log = zap.NewNop()
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	d.Registry = telemetry.Registerer(d.Registry)
	r := &Room{cfg: cfg, d: d, loc: loc, reports: reports, exports: make(chan struct{}, maxExports)}
	if err := r.openTables(ctx); err != nil {
		return nil, err
	}
	if r.met, err = newMetrics(d.Registry); err != nil {
		return nil, err
	}
	r.repeats = newWatch(cfg.RepeatAlarm, d.Now, newRepeatAlarms(r).tell)
	r.bands = &bandWatch{r: r, firing: map[[2]string]bool{}}
	if err := r.openGroups(); err != nil {
		return nil, err
	}
	r.handler = r.routes()
	return r, nil
}

func (r *Room) openTables(ctx context.Context) error {
	if err := api.Migrate(ctx, r.d.DB); err != nil {
		return err
	}
	s, err := store.Open(ctx, r.d.DB, r.d.Now)
	if err != nil {
		return err
	}
	r.store = s
	if err := r.openWebhooks(ctx, s); err != nil {
		return err
	}
	r.sealer, err = api.LoadSealer(ctx, r.d.DB, r.d.Now)
	return err
}

func (r *Room) openGroups() (err error) {
	opt := kafka.GroupOptions{
		Group: r.cfg.Group, Topics: []string{r.d.Topics.Receipts(), r.d.Topics.Repeats()},
		Batch: r.consume, Workers: r.cfg.Workers,
	}
	if r.news, err = kafka.NewGroup(r.d.Kafka, opt, r.d.Log, r.d.Registry); err != nil {
		return err
	}
	opt.Group, opt.Topics = wire.QueuedGroup(r.cfg.Group), nil
	r.queued, err = kafka.NewGroup(r.d.Kafka, opt, r.d.Log, r.d.Registry)
	return err
}

// Name implements run.Service.
func (r *Room) Name() string { return "receipts" }

// Handler is the room's share of the public API.
func (r *Room) Handler() http.Handler { return r.handler }

// Store gives the rows to those who count them.
func (r *Room) Store() store.Store { return r.store }

// SetAccounts names the accounts whose queued letters are read and to which
// re-sends may go. It may be called while the room runs.
func (r *Room) SetAccounts(names []string) error {
	var topics []string
	for _, n := range names {
		if !wire.ValidAccount(n) {
			return fault.New(fault.Invalid, "set accounts of receipts", "%q is no account's name", n).WithField("accounts")
		}
		topics = append(topics, r.d.Topics.Replies(n), r.d.Topics.Pushes(n, wire.LaneRealtime), r.d.Topics.Pushes(n, wire.LaneBulk))
	}
	r.mu.Lock()
	r.accounts = slices.Clone(names)
	r.mu.Unlock()
	r.queued.SetTopics(topics)
	return nil
}

func (r *Room) hasAccount(name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Contains(r.accounts, name)
}

// Run consumes and keeps house until ctx ends; then it finishes what is in
// hand and returns nil.
func (r *Room) Run(ctx context.Context) error {
	g := run.NewGroup(ctx)
	g.Go(run.Func("receipts", r.news.Run))
	g.Go(run.Func("queued letters", r.queued.Run))
	g.Go(run.Func("housekeeping", r.keepHouse))
	g.Go(r.hooks)
	g.Go(run.Func("re-sends", r.runResends))
	g.Go(run.Func("watch of repeats", r.watchRepeats))
	g.Go(run.Func("watch of shares", r.watchBands))
	return g.Wait()
}
