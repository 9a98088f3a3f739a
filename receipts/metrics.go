package receipts

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/fault"
	"tidegate/receipts/store"
)

// metrics count news and rows. Labels are accounts, kinds and states: bounded
// by the configuration, never by users (S53).
type metrics struct {
	news     *prometheus.CounterVec
	seconds  prometheus.Histogram
	messages *prometheus.GaugeVec
	// difference and waiting belong to the sum of G30.
	difference, waiting *prometheus.GaugeVec
	parked              *prometheus.GaugeVec
	resent              prometheus.Counter
	kept                *prometheus.CounterVec

	repeats      *prometheus.CounterVec
	repeatAlarms prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		news: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidegate_receipts_news_total",
			Help: "Pieces of news by what became of them: new, moved, same, parked, joined, contradiction, dead_letter, not_kept."}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tidegate_receipts_apply_seconds",
			Help: "Time to join one batch of news.", Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 10)}),
		messages: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tidegate_receipts_messages",
			Help: "Messages by account, kind and state, within the retention."}, []string{"account", "kind", "state"}),
		difference: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tidegate_receipts_conservation_difference",
			Help: "Messages that rows say are queued or being sent, less those that were measured in the sender's topics: 0 at rest."}, []string{"account", "kind"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tidegate_receipts_waiting",
			Help: "Records in the sender's topics that are not committed, as measured."}, []string{"account", "kind"}),
		parked: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tidegate_receipts_parked_events",
			Help: "Events of WeChat whose message is not known: waiting for it, or foreign."}, []string{"class"}),
		resent: prometheus.NewCounter(prometheus.CounterOpts{Name: "tidegate_receipts_resent_total",
			Help: "Pushes that were sent again on request."}),
		kept: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidegate_receipts_housekeeping_total",
			Help: "Rows that housekeeping changed: no_receipt, joined_late, foreign, purged, purged_events; and failed rounds: failed."}, []string{"what"}),
		repeats: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidegate_receipts_repeats_total",
			Help: "Repeats of users, by account; what is read again after a crash or a rebalance counts again."}, []string{"account"}),
		repeatAlarms: prometheus.NewCounter(prometheus.CounterOpts{Name: "tidegate_receipts_repeat_alarms_total",
			Help: "Alarms about users who repeat too often."}),
	}
	for _, c := range []prometheus.Collector{m.news, m.seconds, m.messages, m.difference, m.waiting, m.parked, m.resent, m.kept, m.repeats, m.repeatAlarms} {
		if err := reg.Register(c); err != nil {
			return nil, fault.Wrap(fault.Internal, "register metrics of receipts", err)
		}
	}
	return m, nil
}

func (m *metrics) applied(a store.Applied, d time.Duration) {
	for result, n := range map[string]int{"new": a.New, "moved": a.Moved, "same": a.Same, "parked": a.Parked, "joined": a.Joined, "contradiction": a.Contradictions} {
		m.news.WithLabelValues(result).Add(float64(n))
	}
	if d > 0 {
		m.seconds.Observe(d.Seconds())
	}
}

// rows shows what the tallies say.
func (m *metrics) rows(ts []store.Tally) {
	m.messages.Reset()
	for _, t := range ts {
		m.messages.WithLabelValues(t.Account, string(t.Kind), string(t.State)).Set(float64(t.N))
	}
}
