package proxy

import "github.com/prometheus/client_golang/prometheus"

// metrics of the door. Labels come from configuration and from closed sets
// only: nothing that a stranger sends becomes a label (S14).
type metrics struct {
	taken   *prometheus.CounterVec
	refused *prometheus.CounterVec
	// unmarked are done marks that were left out because Redis was slow.
	unmarked prometheus.Counter
	ack      prometheus.Histogram
	publish  prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	buckets := []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 4.5}
	m := &metrics{
		taken: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_proxy_callbacks_total",
			Help: "Authentic callbacks by what became of them at the door.",
		}, []string{"account", "result"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_proxy_refused_total",
			Help: "Requests refused before anything was enqueued, by reason.",
		}, []string{"account", "reason"}),
		unmarked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidegate_proxy_unmarked_total", Help: "Done marks left out because too many were on their way.",
		}),
		ack: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidegate_proxy_ack_seconds", Help: "Time from the request to its answer, of acknowledged callbacks.", Buckets: buckets,
		}),
		publish: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidegate_proxy_publish_seconds", Help: "Time until the queue or the spool has acknowledged a record.", Buckets: buckets,
		}),
	}
	r.MustRegister(m.taken, m.refused, m.unmarked, m.ack, m.publish)
	return m
}
