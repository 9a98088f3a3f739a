package guard

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/telemetry"
)

// stats are the metrics of one back end, whose name is their one free label: it
// comes from the configuration.
type stats struct {
	requests     map[How]prometheus.Counter
	notShared    map[string]prometheus.Counter
	fetchSeconds prometheus.Histogram
	fetchFailed  prometheus.Counter
	refused      prometheus.Counter
	protections  prometheus.Counter
	redisFailed  prometheus.Counter
}

func newStats(reg prometheus.Registerer, g *Guard) *stats {
	reg = prometheus.WrapRegistererWith(prometheus.Labels{"backend": g.cfg.Backend}, telemetry.Registerer(reg))
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidegate_guard_requests_total", Help: "Requests by where their answer came from.",
	}, []string{"how"})
	uncached := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidegate_guard_not_shared_total", Help: "Values that were fetched and not shared, by reason.",
	}, []string{"reason"})
	s := &stats{
		requests: map[How]prometheus.Counter{}, notShared: map[string]prometheus.Counter{},
		fetchSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidegate_guard_fetch_seconds", Help: "Time of a fetch from the back end.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 12),
		}),
		fetchFailed: counter("tidegate_guard_fetch_failures_total", "Fetches that failed."),
		refused:     counter("tidegate_guard_late_values_total", "Values that came too late to be shared: something newer or an invalidation was first."),
		protections: counter("tidegate_guard_protections_total", "Times that protection began, as this node saw it."),
		redisFailed: counter("tidegate_guard_redis_failures_total", "Questions to Redis without an answer."),
	}
	for _, h := range ways() {
		s.requests[h] = requests.WithLabelValues(string(h))
	}
	for _, r := range []string{"size", "private", "full"} {
		s.notShared[r] = uncached.WithLabelValues(r)
	}
	reg.MustRegister(requests, uncached, s.fetchSeconds)
	gauges(reg, g)
	return s
}

func gauges(reg prometheus.Registerer, g *Guard) {
	gauge := func(name, help string, value func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	number := func(on bool) float64 {
		if on {
			return 1
		}
		return 0
	}
	gauge("tidegate_guard_protection", "1 while values are shared.", func() float64 { return number(g.mode.view(time.Now(), g.shared()).on) })
	gauge("tidegate_guard_window_requests", "Demand of the last window, over all nodes.", func() float64 { return float64(g.mode.view(time.Now(), g.shared()).count) })
	gauge("tidegate_guard_threshold_requests", "Demand above which protection begins.", func() float64 { return float64(g.mode.view(time.Now(), g.shared()).threshold) })
	gauge("tidegate_guard_in_flight", "Fetches that run on this node.", func() float64 { return float64(g.gate.stats().in) })
	gauge("tidegate_guard_gate", "Fetches that may run on this node.", func() float64 { return float64(g.gate.stats().limit) })
	gauge("tidegate_guard_gate_waiting", "Fetches that wait for a place.", func() float64 { return float64(g.gate.stats().waiting) })
	gauge("tidegate_guard_alone", "1 while this node guards by itself.", func() float64 { return number(!g.shared()) })
	gauge("tidegate_guard_breaker_open", "1 while the back end is left alone after failures in a row.", func() float64 { return number(g.backend.open()) })
}

func (s *stats) done(h How) {
	if c, known := s.requests[h]; known {
		c.Inc()
	}
}

func (s *stats) uncached(reason string) { s.notShared[reason].Inc() }
