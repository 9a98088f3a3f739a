package robot_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
	"tidegate/robot"
)

// D12: a callback that was acknowledged before another one of its user was sent,
// and comes after it, is counted. What may have been on its way at the same time
// is not, nor is the order of different users, nor a repeat.
func TestBrokenOrderIsCounted(t *testing.T) {
	w := newWorld(t, "a")
	w.start(account("a"))
	now := time.Now()
	arrived := func(openid string, n int, before time.Duration) *wire.Callback {
		c := callback("a", openid, n, "hello")
		c.ReceivedAt = wire.Millis(now.Add(-before))
		return c
	}
	held := arrived("u1", 1, 20*time.Second)
	w.send(arrived("u1", 2, 0), arrived("u1", 3, 3*time.Second), arrived("u2", 4, 30*time.Second))
	w.awaitReceipts(3)
	require.Zero(t, counted(t, w.reg, "tidegate_robot_order_breaks_total"))
	w.send(held, held)
	require.Eventually(t, func() bool { return counted(t, w.reg, "tidegate_robot_order_breaks_total") == 1 }, patient, 10*time.Millisecond)
	w.send(held, arrived("u1", 5, 0))
	w.awaitReceipts(5)
	require.Equal(t, 1, counted(t, w.reg, "tidegate_robot_order_breaks_total"))
}

// Whoever lets a partition go forgets its users: memory is for what is worked
// here, and who works it meanwhile is not known.
func TestAPartitionThatIsGivenUpIsForgotten(t *testing.T) {
	w := newWorld(t, "a", "b")
	r := w.start(account("a"))
	now := time.Now()
	arrived := func(openid string, n int, before time.Duration) *wire.Callback {
		c := callback("a", openid, n, "hello")
		c.ReceivedAt = wire.Millis(now.Add(-before))
		return c
	}
	w.send(arrived("u1", 1, 0))
	w.awaitReceipts(1)
	require.NoError(t, r.SetAccounts([]robot.Account{account("b")}))
	require.NoError(t, r.SetAccounts([]robot.Account{account("a")}))
	w.send(arrived("u1", 2, 20*time.Second))
	w.awaitReceipts(2)
	require.Zero(t, counted(t, w.reg, "tidegate_robot_order_breaks_total"))
	w.send(arrived("u1", 3, 40*time.Second))
	require.Eventually(t, func() bool { return counted(t, w.reg, "tidegate_robot_order_breaks_total") == 1 }, patient, 10*time.Millisecond)
}
