package queues_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/proxy/queues"
)

// A robot that keeps its heartbeats and does nothing, one that is gone, and
// their return: status, verdict, and each alarm once.
func TestStallStopAndCatchUp(t *testing.T) {
	w := newWorld(t)
	r := w.robot()
	w.publish(0, 20)
	w.publish(1, 20)
	w.caughtUp()
	w.check(7)
	require.Equal(t, queues.OK, w.callbacks(1).Status)
	require.Zero(t, w.callbacks(1).Depth)
	require.Empty(t, w.told())

	r.block(1)
	w.publish(1, 150)
	w.check(9)
	p := w.callbacks(1)
	require.Equal(t, queues.Stall, p.Status)
	require.Equal(t, queues.Faulty, p.Verdict)
	require.Equal(t, int64(150), p.Depth)
	require.Nil(t, p.Drain, "nothing moves, so nobody knows")
	require.InDelta(t, 18, *p.Age, 3)
	require.True(t, strings.HasPrefix(*p.Consumer, "tidegate at "), "%q", *p.Consumer)
	require.Equal(t, queues.Fine, w.callbacks(0).Verdict)
	require.Equal(t, map[string]int{"fires queue_depth callbacks bank": 1, "fires queue_faulty callbacks bank": 1, "resolves queue_depth callbacks bank": 1}, w.told())
	w.check(30)
	require.Empty(t, w.told(), "a minute later nothing is told twice, and its age is part of it")
	require.Greater(t, *w.callbacks(1).Age, limits.WarnAge.Seconds())

	r.letGo()
	w.caughtUp()
	w.check(4)
	require.Equal(t, map[string]int{"resolves queue_faulty callbacks bank": 1}, w.told())
	require.Empty(t, w.board.Firing())

	r.stop()
	w.held(0)
	w.publish(1, 150)
	w.check(3)
	p = w.callbacks(1)
	require.Equal(t, queues.Stop, p.Status, "known with the owners, long before the window is over")
	require.Nil(t, p.Drain, "and what the robot did before it left is no promise")
	require.Equal(t, queues.Deep, p.Verdict, "a verdict waits for the window")
	w.check(6)
	p = w.callbacks(1)
	require.Equal(t, queues.Stop, p.Status)
	require.Equal(t, queues.Faulty, p.Verdict)
	require.Empty(t, *p.Consumer, "nobody holds it")
	require.Equal(t, map[string]int{"fires queue_depth callbacks bank": 1, "fires queue_faulty callbacks bank": 1, "resolves queue_depth callbacks bank": 1}, w.told())

	w.robot()
	w.caughtUp()
	w.check(4)
	require.Equal(t, map[string]int{"resolves queue_faulty callbacks bank": 1}, w.told())
}

// Every back end is slow, or every robot is away: one alarm for the account, and
// nobody is called faulty.
func TestOverloadIsOneAlarm(t *testing.T) {
	w := newWorld(t)
	r := w.robot()
	r.block(0, 1, 2, 3)
	for p := range int32(partitions) {
		w.publish(p, 150)
	}
	w.held(partitions)
	w.check(12)
	require.Equal(t, map[string]int{"fires queue_overload callbacks bank": 1}, w.told())
	require.Equal(t, queues.Overload, w.queue("callbacks", "bank").Verdict)
	require.Equal(t, queues.Stall, w.queue("callbacks", "bank").Status)
	require.Contains(t, w.board.Firing()[0].Text, "none of them moves")
	r.letGo()
	w.caughtUp()
	w.check(1)
	require.Contains(t, w.board.Firing()[0].Text, "it becomes less", "the advice follows what is")
	w.check(5)
	require.Equal(t, map[string]int{"resolves queue_overload callbacks bank": 1}, w.told())
}

// The letter of M7, for comparison: all robots count as failed.
func TestPaperMode(t *testing.T) {
	w := newWorld(t, func(c *queues.Config) { c.DepthMode = queues.Paper })
	for p := range int32(partitions) {
		w.publish(p, 150)
	}
	w.check(3)
	require.Equal(t, map[string]int{"fires queue_faulty callbacks bank": 1}, w.told())
}

// T30: offsets that went back are told, and so are records that retention took.
func TestRewindAndSkipped(t *testing.T) {
	w := newWorld(t)
	r := w.robot()
	w.publish(2, 40)
	w.caughtUp()
	r.stop()
	w.check(2)
	w.reset(2, 10)
	w.check(3)
	p := w.callbacks(2)
	require.Equal(t, queues.Rewind, p.Status)
	require.Equal(t, int64(30), p.Depth)
	require.Equal(t, map[string]int{"fires queue_rewind callbacks bank": 1}, w.told())

	w.deleteBefore(2, 25)
	w.check(2)
	require.Equal(t, int64(15), w.callbacks(2).Skipped)
	require.Equal(t, map[string]int{"fires queue_skipped callbacks bank": 1}, w.told())

	w.robot()
	w.caughtUp()
	w.check(5)
	require.Equal(t, map[string]int{"resolves queue_rewind callbacks bank": 1, "resolves queue_skipped callbacks bank": 1}, w.told())
	require.Equal(t, queues.OK, w.callbacks(2).Status)
}

// A group that never committed has no position that the log could pass: what is
// deleted under it counts from the first look on.
func TestSkippedBeforeTheFirstCommit(t *testing.T) {
	w := newWorld(t)
	w.publish(2, 30)
	w.deleteBefore(2, 5)
	w.check(1)
	require.Equal(t, queues.Stop, w.callbacks(2).Status, "nobody holds it, which needs no window")
	require.Nil(t, w.callbacks(2).Drain)
	require.Equal(t, queues.OK, w.callbacks(1).Status, "nothing waits there")
	require.Nil(t, w.callbacks(2).Committed)
	require.Zero(t, w.callbacks(2).Skipped, "what was deleted before the first look is not known")
	require.Empty(t, w.told())

	w.deleteBefore(2, 17)
	w.check(2)
	require.Equal(t, int64(12), w.callbacks(2).Skipped)
	require.Equal(t, map[string]int{"fires queue_skipped callbacks bank": 1}, w.told())
	require.Contains(t, w.board.Firing()[0].Text, "deleted 12 records that nobody had read")
	w.deleteBefore(2, 30) // all of them, and nothing waits any more
	w.check(1)
	require.Equal(t, int64(25), w.callbacks(2).Skipped)
	require.Empty(t, w.told())

	w.robot()
	w.publish(2, 3)
	w.caughtUp()
	w.check(4)
	require.Zero(t, w.callbacks(2).Skipped)
	require.Equal(t, map[string]int{"resolves queue_skipped callbacks bank": 1}, w.told())
}

// Right after a start the age is that of the record, not of the process.
func TestAgeIsRightFromTheFirstCheckOn(t *testing.T) {
	w := newWorld(t)
	w.publish(3, 10, w.clock().Add(-time.Hour))
	w.check(1)
	require.InDelta(t, time.Hour.Seconds(), *w.callbacks(3).Age, 3)
	require.Zero(t, *w.callbacks(0).Age)
	w.check(5)
	require.InDelta(t, time.Hour.Seconds()+10, *w.callbacks(3).Age, 3)
	w.robot()
	w.caughtUp()
	w.check(1)
	require.Zero(t, *w.callbacks(3).Age)
}

// The queue is away: what was known stays, marked stale; nothing piles up; no
// alarm begins or ends; and its return is no stall.
func TestTheQueueAway(t *testing.T) {
	w := newWorld(t)
	if w.broker == nil {
		t.Skip("the shared cluster is not taken away; the embedded broker is")
	}
	w.publish(1, 150)
	w.check(9)
	require.Equal(t, queues.Faulty, w.callbacks(1).Verdict)
	require.NotEmpty(t, w.told())

	require.NoError(t, w.broker.Close())
	before := runtime.NumGoroutine()
	for range 10 {
		w.pass(2 * time.Second)
		err := w.watch.Check(t.Context())
		require.Equal(t, fault.Unavailable, fault.KindOf(err), "%v", err)
	}
	require.Less(t, runtime.NumGoroutine(), before+20)
	v := w.ask("")
	require.True(t, v.Stale)
	require.NotEmpty(t, v.Error)
	require.Equal(t, int64(150), w.callbacks(1).Depth)
	require.Equal(t, queues.Faulty, w.callbacks(1).Verdict)
	require.Empty(t, w.told())
	_, known := w.watch.Ahead("bank", string(keyOf(1)))
	require.False(t, known)

	w.start()
	require.Eventually(t, func() bool {
		w.pass(2 * time.Second)
		return w.watch.Check(t.Context()) == nil
	}, 40*time.Second, 20*time.Millisecond)
	v = w.ask("")
	require.False(t, v.Stale)
	require.Empty(t, v.Error)
	require.Equal(t, queues.Stop, w.callbacks(1).Status, "nobody holds it")
	require.Empty(t, w.told())
}

// An account that is added is measured at the next check; one that is removed is
// forgotten with its alarms.
func TestAccountsFollowTheConfiguration(t *testing.T) {
	w := newWorld(t)
	w.publish(1, 150)
	w.check(9)
	require.Len(t, w.told(), 3, "its depth, and then that it is faulty, which says that too")
	require.True(t, w.queue("replies", "bank").Missing, "its topic was not made")
	require.Len(t, w.ask("?account=bank").Queues, 9)

	w.makeTopics("card")
	w.watch.SetAccounts([]string{"card"})
	require.Eventually(t, func() bool { // a cluster needs a moment to choose the leaders of a new topic
		w.check(1)
		return len(w.queue("callbacks", "card").Partitions) == partitions
	}, 20*time.Second, 50*time.Millisecond)
	require.Len(t, w.ask("?account=bank").Queues, 2, "only what all accounts share")
	require.Equal(t, map[string]int{"resolves queue_faulty callbacks bank": 1}, w.told())
}

// The depth of a queue includes what this node keeps on disk for it (T64).
func TestDepthIncludesTheSpool(t *testing.T) {
	w := newWorld(t)
	w.publish(1, 5)
	w.check(1)
	w.spool = queues.Spooled{Records: 7, Bytes: 700, Oldest: w.clock().Add(-3 * time.Second), Topics: map[string]int64{w.names.Topics.Callbacks("bank"): 7}}
	q, v := w.queue("callbacks", "bank"), w.ask("")
	require.Equal(t, []int64{12, 5, 7}, []int64{q.Depth, q.Lag, q.Spooled})
	require.Equal(t, int64(7), v.Spool.Records)
	require.InDelta(t, 3, *v.Spool.Oldest, 0.01)
}
