package kafka

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// register adds a collector, or gives the one that an earlier producer or group
// of this process has added under the same name: several roles in one process
// share their metrics and differ by label. A nil registerer keeps it private.
func register[C prometheus.Collector](reg prometheus.Registerer, c C) (C, error) {
	if reg == nil {
		return c, nil
	}
	err := reg.Register(c)
	var dup prometheus.AlreadyRegisteredError
	if errors.As(err, &dup) {
		if old, ok := dup.ExistingCollector.(C); ok {
			return old, nil
		}
	}
	return c, err
}

func counter(reg prometheus.Registerer, errs *[]error, name, help string, labels ...string) *prometheus.CounterVec {
	c, err := register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "tidegate", Subsystem: "kafka", Name: name, Help: help,
	}, labels))
	*errs = append(*errs, err)
	return c
}

func gauge(reg prometheus.Registerer, errs *[]error, name, help string, labels ...string) *prometheus.GaugeVec {
	c, err := register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "tidegate", Subsystem: "kafka", Name: name, Help: help,
	}, labels))
	*errs = append(*errs, err)
	return c
}

type producerMetrics struct {
	published, failed *prometheus.CounterVec // client, topic (and kind)
	inFlight          prometheus.Gauge
	connected         prometheus.Gauge
	latency           prometheus.Observer
}

func newProducerMetrics(reg prometheus.Registerer, client string) (*producerMetrics, error) {
	var errs []error
	lat, err := register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "tidegate", Subsystem: "kafka", Name: "publish_seconds",
		Help:    "Time from handing a record to the producer until its result.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"client"}))
	errs = append(errs, err)
	m := &producerMetrics{
		published: counter(reg, &errs, "published_total", "Records that the cluster acknowledged.", "client", "topic"),
		failed:    counter(reg, &errs, "publish_failed_total", "Records that were not acknowledged, by kind of failure.", "client", "topic", "kind"),
		inFlight:  gauge(reg, &errs, "publish_in_flight", "Records handed to the producer whose result is not known.", "client").WithLabelValues(client),
		connected: gauge(reg, &errs, "producer_connected", "1 while the producer has a connection to the cluster.", "client").WithLabelValues(client),
		latency:   lat.WithLabelValues(client),
	}
	return m, errors.Join(errs...)
}

// counters are those of the topics that one goroutine has written to, so that it
// need not look them up for each record.
type counters map[string]prometheus.Counter

func (k counters) inc(all *prometheus.CounterVec, client, topic string) {
	c := k[topic]
	if c == nil {
		c = all.WithLabelValues(client, topic)
		k[topic] = c
	}
	c.Inc()
}

type groupMetrics struct {
	group                             string
	processed, retries, panics, stuck *prometheus.CounterVec
	queue                             *prometheus.GaugeVec
	rebalances, stalls, frozen        prometheus.Counter
	held                              prometheus.Gauge
	reset                             *prometheus.CounterVec
}

func newGroupMetrics(reg prometheus.Registerer, group string) (*groupMetrics, error) {
	var errs []error
	m := &groupMetrics{
		group:      group,
		processed:  counter(reg, &errs, "processed_total", "Records whose handler finished.", "group", "topic"),
		retries:    counter(reg, &errs, "retries_total", "Handler calls that failed and will be repeated.", "group", "topic"),
		panics:     counter(reg, &errs, "handler_panics_total", "Handler calls that panicked.", "group", "topic"),
		stuck:      counter(reg, &errs, "handlers_abandoned_total", "Handler calls still running after their partition was lost.", "group", "topic"),
		reset:      counter(reg, &errs, "offset_out_of_range_total", "Partitions whose committed offset had been deleted by retention: records were lost.", "group", "topic"),
		queue:      gauge(reg, &errs, "queue_records", "Records fetched and not finished.", "group", "topic", "partition"),
		rebalances: counter(reg, &errs, "rebalances_total", "Generations of the group this member has joined.", "group").WithLabelValues(group),
		stalls:     counter(reg, &errs, "stalls_total", "Times this member left its group because handlers showed no sign of life.", "group").WithLabelValues(group),
		frozen:     counter(reg, &errs, "frozen_total", "Times this member gave its partitions up because the process stood still for about a session time-out.", "group").WithLabelValues(group),
		held:       gauge(reg, &errs, "held_keys", "Keys that wait for a retry.", "group").WithLabelValues(group),
	}
	return m, errors.Join(errs...)
}
