package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"net/http/pprof"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry makes a registry with the Go and process collectors.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Registerer gives reg, or a private registry if reg is nil, so that parts
// can always register and tests need not care.
func Registerer(reg prometheus.Registerer) prometheus.Registerer {
	if reg == nil {
		return prometheus.NewRegistry()
	}
	return reg
}

// readyBudget bounds all readiness checks together.
const readyBudget = 2 * time.Second

// Ops is the handler of the operations listener: /metrics, /healthz, /readyz,
// /debug/pprof and /ops/v1/…. It belongs on its own, private address (S37), and
// behind keys where others can reach it. /healthz and /readyz answer everybody,
// but say why only to who has a key.
type Ops struct {
	mux     *http.ServeMux
	keys    atomic.Pointer[[]opsKey]
	refused *prometheus.CounterVec
	mu      sync.Mutex
	checks  map[string]func(context.Context) error
}

// NewOps makes the handler over a registry. It is open until SetKeys.
func NewOps(r *prometheus.Registry) *Ops {
	o := &Ops{mux: http.NewServeMux(), checks: map[string]func(context.Context) error{}}
	o.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidegate_ops_refused_total", Help: "Requests to the operations listener without the key or the scope that they need.",
	}, []string{"reason"})
	r.MustRegister(o.refused)
	o.mux.Handle("GET /metrics", o.need(ScopeMetrics, promhttp.HandlerFor(r, promhttp.HandlerOpts{})))
	o.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	o.mux.HandleFunc("GET /readyz", o.ready)
	for path, h := range map[string]http.HandlerFunc{"": pprof.Index, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace} {
		o.mux.Handle("GET /debug/pprof/"+path, o.need(ScopeDebug, h))
	}
	return o
}

// AddReadiness adds a question that /readyz asks. Only what decides "can I
// make something durable" belongs here: a Redis blip must not take every node
// out of rotation at once (T11).
func (o *Ops) AddReadiness(name string, check func(context.Context) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checks[name] = check
}

// Handle adds an operations endpoint. With keys, GET needs the scope read and
// every other method the scope write.
func (o *Ops) Handle(pattern string, h http.Handler) { o.mux.Handle(pattern, o.need(ScopeRead, h)) }

// HandleSteering adds an endpoint that changes how a deployment runs: with keys,
// every method needs the scope steer.
func (o *Ops) HandleSteering(pattern string, h http.Handler) {
	o.mux.Handle(pattern, o.need(ScopeSteer, h))
}

// HandlePersonal adds an endpoint that shows or erases what is kept of one
// follower: with keys, every method needs the scope personal. Who looks after
// queues has no business there.
func (o *Ops) HandlePersonal(pattern string, h http.Handler) {
	o.mux.Handle(pattern, o.need(ScopePersonal, h))
}

// ServeHTTP implements http.Handler.
func (o *Ops) ServeHTTP(w http.ResponseWriter, r *http.Request) { o.mux.ServeHTTP(w, r) }

func (o *Ops) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyBudget)
	defer cancel()
	bad := o.failing(ctx)
	if len(bad) == 0 {
		_, _ = fmt.Fprintln(w, "ready")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	if _, known := o.keyOf(r); !known || o.open() && !namesThisMachine(r.Host) {
		_, _ = fmt.Fprintln(w, "not ready")
		return
	}
	for _, line := range bad {
		_, _ = fmt.Fprintln(w, line)
	}
}

func (o *Ops) failing(ctx context.Context) []string {
	o.mu.Lock()
	checks := make(map[string]func(context.Context) error, len(o.checks))
	for n, c := range o.checks {
		checks[n] = c
	}
	o.mu.Unlock()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var bad []string
	for name, check := range checks {
		wg.Go(func() {
			if err := check(ctx); err != nil {
				mu.Lock()
				bad = append(bad, "not ready: "+name+": "+err.Error())
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	sort.Strings(bad)
	return bad
}
