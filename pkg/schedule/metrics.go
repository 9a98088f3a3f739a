package schedule

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// The label is called name: Prometheus itself puts job on everything it scrapes.
type metrics struct {
	runs    *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	leading prometheus.Gauge
	skew    prometheus.Gauge
	rounds  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidegate_job_runs_total",
			Help: "What became of slots and runs by hand, told by the node that led: done, failed (given up), retry (an attempt failed), missed, interrupted."}, []string{"name", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "tidegate_job_run_seconds",
			Help: "How long attempts took.", Buckets: []float64{0.1, 1, 10, 60, 600, 3600}}, []string{"name"}),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidegate_job_leading", Help: "1 on the node that begins the jobs, else 0."}),
		skew: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidegate_job_clock_skew_seconds",
			Help: "This node's clock minus the database's, by which jobs go."}),
		rounds: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidegate_job_rounds_total",
			Help: "Looks of the leader at what is due, by result: ok, failed."}, []string{"result"}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.runs, m.seconds, m.leading, m.skew, m.rounds} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

// ages shows, when it is scraped, how old each job's last success is. The node
// need not lead: what all of them say is the same.
type ages struct {
	s       *Scheduler
	success *prometheus.Desc
	overdue *prometheus.Desc
}

func newAges(s *Scheduler) ages {
	return ages{s,
		prometheus.NewDesc("tidegate_job_last_success_age_seconds", "Time since the job last succeeded; -1 if it never has.", []string{"name"}, nil),
		prometheus.NewDesc("tidegate_job_overdue_seconds", "Time since the first slot behind the newest that succeeded; 0 if no slot has passed since.", []string{"name"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (a ages) Describe(ch chan<- *prometheus.Desc) { ch <- a.success; ch <- a.overdue }

// Collect implements prometheus.Collector.
func (a ages) Collect(ch chan<- prometheus.Metric) {
	for _, j := range a.s.jobs {
		p, now, known := a.s.seen.get(j.Name)
		if !known {
			continue
		}
		age := -1.0
		if !p.doneAt.IsZero() {
			age = max(now.Sub(p.doneAt).Seconds(), 0)
		}
		ch <- prometheus.MustNewConstMetric(a.success, prometheus.GaugeValue, age, j.Name)
		ch <- prometheus.MustNewConstMetric(a.overdue, prometheus.GaugeValue, p.overdue(j.Spec, now).Seconds(), j.Name)
	}
}
