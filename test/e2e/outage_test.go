//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat/wechatsim"
)

// engines runs deployments/dev/engines on the set that the tests use.
func engines(t *testing.T, args ...string) {
	t.Helper()
	require.NotEmpty(t, os.Getenv("TIDEGATE_ENGINES_DIR"), "TIDEGATE_ENGINES_DIR must name the engines that this test may kill")
	out, err := exec.Command("../../deployments/dev/engines", args...).CombinedOutput()
	require.NoError(t, err, "%v: %s", args, out)
}

// TestKafkaAway kills Kafka with −9 under load. The doors keep acknowledging
// out of their spools; when Kafka is back everything is worked off, in order.
func TestKafkaAway(t *testing.T) {
	w := newWorld(t, shape{partitions: 8, proxies: 2, robots: 2, senders: 1, receiptsWorkers: 1, followers: 200, spool: true})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	talked := make(chan error, 1)
	go func() {
		_, err := w.sim.Load(ctx, wechatsim.LoadSpec{Rate: 100, For: time.Hour, Loop: wechatsim.LoopClosed, LoseAckShare: 0.02})
		talked <- err
	}()
	w.waitForAcks(200)
	engines(t, "kill", "kafka")
	t.Cleanup(func() { engines(t, "restart", "kafka") }) // harmless when it runs
	before := w.sim.Verdict(0).Callbacks.Acked
	w.waitForAcks(before + 800)
	spooled := w.parts["proxy0"].Metric("tidegate_proxy_spool_records") + w.parts["proxy1"].Metric("tidegate_proxy_spool_records")
	require.Positive(t, spooled, "the acks of the outage must have come out of the spools")
	engines(t, "restart", "kafka")
	w.waitForAcks(w.sim.Verdict(0).Callbacks.Acked + 200)
	stop()
	require.ErrorIs(t, <-talked, context.Canceled)
	v := w.settle(90 * time.Second)
	requireRight(t, v)
	require.Zero(t, v.Callbacks.Refused)
	ci(t, "Kafka killed with -9 under 100 callbacks/s: %d acked in all, %.0f kept by the spools when Kafka came back, ack p50 %.1f ms p99 %.1f ms worst %.0f ms; refused 0, lost 0, doubled 0, out of order 0",
		v.Callbacks.Acked, spooled, v.Callbacks.AckP50Ms, v.Callbacks.AckP99Ms, v.Callbacks.AckMaxMs)
}

// spoolArgs gives a door its spool.
func (w *world) spoolArgs(name string) []string {
	return []string{"--set", fmt.Sprintf("proxy.spool.dir=%s/%s", w.t.TempDir(), name)}
}
