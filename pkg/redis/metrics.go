package redis

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// stats counts commands as they end.
type stats struct {
	seconds *prometheus.HistogramVec
	failed  *prometheus.CounterVec
}

func newStats() *stats {
	return &stats{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidegate_redis_command_seconds", Help: "Time of one Redis command, with waiting for a connection.",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1},
		}, []string{"command"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_redis_failures_total", Help: "Redis commands that failed, by kind of fault.",
		}, []string{"kind"}),
	}
}

func (s *stats) seen(command string, err error, d time.Duration) {
	s.seconds.WithLabelValues(command).Observe(d.Seconds())
	if err != nil && !isNil(err) && !isNoScript(err) {
		s.failed.WithLabelValues(kindOf(err).String()).Inc()
	}
}

// collector shows the pool as it is at the moment of the scrape.
type collector struct {
	c      *Client
	conns  *prometheus.Desc
	events *prometheus.Desc
}

// Collector gives the client's metrics: commands, failures and the pool. Labels
// hold no keys. Register it once per process.
func (c *Client) Collector() prometheus.Collector {
	return &collector{
		c:      c,
		conns:  prometheus.NewDesc("tidegate_redis_pool_connections", "Connections of the pool by state.", []string{"state"}, nil),
		events: prometheus.NewDesc("tidegate_redis_pool_events_total", "What happened to connections of the pool.", []string{"event"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (k *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- k.conns
	ch <- k.events
	k.c.stats.seconds.Describe(ch)
	k.c.stats.failed.Describe(ch)
}

// Collect implements prometheus.Collector.
func (k *collector) Collect(ch chan<- prometheus.Metric) {
	p := k.c.rdb.PoolStats()
	gauge := func(v uint32, state string) {
		ch <- prometheus.MustNewConstMetric(k.conns, prometheus.GaugeValue, float64(v), state)
	}
	count := func(v uint32, event string) {
		ch <- prometheus.MustNewConstMetric(k.events, prometheus.CounterValue, float64(v), event)
	}
	gauge(p.TotalConns-p.IdleConns, "busy")
	gauge(p.IdleConns, "idle")
	count(p.Hits, "reused")
	count(p.Misses, "opened")
	count(p.Timeouts, "wait_timed_out")
	count(p.StaleConns, "dropped_stale")
	k.c.stats.seconds.Collect(ch)
	k.c.stats.failed.Collect(ch)
}
