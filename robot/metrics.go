package robot

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the robot. Labels are configured names and closed sets.
type metrics struct {
	callbacks *prometheus.CounterVec
	replies   *prometheus.CounterVec
	failures  *prometheus.CounterVec
	waited    *prometheus.HistogramVec
	worked    *prometheus.HistogramVec
	age       *prometheus.HistogramVec
	breaks    *prometheus.CounterVec
	limited   *prometheus.CounterVec
	refused   *prometheus.CounterVec
	waiting   *prometheus.GaugeVec
	turn      *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	buckets := []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	m := &metrics{
		callbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_robot_callbacks_total",
			Help: "Callbacks settled, by result: a state, or seen (finished before), unreadable, undeliverable.",
		}, []string{"account", "result"}),
		replies: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_robot_replies_total", Help: "Replies handed to the sender.",
		}, []string{"account"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_robot_failures_total", Help: "Callbacks whose rule could not be followed, by kind of fault, panic or max_age.",
		}, []string{"account", "cause"}),
		breaks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_robot_order_breaks_total",
			Help: "Callbacks that were acknowledged before another one of their user was sent, and worked after it.",
		}, []string{"account"}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_robot_rule_limits_total",
			Help: "Callbacks of rules with a limit per follower, by result: allowed, refused, or without Redis allowed_blind, refused_blind.",
		}, []string{"account", "result"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidegate_robot_refused_total",
			Help: "Callbacks that got no turn, by level and why: max_age (too old for their rule), or overload: account_wait, backend_wait, engine_wait (would wait for longer than their level may), account_late, backend_late, engine_late (did), places (too many wait).",
		}, []string{"account", "level", "why"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidegate_robot_waiting", Help: "Callbacks that wait for a permit, by whose: account NAME, back end NAME or engine NAME.",
		}, []string{"line", "level"}),
		turn: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidegate_robot_turn_seconds", Help: "From the arrival of a callback at the door until its turn comes, by level.", Buckets: buckets,
		}, []string{"account", "level"}),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidegate_robot_permit_seconds", Help: "Wait for a permit of the account.", Buckets: buckets,
		}, []string{"account"}),
		worked: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidegate_robot_work_seconds", Help: "Time of deciding, back end included.", Buckets: buckets,
		}, []string{"account"}),
		age: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidegate_robot_age_seconds", Help: "From the arrival of a callback at the door until it is settled.", Buckets: buckets,
		}, []string{"account"}),
	}
	r.MustRegister(m.callbacks, m.replies, m.failures, m.waited, m.worked, m.age, m.breaks, m.limited, m.refused, m.waiting, m.turn)
	return m
}
