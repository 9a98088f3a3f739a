package line

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are labelled by names of the configuration alone.
type metrics struct {
	requests *prometheus.CounterVec
	probes   *prometheus.CounterVec
	left     *prometheus.CounterVec
	state    *prometheus.GaugeVec
	use      *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	var errs []error
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tidegate", Subsystem: "line", Name: name, Help: help}, labels)
		errs = append(errs, reg.Register(c))
		return c
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tidegate", Subsystem: "line", Name: name, Help: help}, labels)
		errs = append(errs, reg.Register(g))
		return g
	}
	m := &metrics{
		requests: counter("requests_total", "Requests to WeChat by line: answered, lost on a connection, or unreached (nothing was sent).", "line", "result"),
		probes:   counter("probes_total", "Looks at a line.", "line", "result"),
		left:     counter("left_total", "How often a line was left because it could not be reached.", "line"),
		state:    gauge("up", "1 while a line can be reached, 0.5 while it answers again for less than the hold, 0 while not.", "line"),
		use:      gauge("in_use", "1 for the line that an account's next request goes by.", "account", "line"),
	}
	return m, errors.Join(errs...)
}

func (m *metrics) show(line string, s State) {
	m.state.WithLabelValues(line).Set(map[State]float64{Up: 1, Recovering: 0.5}[s])
}

func (m *metrics) forget(account string) {
	m.use.DeletePartialMatch(prometheus.Labels{"account": account})
}

// showUse publishes which account uses which line.
func (f *Fleet) showUse() {
	for _, a := range f.Accounts() {
		for _, name := range a.Order {
			v := 0.0
			if name == a.Use {
				v = 1
			}
			f.met.use.WithLabelValues(a.Account, name).Set(v)
		}
	}
}
