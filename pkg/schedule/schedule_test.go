package schedule_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/schedule"
)

func at(hour, minute int) time.Time { return time.Date(2026, 3, 2, hour, minute, 0, 0, time.UTC) }

func TestASlotRunsOnce(t *testing.T) {
	each(t, func(w *world) {
		j := hourly("report", note)
		n := w.start("a", 0, j)
		w.leader(n)
		require.Empty(w, w.history("report"), "a new job has no past")
		w.clock.step(10 * time.Minute)
		w.eventually("it runs", func() bool { return w.states("report")[schedule.Done] == 1 })
		w.clock.step(time.Hour)
		w.eventually("it runs again", func() bool { return w.states("report")[schedule.Done] == 2 })
		n.stop()
		w.leader(w.start("b", 0, j))
		w.clock.step(time.Hour)
		w.eventually("it runs on another node", func() bool { return w.states("report")[schedule.Done] == 3 })
		require.Equal(w, []time.Time{at(12, 10), at(13, 10), at(14, 10)}, w.effects("report"))
		h := w.history("report")
		require.Len(w, h, 3)
		last := h[2]
		require.Equal(w, []any{"b", 1, at(14, 10), at(14, 10)}, []any{last.Node, last.Attempt, last.Started, last.Ended})
		require.Greater(w, last.Fence, h[1].Fence)
	})
}

// T55: three hours of nobody, by each policy.
func TestWhatWasMissedIsCaughtUpOrRecorded(t *testing.T) {
	each(t, func(w *world) {
		all, newest, none := hourly("all", note), hourly("newest", note), hourly("none", note)
		all.CatchUp, newest.NewestOnly, none.CatchUp = 150*time.Minute, true, 0
		jobs := []job{all, newest, none}
		n := w.start("a", 0, jobs...)
		w.leader(n)
		n.stop()
		w.clock.step(4*time.Hour - 5*time.Minute) // 15:55; the last slot is 45 minutes old
		w.start("b", 0, jobs...)
		w.eventually("all is decided", func() bool {
			return w.states("all")[schedule.Done] == 2 && w.states("newest")[schedule.Done] == 1 && w.states("none")[schedule.Missed] == 4
		})
		require.Equal(w, []time.Time{at(14, 10), at(15, 10)}, w.effects("all"))
		require.Equal(w, map[schedule.State]int{schedule.Done: 2, schedule.Missed: 2}, w.states("all"))
		require.Equal(w, []time.Time{at(15, 10)}, w.effects("newest"))
		require.Equal(w, map[schedule.State]int{schedule.Done: 1, schedule.Missed: 3}, w.states("newest"))
		require.Empty(w, w.effects("none"))
		h := w.history("none")
		require.Len(w, h, 1, "what was missed together is one row")
		require.Equal(w, []any{at(12, 10), at(15, 10), 4}, []any{h[0].Slot, h[0].LastSlot, h[0].Slots})
	})
}

func TestAJobThatFailsIsTriedAgainWithinBounds(t *testing.T) {
	each(t, func(w *world) {
		bad := hourly("bad", func(context.Context, string, *schedule.Run) error { return errors.New("the disk is\nfull") })
		sour := hourly("sour", func(context.Context, string, *schedule.Run) error { return fault.New(fault.Invalid, "read", "never") })
		wild := hourly("wild", func(_ context.Context, _ string, r *schedule.Run) error {
			if r.Attempt == 1 {
				panic("wild")
			}
			return nil
		})
		bad.Retry = schedule.Retry{Most: 3, Wait: time.Minute}
		wild.Retry = bad.Retry
		n := w.start("a", 0, bad, sour, wild)
		w.leader(n)
		w.clock.step(10 * time.Minute)
		attempts := func(n int) func() bool {
			return func() bool {
				h := w.history("bad")
				return len(h) == 1 && h[0].Attempt == n && h[0].State != schedule.Running
			}
		}
		w.eventually("first", attempts(1))
		w.eventually("others", func() bool {
			return w.states("sour")[schedule.Failed] == 1 && len(w.history("wild")) == 1 && w.history("wild")[0].Error != ""
		})
		require.Equal(w, at(12, 11), w.history("bad")[0].Due, "a minute later")
		require.Contains(w, w.history("wild")[0].Error, "panic: wild")
		w.clock.step(time.Minute)
		w.eventually("second", attempts(2))
		require.Equal(w, at(12, 13), w.history("bad")[0].Due, "two minutes later")
		w.clock.step(2 * time.Minute)
		w.eventually("given up", func() bool { return w.states("bad")[schedule.Failed] == 1 })
		h := w.history("bad")[0]
		require.Equal(w, []any{3, "the disk is full"}, []any{h.Attempt, h.Error})
		w.eventually("the wild one is tame", func() bool { return w.states("wild")[schedule.Done] == 1 })
		w.clock.step(57 * time.Minute)
		w.eventually("the next slot is another one", func() bool { return len(w.history("bad")) == 2 })
	})
}
