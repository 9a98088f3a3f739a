package intake

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/fault"
)

type metrics struct {
	requests *prometheus.CounterVec
	repeats  prometheus.Counter
	seconds  prometheus.Histogram

	unchecked prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_intake_requests_total", Help: "Requests to POST /v1/pushes by result: accepted, or the kind of refusal.",
		}, []string{"result"}),
		repeats: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidegate_intake_repeats_total", Help: "Requests answered from a remembered idempotency key.",
		}),
		unchecked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidegate_intake_unchecked_total", Help: "Pushes whose template nobody could tell about: WeChat's list was away.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidegate_intake_accept_seconds", Help: "Time to accept a push durably.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
	}
	return m, errors.Join(reg.Register(m.requests), reg.Register(m.repeats), reg.Register(m.seconds), reg.Register(m.unchecked))
}

func (m *metrics) seen(err error, took time.Duration) {
	if err != nil {
		m.requests.WithLabelValues(fault.KindOf(err).String()).Inc()
		return
	}
	m.requests.WithLabelValues("accepted").Inc()
	m.seconds.Observe(took.Seconds())
}
