//go:build crash && unix

package schedule_test

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/schedule"
)

// CP16: a leader dies between the begin of a slot in the database and its work,
// five times (TIDEGATE_CHAOS=short: once). Whoever leads next does that slot, once,
// and no slot is missed or done twice.
func TestCP16KilledWithASlotThatItHasBegun(t *testing.T) {
	kills := 5
	if os.Getenv("TIDEGATE_CHAOS") == "short" {
		kills = 1
	}
	each(t, func(w *world) {
		c := nodeSettings{Redis: w.redis, Prefix: w.prefix, DB: w.cfg, Lease: time.Second}
		for i := range kills {
			pass := 1 + i%2 // its first slot, or the one behind it
			t.Setenv("TIDEGATE_CRASH_AT", "CP16:"+strconv.Itoa(pass))
			victim := w.spawn("victim-"+strconv.Itoa(i), c)
			var died *exec.ExitError
			require.ErrorAs(w, victim.cmd.Wait(), &died)
			status, ok := died.Sys().(syscall.WaitStatus)
			require.True(w, ok && status.Signaled() && status.Signal() == syscall.SIGKILL, "it ended otherwise: %v", died)
		}
		require.NoError(w, os.Unsetenv("TIDEGATE_CRASH_AT"))
		heir := w.spawn("heir", c)
		begun := func(r schedule.Record) bool { return r.Attempt > 1 && r.State == schedule.Done }
		w.eventually("the slots that were begun are done by somebody else, and new ones after them", func() bool {
			rows, again := w.history("tick"), 0
			for _, r := range rows {
				if begun(r) {
					again++
				}
			}
			return again >= 1 && len(rows) > 0 && rows[len(rows)-1].Slot.After(time.Now().Add(-3*time.Second))
		})
		require.NoError(w, heir.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(w, heir.cmd.Wait())
		effects := map[time.Time]int{}
		for _, slot := range w.effects("tick") {
			effects[slot]++
		}
		again := 0
		for _, r := range w.history("tick") {
			require.NotEqual(w, schedule.Missed, r.State, "%+v", r)
			want := 0
			if r.State == schedule.Done {
				want = 1
			}
			require.Equal(w, want, effects[r.Slot], "%+v", r)
			if begun(r) {
				again++
			}
		}
		w.Logf("CI: CP16 slot claimed, not run: leader killed %d times; %d slots done once, of them %d after a death; doubled 0, missed 0", kills, len(effects), again)
	})
}
