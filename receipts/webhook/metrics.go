package webhook

import (
	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/fault"
)

// metrics have the names of apps and endpoints as labels, which the
// configuration bounds; no message, user or address (S53).
type metrics struct {
	events   *prometheus.CounterVec
	attempts *prometheus.CounterVec
	lapsed   prometheus.Counter
	pending  *prometheus.GaugeVec
	oldest   *prometheus.GaugeVec
	disabled *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidegate_webhook_events_total",
			Help: "Events for apps: recorded in the outbox (again after a transaction that failed), or not_allowed: a push named an address that its app may not."}, []string{"app", "result"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidegate_webhook_attempts_total",
			Help: "Attempts to tell an app: taken, failed, given_up, not_noted (goes again), not_claimed."}, []string{"app", "result"}),
		lapsed: prometheus.NewCounter(prometheus.CounterOpts{Name: "tidegate_webhook_lapsed_claims_total",
			Help: "Attempts whose claim was no longer theirs when they ended."}),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tidegate_webhook_pending",
			Help: "Events that are still to be taken."}, []string{"endpoint"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tidegate_webhook_oldest_seconds",
			Help: "Age of the oldest event that is still to be taken."}, []string{"endpoint"}),
		disabled: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tidegate_webhook_disabled",
			Help: "1 while an endpoint is disabled."}, []string{"endpoint"}),
	}
	for _, c := range []prometheus.Collector{m.events, m.attempts, m.lapsed, m.pending, m.oldest, m.disabled} {
		if err := reg.Register(c); err != nil {
			return nil, fault.Wrap(fault.Internal, "register metrics of webhooks", err)
		}
	}
	return m, nil
}
