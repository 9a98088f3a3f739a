package sender

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count messages apart from requests (T64), and never name a follower.
type metrics struct {
	letters    *prometheus.CounterVec
	requests   *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	permits    *prometheus.HistogramVec
	age        *prometheus.HistogramVec
	inFlight   *prometheus.GaugeVec
	pasts      *prometheus.CounterVec
	copies     *prometheus.CounterVec
	parked     *prometheus.CounterVec
	duplicates *prometheus.CounterVec
	closed     *prometheus.GaugeVec
	share      *prometheus.GaugeVec
	throttled  *prometheus.CounterVec
	quota      *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	var errs []error
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tidegate", Subsystem: "sender", Name: name, Help: help}, labels)
		errs = append(errs, reg.Register(c))
		return c
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tidegate", Subsystem: "sender", Name: name, Help: help}, labels)
		errs = append(errs, reg.Register(g))
		return g
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "tidegate", Subsystem: "sender", Name: name, Help: help, Buckets: buckets}, labels)
		errs = append(errs, reg.Register(h))
		return h
	}
	m := &metrics{
		letters:    counter("letters_total", "Messages that ended, by state.", "account", "lane", "state"),
		requests:   counter("requests_total", "Requests to WeChat by what they came to.", "account", "api", "result"),
		seconds:    histogram("request_seconds", "Time of one request to WeChat.", []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "account", "api"),
		permits:    histogram("permit_wait_seconds", "Waiting for the departure permit.", []float64{.001, .01, .05, .1, .5, 1, 5, 15, 60}, "account", "lane"),
		age:        histogram("first_try_age_seconds", "Age of a message at its first request.", []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 15, 60, 300, 1800, 7200, 43200}, "account", "lane"),
		inFlight:   gauge("in_flight", "Requests to WeChat under way.", "account", "api"),
		pasts:      counter("ambiguous_pasts_total", "Letters that came back after a try whose outcome is not known.", "account"),
		copies:     counter("copies_total", "Second copies of letters that had ended already.", "account"),
		parked:     counter("dead_letters_total", "Letters that nobody could work.", "account"),
		duplicates: counter("possible_duplicates_total", "Replies that may have been seen twice.", "account"),
		closed:     gauge("closed", "1 while an API of an account (or all of it) is closed, by cause.", "account", "api", "cause"),
		throttled:  counter("throttled_total", "Times that a message had to wait for a cap, by what it waited for.", "account", "lane", "why"),
		quota:      gauge("day_quota", "Calls of the day: the quota, and what all senders have taken of it.", "account", "api", "what"),
		share:      gauge("rate_share", "Part of its configured rate that an API has now.", "account", "api"),
	}
	return m, errors.Join(errs...)
}

func (m *metrics) waited(p *parcel, d time.Duration) {
	m.permits.WithLabelValues(p.account, p.base.Lane).Observe(d.Seconds())
}

func (m *metrics) request(p *parcel, g *progress, a answer, took time.Duration, now time.Time) {
	m.requests.WithLabelValues(p.account, string(p.api), string(a.class)).Inc()
	m.seconds.WithLabelValues(p.account, string(p.api)).Observe(took.Seconds())
	if g.requests == 1 && g.unsure <= 1 && p.born.UnixMilli() > 0 {
		m.age.WithLabelValues(p.account, p.base.Lane).Observe(max(0, now.Sub(p.born).Seconds()-took.Seconds()))
	}
}

// show publishes what is closed and slowed.
func (m *metrics) show(stations []*station) {
	m.closed.Reset()
	m.share.Reset()
	m.quota.Reset()
	for _, s := range stations {
		s.eachBrake(func(api string, b *brake) {
			if why, _, _ := b.state(); why != causeNone {
				m.closed.WithLabelValues(s.name, api, string(why)).Set(1)
			}
		})
		for _, r := range s.roads {
			m.share.WithLabelValues(s.name, string(r.api)).Set(r.share())
			if most, taken := s.gate.level(r.api); most > 0 {
				m.quota.WithLabelValues(s.name, string(r.api), "most").Set(float64(most))
				m.quota.WithLabelValues(s.name, string(r.api), "taken").Set(float64(taken))
			}
		}
	}
}
