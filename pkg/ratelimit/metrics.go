package ratelimit

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/telemetry"
)

// meters are the metrics of all caps of a process. Names of caps come from the
// configuration.
type meters struct {
	granted, lapsed, empty, failures *prometheus.CounterVec
	wait                             *prometheus.HistogramVec
	shared                           *prometheus.GaugeVec

	mu   sync.Mutex
	uses map[string]int // by name: the same may be open twice while one closes
}

func newMeters(reg prometheus.Registerer) *meters {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"cap"})
	}
	m := &meters{
		uses:     map[string]int{},
		granted:  counter("tidegate_permits_granted_total", "Permits that callers took."),
		lapsed:   counter("tidegate_permits_lapsed_total", "Permits that were given to this node and not used in time."),
		empty:    counter("tidegate_permits_empty_starts_total", "Times that a cap began empty: its data were lost, or nobody had asked for a while."),
		failures: counter("tidegate_permits_redis_failures_total", "Questions about permits without an answer."),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidegate_permits_wait_seconds", Help: "Time that callers waited for a permit.",
			Buckets: []float64{.001, .005, .02, .1, .5, 1, 5, 20, 60},
		}, []string{"cap"}),
		shared: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidegate_permits_shared", Help: "1 while a cap is shared by means of Redis, 0 while this node takes its static share.",
		}, []string{"cap"}),
	}
	telemetry.Registerer(reg).MustRegister(m.granted, m.lapsed, m.empty, m.failures, m.wait, m.shared)
	return m
}

// stats are those of one cap.
type stats struct {
	granted, lapsed, empty, failures prometheus.Counter
	wait                             prometheus.Observer
	shared                           prometheus.Gauge
	forget                           func()
}

func (m *meters) of(name string) stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uses[name]++
	return stats{
		granted: m.granted.WithLabelValues(name), lapsed: m.lapsed.WithLabelValues(name), empty: m.empty.WithLabelValues(name),
		failures: m.failures.WithLabelValues(name), wait: m.wait.WithLabelValues(name), shared: m.shared.WithLabelValues(name),
		forget: func() { m.forget(name) },
	}
}

// forget takes the series of a cap away with its last user.
func (m *meters) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.uses[name]--; m.uses[name] > 0 {
		return
	}
	delete(m.uses, name)
	for _, v := range []*prometheus.CounterVec{m.granted, m.lapsed, m.empty, m.failures} {
		v.DeleteLabelValues(name)
	}
	m.wait.DeleteLabelValues(name)
	m.shared.DeleteLabelValues(name)
}

func (s *stats) waited(d time.Duration) { s.wait.Observe(d.Seconds()) }
