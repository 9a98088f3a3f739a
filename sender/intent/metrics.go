package intent

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	rows          prometheus.Histogram
	seconds       prometheus.Histogram
	existed       prometheus.Counter
	failures      prometheus.Counter
	purgeFailures prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		rows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidegate_intent_batch_rows", Help: "Rows written by one commit of the intent writer.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200},
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidegate_intent_commit_seconds", Help: "Time of one commit of the intent writer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
		}),
		existed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidegate_intent_existed_total", Help: "Letters whose intent was there already: an ambiguous past.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidegate_intent_failures_total", Help: "Batches that the database did not take; nothing was sent for them.",
		}),
		purgeFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidegate_intent_purge_failures_total", Help: "Purges of old intents that failed.",
		}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.rows, m.seconds, m.existed, m.failures, m.purgeFailures} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) batch(rows int, took time.Duration, err error) {
	if err != nil {
		m.failures.Inc()
		return
	}
	m.rows.Observe(float64(rows))
	m.seconds.Observe(took.Seconds())
}
