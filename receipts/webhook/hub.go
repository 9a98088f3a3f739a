package webhook

import (
	"context"
	"embed"
	"io/fs"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/fault"
	"tidegate/pkg/outhttp"
	"tidegate/pkg/run"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
)

//go:embed migrations
var migrations embed.FS

// tablesName names this package's version table.
const tablesName = "receipts_webhook"

func migrationFiles() (fs.FS, error) {
	fsys, err := fs.Sub(migrations, "migrations")
	return fsys, fault.Wrap(fault.Internal, "open migrations of webhooks", err)
}

// Migrate makes the tables.
func Migrate(ctx context.Context, db *sqldb.DB) error {
	fsys, err := migrationFiles()
	if err != nil {
		return err
	}
	return db.Migrate(ctx, tablesName, fsys)
}

// Pending tells how many migrations are still to be applied. It changes nothing.
func Pending(ctx context.Context, db *sqldb.DB) (int, error) {
	fsys, err := migrationFiles()
	if err != nil {
		return 0, err
	}
	return db.Pending(ctx, tablesName, fsys)
}

// Deps is what the hub works with; it closes none of it.
type Deps struct {
	DB       *sqldb.DB
	Log      *zap.Logger
	Registry prometheus.Registerer
	Alarms   *alarm.Board     // nil tells nobody
	Now      func() time.Time // nil: the real clock
	// Poll is how often an endpoint looks for events that are due; 0 is half a
	// second. New ones of this process are looked for at once.
	Poll time.Duration
}

// Hub writes events and sends them.
type Hub struct {
	cfg       Config
	d         Deps
	apps      map[string]*app
	endpoints map[string]*endpoint
	calls     *outhttp.Client
	met       *metrics
}

// app is a business system with webhooks.
type app struct {
	name, url string
	hosts     map[string]bool
	events    map[wire.State]bool
}

// endpoint is one place that events go to: the address of an app, or one host
// that its pushes may name.
type endpoint struct {
	name, app, url string
	keys           [][]byte
	woken          chan struct{}
}

func (p *endpoint) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// New opens the tables and prepares the endpoints; nothing is sent before Run.
func New(ctx context.Context, cfg Config, d Deps) (*Hub, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Log == nil {
		d.Log = zap.NewNop()
	}
	if d.Poll == 0 {
		d.Poll = 500 * time.Millisecond
	}
	h := &Hub{cfg: cfg, d: d, apps: map[string]*app{}, endpoints: map[string]*endpoint{}}
	if err := Migrate(ctx, d.DB); err != nil {
		return nil, err
	}
	var err error
	if h.met, err = newMetrics(telemetry.Registerer(d.Registry)); err != nil {
		return nil, err
	}
	if h.calls, err = cfg.client(); err != nil {
		return nil, err
	}
	for _, a := range cfg.Apps {
		if err := h.add(a); err != nil {
			return nil, err
		}
	}
	return h, h.enter(ctx)
}

func (h *Hub) add(c AppConfig) error {
	a := &app{name: c.Name, url: c.URL, hosts: map[string]bool{}, events: map[wire.State]bool{}}
	for _, s := range offered() {
		chosen := slices.Contains(c.Events, s)
		if len(c.Events) == 0 {
			chosen = wire.State(s) != wire.Queued && wire.State(s) != wire.Sending
		}
		a.events[wire.State(s)] = chosen
	}
	var keys [][]byte
	for _, text := range []string{c.Secret, c.PrevSecret} {
		if text == "" {
			continue
		}
		k, err := parseSecret(text)
		if err != nil {
			return fault.New(fault.Invalid, "read webhook secret", "app %s: %w", c.Name, err)
		}
		keys = append(keys, k)
	}
	put := func(name, url string) {
		h.endpoints[name] = &endpoint{name: name, app: c.Name, url: url, keys: keys, woken: make(chan struct{}, 1)}
	}
	if c.URL != "" {
		put(c.Name, c.URL)
	}
	for _, host := range c.CallbackHosts {
		a.hosts[host] = true
		put(c.Name+"@"+host, "")
	}
	h.apps[c.Name] = a
	return nil
}

// enter gives every endpoint its row.
func (h *Hub) enter(ctx context.Context) error {
	for name := range h.endpoints {
		if _, err := h.d.DB.Exec(ctx, `INSERT INTO webhook_endpoints (endpoint, failures, failing_since, last_ok_at, last_error, disabled_at, disabled_why)
			VALUES ($1, 0, 0, 0, '', 0, '') ON CONFLICT (endpoint) DO NOTHING`, name); err != nil {
			return err
		}
	}
	return nil
}

// Name implements run.Service.
func (h *Hub) Name() string { return "webhooks" }

// Run sends until ctx ends; then it finishes what is under way and returns nil.
func (h *Hub) Run(ctx context.Context) error {
	defer h.calls.Close()
	if len(h.endpoints) == 0 {
		<-ctx.Done()
		return nil
	}
	g := run.NewGroup(ctx)
	for _, p := range h.endpoints {
		g.Go(run.Func("webhooks of "+p.name, func(ctx context.Context) error { return h.pump(ctx, p) }))
	}
	return g.Wait()
}
