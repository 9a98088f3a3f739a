package schedule_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/schedule"
)

// A job that takes its process down with it is not begun for ever.
func TestAJobThatKillsItsNodeIsGivenUp(t *testing.T) {
	each(t, func(w *world) {
		j := hourly("deadly", func(ctx context.Context, _ string, r *schedule.Run) error { w.pass(r); return ctx.Err() })
		j.Retry.Most = 2
		n := w.start("a", 0, j)
		w.leader(n)
		w.clock.step(9 * time.Minute)
		for i := range 2 {
			tr := w.set("deadly")
			w.clock.step(time.Minute * time.Duration(1-i))
			require.Equal(t, i+1, w.caught(tr).Attempt)
			n.wires.Close()
			require.NoError(t, n.db.Close())
			close(tr.open)
			n.stop()
			n = w.start("b", 0, j)
		}
		w.eventually("it is given up", func() bool { return w.states("deadly")[schedule.Failed] == 1 })
		require.Contains(t, w.history("deadly")[0].Error, "never ended, at attempt 2 of 2")
	})
}

// A node that is told to stop in the middle hands the slot on at once.
func TestAStopInTheMiddle(t *testing.T) {
	each(t, func(w *world) {
		begun := make(chan struct{}, 1)
		slow := func(ctx context.Context, node string, r *schedule.Run) error {
			if node == "a" {
				begun <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}
			return note(ctx, node, r)
		}
		again, leave := hourly("again", slow), hourly("leave", slow)
		leave.Interrupted = schedule.Leave
		for _, j := range []job{again, leave} {
			n := w.start("a", 0, j)
			w.leader(n)
			w.clock.step(time.Hour)
			<-begun
			n.stop()
			h := w.history(j.Name)
			require.Contains(t, h[0].Error, "told to stop")
			if j.Interrupted == schedule.Leave {
				require.Equal(t, schedule.Interrupted, h[0].State)
				continue
			}
			require.Equal(t, schedule.Due, h[0].State)
			b := w.start("b", 0, j)
			w.eventually("another node does it", func() bool { return w.states(j.Name)[schedule.Done] == 1 })
			b.stop()
		}
	})
}

// Slots wait for one another; what waits too long meanwhile is missed.
func TestAJobNeverOverlapsWithItself(t *testing.T) {
	each(t, func(w *world) {
		var now, most atomic.Int32
		gate := make(chan struct{})
		j := hourly("slow", func(_ context.Context, _ string, r *schedule.Run) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			<-gate
			return nil
		})
		j.CatchUp = 90 * time.Minute
		n := w.start("a", 0, j)
		w.leader(n)
		w.clock.step(10 * time.Minute)
		w.eventually("it begins", func() bool { return now.Load() == 1 })
		for i := range 3 {
			w.clock.step(time.Hour)
			w.eventually("the slot is planned", func() bool { return len(w.history("slow")) == i+2 })
		}
		require.Equal(t, map[schedule.State]int{schedule.Running: 1, schedule.Due: 3}, w.states("slow"))
		close(gate)
		w.eventually("all is decided", func() bool { return w.states("slow")[schedule.Done] == 3 && w.states("slow")[schedule.Missed] == 1 })
		require.EqualValues(t, 1, most.Load())
		require.Equal(t, schedule.Missed, w.history("slow")[1].State, "the one that waited for two hours")
	})
}

// A new specification has no past, and the old one's slots do not come again.
func TestASpecificationIsChanged(t *testing.T) {
	each(t, func(w *world) {
		j := hourly("report", note)
		n := w.start("a", 0, j)
		w.leader(n)
		w.clock.step(70 * time.Minute)
		w.eventually("two slots", func() bool { return w.states("report")[schedule.Done] == 2 })
		n.stop()
		w.clock.step(30 * time.Minute) // 13:40
		j.Spec = spec(t, "*/20 * * * *", "UTC")
		n = w.start("b", 0, j)
		w.leader(n)
		w.clock.step(20 * time.Minute)
		w.eventually("the new one", func() bool { return w.states("report")[schedule.Done] == 3 })
		n.stop()
		j.Spec = spec(t, "10 * * * *", "UTC")
		n = w.start("c", 0, j)
		w.leader(n)
		w.clock.step(10 * time.Minute)
		w.eventually("the old one", func() bool { return w.states("report")[schedule.Done] == 4 })
		require.Equal(t, []time.Time{at(12, 10), at(13, 10), at(14, 0), at(14, 10)}, w.effects("report"))
		require.Zero(t, w.states("report")[schedule.Missed])
	})
}

// What the old specification promised while nobody led is not forgotten: caught up
// with, or missed, but never without a row.
func TestASpecificationIsChangedWhileNobodyLeads(t *testing.T) {
	each(t, func(w *world) {
		j := hourly("report", note) // at ten past
		n := w.start("a", 0, j)
		w.leader(n)
		w.clock.step(10 * time.Minute)
		w.eventually("one slot", func() bool { return w.states("report")[schedule.Done] == 1 })
		n.stop()
		w.clock.step(65 * time.Minute) // 13:15
		j.Spec = spec(t, "0 6 * * *", "UTC")
		w.leader(w.start("b", 0, j))
		w.eventually("the old slot", func() bool { return len(w.effects("report")) == 2 })
		require.Equal(t, []time.Time{at(12, 10), at(13, 10)}, w.effects("report"))
	})
}

// The fence rises also when the clock of Redis, from which it comes, went back.
func TestTheFenceOutlivesTheClockOfRedis(t *testing.T) {
	each(t, func(w *world) {
		const high = 1 << 52
		_, err := w.db.Exec(t.Context(), "INSERT INTO job_head (team, fence, node, since) VALUES ('test', $1, 'long ago', 0)", int64(high))
		require.NoError(t, err)
		w.leader(w.start("a", 0, hourly("report", note)))
		w.clock.step(10 * time.Minute)
		w.eventually("it runs", func() bool { return w.states("report")[schedule.Done] == 1 })
		require.Greater(t, w.history("report")[0].Fence, int64(high))
	})
}

// What has ended is forgotten, and does not come again.
func TestTheHistoryIsBounded(t *testing.T) {
	each(t, func(w *world) {
		j := hourly("report", note)
		n := w.start("a", 0, j)
		w.leader(n)
		w.clock.step(10 * time.Minute)
		for i := range 4 {
			w.eventually("it runs", func() bool { return len(w.effects("report")) == i+1 })
			w.clock.step(time.Hour)
		}
		w.eventually("all five", func() bool { return w.states("report")[schedule.Done] == 5 })
		n.stop()
		_, err := w.db.Exec(t.Context(), "UPDATE job_runs SET made_at = made_at - $1 WHERE slot < $2", (100 * 24 * time.Hour).Milliseconds(), at(14, 0).UnixMilli())
		require.NoError(t, err)
		w.leader(w.start("b", 0, j))
		w.eventually("two are forgotten", func() bool { return len(w.history("report")) == 3 })
		require.Len(t, w.effects("report"), 5)
		require.Equal(t, at(14, 10), w.history("report")[0].Slot)
	})
}

// A job is overdue whatever the reason, on every node, and no more when it has
// succeeded; also if nobody has ever led.
func TestOverdue(t *testing.T) {
	each(t, func(w *world) {
		var well atomic.Bool
		j := hourly("report", func(context.Context, string, *schedule.Run) error {
			if well.Load() {
				return nil
			}
			return fault.New(fault.Invalid, "read", "the disk is full")
		})
		a, b := w.start("a", 0, j), w.start("b", time.Hour, j)
		a.wires.Hang(true)
		b.wires.Hang(true)
		overdue := func(n *node, d time.Duration) func() bool {
			return func() bool { return n.metric(w, "tidegate_job_overdue_seconds") == d.Seconds() }
		}
		w.eventually("both know it", func() bool {
			_, err := a.View(context.Background())
			return err == nil && a.metric(w, "tidegate_job_last_success_age_seconds") == -1 && b.metric(w, "tidegate_job_last_success_age_seconds") == -1
		})
		w.clock.step(40 * time.Minute)
		w.eventually("nobody leads", overdue(b, 30*time.Minute))
		a.wires.Hang(false)
		b.wires.Hang(false)
		w.eventually("it fails", func() bool { return w.states("report")[schedule.Failed] == 1 })
		require.True(t, overdue(a, 30*time.Minute)())
		well.Store(true)
		id, err := b.Ask(t.Context(), schedule.Ask{Job: "report", By: "anna", Reason: "the disk is empty", Slot: at(12, 10)})
		require.NoError(t, err)
		w.eventually("it is done by hand", func() bool { return overdue(a, 0)() && overdue(b, 0)() })
		h, err := b.History(t.Context(), "report", 0, 10)
		require.NoError(t, err)
		require.Equal(t, []any{id, schedule.Done, "anna", true}, []any{h.Runs[0].ID, h.Runs[0].State, h.Runs[0].AskedBy, h.Runs[0].ByHand})
		require.Equal(t, at(13, 10), h.Next)
	})
}
