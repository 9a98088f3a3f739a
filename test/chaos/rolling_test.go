//go:build chaos

package chaos

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/herd"
)

// rolling restarts one door after another under load: each stops cleanly and in
// time, and WeChat sees nothing of it (G18; T60).
func rolling(t *testing.T, e *engines, n numbers) {
	w := newWorld(t, e, shape{doors: 3, broker: e.brokerOf(n)})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	sum := make(chan drive.Sum, 1)
	rate := w.rate(n.rolling.rate)
	go func() { sum <- w.drive.Open(ctx, drive.Load{Rate: rate, Act: w.crowd(1000), Dice: w.dice}) }()
	w.pass(int64(rate / 2))
	w.drive.Begin("restarts")
	slowest, restarts := time.Duration(0), 0
	for range n.rolling.rounds {
		for _, d := range w.doors {
			require.Positive(t, w.waitForWork())
			began := time.Now()
			d.Stop()
			slowest = max(slowest, time.Since(began))
			w.pass(int64(rate / 4))
			d.Restart()
			w.pass(int64(rate / 4))
			restarts++
		}
	}
	stop()
	s := <-sum
	require.Zero(t, s.Skipped)
	require.Less(t, slowest, 15*time.Second, "a clean stop")
	v := w.verify(w.busy())
	for _, p := range w.drive.Phases() {
		require.Zero(t, p.NotAcked(), "%s: %s", p.Name, p.Bad)
	}
	ci(t, "G18 %d clean restarts of doors at %.0f/s: slowest stop %.1f s; %d deliveries, refused or reset 0, lost %d, in the log twice %d; %d connections went to the next door",
		restarts, rate, slowest.Seconds(), v.Deliveries, v.lost, v.repeated, w.drive.RefusedConnections())
}

// bothBrokers runs the same scenario on Apache Kafka and on the embedded broker:
// every other scenario may then run on either.
func bothBrokers(t *testing.T, e *engines, n numbers) {
	for _, broker := range []*herd.Engine{e.kafka, e.node} {
		t.Run(broker.Name, func(t *testing.T) {
			w := newWorld(t, e, shape{doors: 2, broker: broker})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			sum := make(chan drive.Sum, 1)
			// Slow enough for a JVM's start not to become thousands of callbacks.
			go func() { sum <- w.drive.Open(ctx, drive.Load{Rate: w.rate(200), Act: w.crowd(100), Dice: w.dice}) }()
			inFlight := int64(0)
			for range n.alike.kills {
				w.pass(int64(n.alike.acts / (2 * n.alike.kills)))
				inFlight += w.waitForWork()
				broker.Kill()
				w.pass(int64(n.alike.acts / (2 * n.alike.kills)))
				broker.Restart()
				w.settled()
			}
			stop()
			s := <-sum
			require.Zero(t, s.Skipped)
			require.Positive(t, inFlight)
			v := w.verify(w.busy())
			require.EqualValues(t, s.Acked, v.acked)
			ci(t, "both brokers: %s, %d kill -9 (%d in flight): acked %d of %d, lost %d, out of order %d, in the log twice %d", w.brokerName(), n.alike.kills, inFlight, v.acked, s.Offered, v.lost, v.inversions, v.repeated)
		})
	}
}
