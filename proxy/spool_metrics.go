package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/proxy/spool"
)

// spoolMetrics reads the spool's books whenever somebody scrapes. Topics come
// from configuration, so they may be labels.
type spoolMetrics struct {
	s           *spool.Spool
	now         func() time.Time
	breaker     *prometheus.GaugeVec
	deadLetters prometheus.Counter

	records, bytes, disk, limit, oldest, total, bad *prometheus.Desc
}

func newSpoolMetrics(s *spool.Spool, now func() time.Time) *spoolMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("tidegate_proxy_spool_"+name, help, labels, nil)
	}
	return &spoolMetrics{
		s: s, now: now,
		breaker: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidegate_proxy_breaker_open", Help: "1 while a topic's records go straight to the spool.",
		}, []string{"topic"}),
		deadLetters: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidegate_proxy_spool_dead_letters_total", Help: "Spooled records that the queue will never take, published as dead letters.",
		}),
		records: desc("records", "Records on disk that the queue does not have yet."),
		bytes:   desc("bytes", "Bytes of those records."),
		disk:    desc("disk_bytes", "Bytes that the spool's directory takes."),
		limit:   desc("limit_bytes", "Bytes that it may take; beyond them callbacks are refused."),
		oldest:  desc("oldest_seconds", "Age of the oldest record that the queue does not have yet."),
		total:   desc("records_total", "Records by what became of them.", "result"),
		bad:     desc("bad_total", "Files put aside for a human: unreadable ranges and parked records."),
	}
}

// Describe implements prometheus.Collector.
func (m *spoolMetrics) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.records, m.bytes, m.disk, m.limit, m.oldest, m.total, m.bad} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (m *spoolMetrics) Collect(c chan<- prometheus.Metric) {
	d, st := m.s.Depth(), m.s.Stats()
	age := 0.0
	if !d.Oldest.IsZero() {
		age = max(0, m.now().Sub(d.Oldest).Seconds())
	}
	gauge := func(desc *prometheus.Desc, v float64) {
		c <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v)
	}
	gauge(m.records, float64(d.Records))
	gauge(m.bytes, float64(d.Bytes))
	gauge(m.disk, float64(d.Disk))
	gauge(m.limit, float64(d.Max))
	gauge(m.oldest, age)
	for result, n := range map[string]uint64{"appended": st.Appended, "replayed": st.Replayed, "parked": st.Parked, "refused": st.Refused} {
		c <- prometheus.MustNewConstMetric(m.total, prometheus.CounterValue, float64(n), result)
	}
	c <- prometheus.MustNewConstMetric(m.bad, prometheus.CounterValue, float64(st.Bad))
}
