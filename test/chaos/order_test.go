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

// order has users who send only after the last ack, while doors, Redis and the
// broker are killed: in the log each user's messages are in the order of their
// acks (G6; T24, T27, T28). The balancer sends a user to his door alone: a door
// that died with some of his messages in its spool must come back before the
// next one may overtake them (D12).
func order(t *testing.T, e *engines, n numbers) {
	w := newWorld(t, e, shape{doors: 3, broker: e.brokerOf(n), routing: drive.Pinned})
	crowd := w.crowd(n.order.users)
	total := int64(n.order.users * n.order.each)
	acked, killed := make(chan int64, 1), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		acked <- w.drive.Closed(ctx, drive.Users{
			Count: n.order.users, Each: n.order.each, Until: killed, Pause: w.patience(time.Duration(n.order.users) * time.Second / 1000),
			Act: func(user, _, i int) drive.Act { return crowd(i*n.order.users + user) },
		})
	}()
	k := w.kills(n.order.kills, total, w.drive.Acked)
	close(killed)
	require.GreaterOrEqual(t, <-acked, total)
	v := w.verify(w.killing())
	ci(t, "G6 %s: %d users x at least %d, each waits for his ack, %s: acked %d, lost %d, inversions %d", w.brokerName(), n.order.users, n.order.each, k, v.acked, v.lost, v.inversions)
}

// breaks sends a user's messages to any door while the broker is away: what one
// door spooled is overtaken by what another hands on. D12 does not promise an
// order then, and the robot counts what it sees of it.
func breaks(t *testing.T, e *engines, n numbers) {
	w := newWorld(t, e, shape{doors: 2, broker: e.node, routing: drive.AtRandom})
	robot := w.role("robot", "robot0")
	crowd := w.crowd(20)
	send := func(each int) {
		w.drive.Closed(t.Context(), drive.Users{
			Count: 20, Each: each, Pause: 20 * time.Millisecond,
			Act: func(user, _, i int) drive.Act { return crowd((each*1000+i)*20 + user) },
		})
	}
	send(2)
	w.broker.Kill()
	send(6)
	require.Positive(t, w.spooled(), "nothing was spooled")
	// One door comes back to the broker long before the other: what is sent to it
	// then is younger, by more than a door may take, than what the other holds.
	since := time.Now()
	w.doors[0].Pause()
	w.broker.Restart()
	herd.Wait(t, "the first door to hand on its spool", w.patience(30*time.Second), func() bool {
		return w.doors[1].Metric("tidegate_proxy_spool_records") == 0 && time.Since(since) > 5*time.Second
	})
	for u := range 20 {
		require.True(t, w.drive.DeliverTo(t.Context(), crowd(100_000*20+u), 1, w.addrs[1]).Acked)
	}
	w.doors[0].Resume()
	w.settled()
	v := w.judge(w.killing())
	require.Positive(t, v.inversions, "no order was broken, so nothing could be counted")
	require.Zero(t, v.lost)
	seen := 0.0
	herd.Wait(t, "the robot to count broken orders", w.patience(30*time.Second), func() bool {
		seen = robot.Metric("tidegate_robot_order_breaks_total")
		return seen > 0
	})
	ci(t, "D12 any door for any message and a broker that was away: lost %d, inversions %d, of which the robot counted %.0f (those by more than a door's budget)", v.lost, v.inversions, seen)
}
