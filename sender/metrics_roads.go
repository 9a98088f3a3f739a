package sender

import "github.com/prometheus/client_golang/prometheus"

// roadsNow shows how the roads stand when somebody looks, with labels from the
// configuration alone (S53).
type roadsNow struct {
	s                       *Sender
	places, firsts, retries *prometheus.Desc
}

func newRoadsNow(s *Sender) roadsNow {
	labels := []string{"account", "api"}
	return roadsNow{s,
		prometheus.NewDesc("tidegate_sender_places", "Requests of an API that may be under way at once on this node: the cap, and less while WeChat is slow.", labels, nil),
		prometheus.NewDesc("tidegate_sender_first_requests_total", "Requests that were no retries.", labels, nil),
		prometheus.NewDesc("tidegate_sender_retries_total", "Requests after one without an answer; the budget keeps them below a tenth.", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (n roadsNow) Describe(ch chan<- *prometheus.Desc) {
	ch <- n.places
	ch <- n.firsts
	ch <- n.retries
}

// Collect implements prometheus.Collector.
func (n roadsNow) Collect(ch chan<- prometheus.Metric) {
	for _, st := range n.s.all() {
		for _, r := range st.roads {
			firsts, retries := r.budget.counts()
			ch <- prometheus.MustNewConstMetric(n.places, prometheus.GaugeValue, float64(r.places.places()), st.name, string(r.api))
			ch <- prometheus.MustNewConstMetric(n.firsts, prometheus.CounterValue, float64(firsts), st.name, string(r.api))
			ch <- prometheus.MustNewConstMetric(n.retries, prometheus.CounterValue, float64(retries), st.name, string(r.api))
		}
	}
}
