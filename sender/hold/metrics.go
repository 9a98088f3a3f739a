package hold

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics name accounts and reasons, both of closed sets, and never a follower.
type metrics struct {
	held     *prometheus.GaugeVec
	puts     *prometheus.CounterVec
	released *prometheus.CounterVec
	failures *prometheus.CounterVec
	overdue  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		held: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidegate_hold_rows", Help: "Letters held outside the queue, as the node that feeds them back counted last.",
		}, []string{"account", "reason"}),
		puts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_hold_put_total", Help: "Letters that were put aside because they have to wait, by reason.",
		}, []string{"account", "reason"}),
		released: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_hold_released_total", Help: "Held letters that were fed back to the queue.",
		}, []string{"account"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_hold_failures_total", Help: "What did not work and is tried again: put, lease, look, release, delete, orders, settle or count.",
		}, []string{"what"}),
		overdue: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tidegate_hold_overdue_seconds", Help: "How long the oldest held letter is due; 0 if none is.",
		}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.held, m.puts, m.released, m.failures, m.overdue} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) put(batch []*wish, err error) {
	if err != nil {
		m.failures.WithLabelValues("put").Inc()
		return
	}
	for _, w := range batch {
		m.puts.WithLabelValues(w.row.Account, w.row.Reason).Inc()
	}
}
