package robot

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/wire"
	"tidegate/robot/engine"
)

// tally is one account's part of the metrics that count on every callback, found
// once instead of each time by the names of their labels.
type tally struct {
	account string
	all     *metrics
	results map[string]prometheus.Counter // the usual ones
	replies prometheus.Counter
	waited  prometheus.Observer
	worked  prometheus.Observer
	age     prometheus.Observer
	turn    [engine.Levels]prometheus.Observer
}

func (m *metrics) of(account string) *tally {
	t := &tally{
		account: account, all: m, results: map[string]prometheus.Counter{}, replies: m.replies.WithLabelValues(account), waited: m.waited.WithLabelValues(account),
		worked: m.worked.WithLabelValues(account), age: m.age.WithLabelValues(account),
	}
	for _, s := range []wire.State{wire.Answered, wire.NotAnswered, wire.Dead, wire.Rejected, wire.Expired} {
		t.results[string(s)] = m.callbacks.WithLabelValues(account, string(s))
	}
	for l := range t.turn {
		t.turn[l] = m.turn.WithLabelValues(account, engine.Level(l).String())
	}
	return t
}

// turned notes that a callback's turn has come, after a wait for a permit.
func (t *tally) turned(l engine.Level, c *wire.Callback, asked, now time.Time) {
	t.waited.Observe(now.Sub(asked).Seconds())
	if c.ReceivedAt > 0 {
		t.turn[l].Observe(max(0, now.Sub(time.UnixMilli(c.ReceivedAt)).Seconds()))
	}
}

// settled counts an outcome whose letters are all durable.
func (t *tally) settled(o *outcome, now time.Time) {
	if c := t.results[o.result]; c != nil {
		c.Inc()
	} else {
		t.all.callbacks.WithLabelValues(t.account, o.result).Inc()
	}
	t.replies.Add(float64(o.replies))
	if o.callback != nil && o.callback.ReceivedAt > 0 {
		t.age.Observe(max(0, now.Sub(time.UnixMilli(o.callback.ReceivedAt)).Seconds()))
	}
}
