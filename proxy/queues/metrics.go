package queues

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// collector turns the last view into metrics whenever somebody scrapes. Labels
// come from configuration and from closed sets.
type collector struct{ w *Watch }

var partitionLabels = []string{"queue", "account", "partition"}

var (
	depthDesc = prometheus.NewDesc("tidegate_queue_depth", "Records in Kafka that the group has not finished.", partitionLabels, nil)
	ageDesc   = prometheus.NewDesc("tidegate_queue_age_seconds", "Age of the oldest of them; absent where it is not known.", partitionLabels, nil)
	drainDesc = prometheus.NewDesc("tidegate_queue_drain_seconds", "Time until they are worked, at the speed of late; absent where nothing moves.", partitionLabels, nil)
	stateDesc = prometheus.NewDesc("tidegate_queue_state", "1 for the status of the partition: ok, slow, stall, stop, rewind or unknown.",
		append(append([]string{}, partitionLabels...), "state"), nil)
	verdictDesc = prometheus.NewDesc("tidegate_queue_verdict", "1 for the verdict on the partition: ok, deep, slow, faulty or overload.",
		append(append([]string{}, partitionLabels...), "verdict"), nil)
	sampledDesc = prometheus.NewDesc("tidegate_queue_sampled_seconds", "How long ago the queues were last measured; absent before the first time.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{depthDesc, ageDesc, drainDesc, stateDesc, verdictDesc, sampledDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	v := c.w.view.Load()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	if !v.SampledAt.IsZero() {
		gauge(sampledDesc, c.w.now().Sub(v.SampledAt).Seconds())
	}
	for _, q := range v.Queues {
		for _, p := range q.Partitions {
			n := strconv.Itoa(int(p.Partition))
			gauge(depthDesc, float64(p.Depth), q.Queue, q.Account, n)
			if p.Age != nil {
				gauge(ageDesc, *p.Age, q.Queue, q.Account, n)
			}
			if p.Drain != nil {
				gauge(drainDesc, *p.Drain, q.Queue, q.Account, n)
			}
			gauge(stateDesc, 1, q.Queue, q.Account, n, string(p.Status))
			gauge(verdictDesc, 1, q.Queue, q.Account, n, string(p.Verdict))
		}
	}
}
