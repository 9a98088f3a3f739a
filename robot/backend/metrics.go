package backend

import "github.com/prometheus/client_golang/prometheus"

// Metrics are shared by all back ends of a process; the label is the back
// end's configured name.
type Metrics struct {
	tries    *prometheus.CounterVec
	retries  *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	waited   *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	buckets := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	m := &Metrics{
		tries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_backend_tries_total", Help: "Tries to call a back end by outcome: ok, no_permit or the kind of fault.",
		}, []string{"backend", "outcome"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_backend_retries_total", Help: "Tries after the first one of a call.",
		}, []string{"backend"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidegate_backend_try_seconds", Help: "Time of one try, without the wait for a permit.", Buckets: buckets,
		}, []string{"backend"}),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidegate_backend_permit_seconds", Help: "Wait for a permit before a try.", Buckets: buckets,
		}, []string{"backend"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidegate_backend_in_flight", Help: "Tries that are under way.",
		}, []string{"backend"}),
	}
	r.MustRegister(m.tries, m.retries, m.seconds, m.waited, m.inFlight)
	return m
}
