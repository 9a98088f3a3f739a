package token

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	renewals   *prometheus.CounterVec
	rejections *prometheus.CounterVec
	contested  *prometheus.CounterVec
	alone      *prometheus.CounterVec
	stopped    *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		renewals:   counter("tidegate_token_calls_total", "Calls of stable_token.", "account", "mode", "result"),
		rejections: counter("tidegate_token_rejections_total", "API calls whose token WeChat refused.", "account"),
		contested:  counter("tidegate_token_contested_total", "Tokens refused soon after they were fetched.", "account"),
		alone:      counter("tidegate_token_alone_total", "Renewals made without Redis.", "account"),
		stopped: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidegate_token_stopped", Help: "1 while WeChat refuses to give the account a token.",
		}, []string{"account"}),
	}
	return m, errors.Join(reg.Register(m.renewals), reg.Register(m.rejections), reg.Register(m.contested), reg.Register(m.alone), reg.Register(m.stopped))
}

func (m *metrics) forget(account string) {
	l := prometheus.Labels{"account": account}
	for _, v := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{m.renewals, m.rejections, m.contested, m.alone, m.stopped} {
		v.DeletePartialMatch(l)
	}
}
