//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/herd"
)

// diskFull lets the queue be away until the disk below one spool and the limit
// of another are reached: the doors answer 503, forget nothing that they have
// acknowledged, and take again when there is room (G16, G1).
func diskFull(t *testing.T, e *engines, n numbers) {
	if os.Geteuid() != 0 {
		t.Skip("a small disk can only be mounted by root")
	}
	disk := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.Mkdir(disk, 0o700))
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+strconv.FormatInt(n.full.disk, 10), "tmpfs", disk).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() { _ = exec.Command("umount", "-l", disk).Run() })
	w := newWorld(t, e, shape{doors: 2, broker: e.node, spools: disk, set: func(i int) []string {
		if i == 0 {
			return nil // the disk is full first
		}
		return []string{"proxy.spool.max_bytes=" + strconv.FormatInt(max(4<<20, n.full.disk/8), 10)}
	}})
	crowd := w.crowd(500)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	sum := make(chan drive.Sum, 1)
	rate := w.rate(300) // each refusal brings three repeats
	go func() {
		sum <- w.drive.Open(ctx, drive.Load{Rate: rate, Dice: w.dice, Act: func(i int) drive.Act {
			a := crowd(i)
			a.Pad = n.full.body
			return a
		}})
	}()
	herd.Wait(t, "load", w.patience(20*time.Second), func() bool { return w.drive.Acked() > 100 })
	require.Positive(t, w.waitForWork())
	w.drive.Begin("broker away, disk filling")
	w.broker.Kill()
	for _, d := range w.doors {
		herd.Wait(t, d.Name+" to refuse", w.patience(2*time.Minute), func() bool { return d.MetricWith("tidegate_proxy_spool_records_total", `result="refused"`) > 100 })
	}
	held := w.spooled()
	w.drive.Begin("disk full")
	w.pass(int64(rate))
	w.drive.Begin("broker back")
	w.broker.Restart()
	w.settled()
	w.drive.Begin("spools empty")
	w.pass(w.drive.InFlight() + int64(rate)) // what came before has ended
	w.drive.Begin("room again")
	w.pass(int64(rate))
	stop()
	s := <-sum
	require.Zero(t, s.Skipped, "the driver could not keep its plan")
	allow := w.busy()
	allow.Refusals = true
	v := w.verify(allow)
	phases := w.drive.Phases()
	for _, p := range phases {
		t.Log("CI: " + p.String())
	}
	last := phases[len(phases)-1]
	require.Equal(t, "room again", last.Name)
	require.Zero(t, last.NotAcked(), "%s", last.Bad)
	ci(t, "G16 spools full (tmpfs of %d MiB, and a limit of its own at the other door): %.0f records held, %d answers 503, acked %d, lost %d, out of order %d", n.full.disk>>20, held, v.Answers["refused"], v.acked, v.lost, v.inversions)
}

// pass waits until so many deliveries have ended.
func (w *world) pass(n int64) {
	w.t.Helper()
	want := w.drive.Delivered() + n
	limit := w.patience(30*time.Second + time.Duration(n)*5*time.Millisecond)
	herd.Wait(w.t, fmt.Sprintf("%d deliveries", n), limit, func() bool { return w.drive.Delivered() >= want })
}

// drain kills a door whose spool is full of what the queue did not take, and
// empties the spool by hand, as after the loss of a machine.
func drain(t *testing.T, e *engines, n numbers) {
	w := newWorld(t, e, shape{doors: 2, broker: e.node})
	w.broker.Kill()
	crowd := w.crowd(50)
	each := max(n.drain.acts/50, 2)
	w.drive.Closed(t.Context(), drive.Users{Count: 50, Each: each, Act: func(user, _, i int) drive.Act { return crowd(i*50 + user) }})
	dead := w.doors[0]
	held := dead.Metric("tidegate_proxy_spool_records")
	require.Positive(t, held, "nothing was spooled")
	dead.Kill()
	w.broker.Restart()
	dir := filepath.Join(w.h.Dir, "spool-"+w.run+"-door0")
	before := w.command("spool", "inspect", dir, "--config", w.config)
	require.Contains(t, before, strconv.Itoa(int(held))+" records wait")
	out := w.command("spool", "drain", dir, "--config", w.config)
	m := regexp.MustCompile(`(\d+) records replayed, (\d+) of them as dead letters; (\d+) left`).FindStringSubmatch(out)
	require.NotNil(t, m, out)
	require.Equal(t, []string{strconv.Itoa(int(held)), "0", "0"}, m[1:])
	w.doors = w.doors[1:] // the dead one stays dead
	v := w.verify(w.busy())
	ci(t, "D12 the spool of a door that died with %.0f records, drained by hand: replayed %s, left %s; acked %d, lost %d, out of order %d", held, m[1], m[3], v.acked, v.lost, v.inversions)
}
