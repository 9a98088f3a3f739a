package control

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	version   prometheus.Gauge
	overrides prometheus.Gauge
	bad       prometheus.Gauge
	failures  prometheus.Counter
	unheard   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, age func() float64) (*metrics, error) {
	m := &metrics{
		version:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidegate_control_version", Help: "Version of the live settings that this node applies."}),
		overrides: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidegate_control_overrides", Help: "Limits of this node that a live setting overrides."}),
		bad:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidegate_control_unusable", Help: "Live limits that this node cannot apply; the configuration file's hold instead."}),
		failures:  prometheus.NewCounter(prometheus.CounterOpts{Name: "tidegate_control_poll_failures_total", Help: "Looks at the live settings that the database did not answer."}),
		unheard:   prometheus.NewCounter(prometheus.CounterOpts{Name: "tidegate_control_unannounced_total", Help: "Changes that could not be announced over Redis; nodes find them by polling."}),
	}
	seen := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidegate_control_view_age_seconds", Help: "Time since the live settings were last read; -1 before the first time.",
	}, age)
	var errs []error
	for _, c := range []prometheus.Collector{m.version, m.overrides, m.bad, m.failures, m.unheard, seen} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}
