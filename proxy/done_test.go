package proxy

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/dedupe"
)

// A slow Redis must not hold up answers: the mark that finds no place is left
// out and counted.
func TestAMarkWithoutAPlaceIsLeftOut(t *testing.T) {
	reg := prometheus.NewRegistry()
	p := &Proxy{m: newMetrics(reg), slots: make(chan struct{})} // no place at all
	p.done(&dedupe.Claim{})
	p.after.Wait()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "tidegate_proxy_unmarked_total" {
			require.InDelta(t, 1, f.GetMetric()[0].GetCounter().GetValue(), 0)
			return
		}
	}
	t.Fatal("the counter is missing")
}
