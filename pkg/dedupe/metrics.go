package dedupe

import "github.com/prometheus/client_golang/prometheus"

type stats struct {
	verdicts *prometheus.CounterVec
	verdict  [Unchecked + 1]prometheus.Counter // the same, by verdict
	repeats  *prometheus.CounterVec
	failed   *prometheus.CounterVec
}

func newStats(reg prometheus.Registerer, gate *breaker) *stats {
	s := &stats{
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_dedupe_verdicts_total", Help: "Deliveries by verdict of the claim.",
		}, []string{"verdict"}),
		repeats: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_dedupe_repeats_total", Help: "Actions by result of the repeat check.",
		}, []string{"result"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_dedupe_marks_failed_total", Help: "Marks that could not be written or removed.",
		}, []string{"step"}),
	}
	for v := range s.verdict {
		s.verdict[v] = s.verdicts.WithLabelValues(Verdict(v).String())
	}
	if reg != nil {
		reg.MustRegister(s.verdicts, s.repeats, s.failed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tidegate_dedupe_breaker_open", Help: "1 while Redis is not asked after failures in a row.",
		}, func() float64 {
			if gate.open() {
				return 1
			}
			return 0
		}))
	}
	return s
}

// lost counts a mark that stayed as it was.
func (s *stats) lost(step string, err error) {
	if err != nil {
		s.failed.WithLabelValues(step).Inc()
	}
}
