//go:build linux

package herd_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/test/chaos/herd"
	"tidegate/test/chaos/history"
)

// sleeper is a shell with a child, as a wrapper around a server is: it writes
// the child's pid and goes when it is asked.
func sleeper(h *herd.Herd, name string) herd.Spec {
	return herd.Spec{Name: name, Path: "/bin/sh", Args: []string{
		"-c", `trap 'kill $!; exit 0' TERM; sleep 600 & echo $! >"` + filepath.Join(h.Dir, name+".child") + `"; wait`,
	}}
}

func childOf(t *testing.T, h *herd.Herd, name string) int {
	t.Helper()
	pid := 0
	herd.Wait(t, "the child's pid", 5*time.Second, func() bool {
		b, _ := os.ReadFile(filepath.Join(h.Dir, name+".child"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return pid != 0
	})
	return pid
}

func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// What is done to a process is in the history, reaches its children too, and
// the process comes back.
func TestKillPauseRestart(t *testing.T) {
	h := herd.New(t)
	file := filepath.Join(h.Dir, "faults")
	w, err := history.Create(file, time.Now())
	require.NoError(t, err)
	h.Record(w)
	p := h.Start(sleeper(h, "a"))
	first, child := p.PID(), childOf(t, h, "a")
	require.True(t, alive(first) && alive(child))
	require.Positive(t, p.RSS())
	require.GreaterOrEqual(t, p.PeakRSS(), p.RSS())
	p.Pause()
	p.Resume()
	p.Resume() // harmless
	p.Kill()
	require.False(t, alive(first))
	herd.Wait(t, "the child's end", 5*time.Second, func() bool { return !alive(child) })
	require.NoError(t, os.Remove(filepath.Join(h.Dir, "a.child")))
	p.Restart()
	childOf(t, h, "a")
	require.NotEqual(t, first, p.PID())
	p.Stop()
	require.NoError(t, w.Close())
	events, err := history.Read(file)
	require.NoError(t, err)
	var got []string
	for _, e := range events {
		got = append(got, e.What+" "+e.Phase+" "+e.Target)
	}
	require.Equal(t, []string{"SIGSTOP begin a", "SIGSTOP end a", "SIGKILL once a", "SIGTERM once a"}, got)
	require.Equal(t, first, events[0].PID)
}

// A test's end leaves nothing behind, a frozen process included.
func TestNothingIsLeft(t *testing.T) {
	var pids []int
	t.Run("herd", func(t *testing.T) {
		h := herd.New(t)
		for _, name := range []string{"a", "b"} {
			pids = append(pids, h.Start(sleeper(h, name)).PID(), childOf(t, h, name))
		}
		p := h.Start(sleeper(h, "frozen"))
		pids = append(pids, p.PID(), childOf(t, h, "frozen"))
		p.Pause()
		require.Error(t, syscall.Kill(1<<22+1, 0), "no such process")
	})
	for _, pid := range pids {
		herd.Wait(t, "the end of "+strconv.Itoa(pid), 5*time.Second, func() bool { return !alive(pid) })
	}
}

// A child that does not hear the SIGTERM of its group goes with its parent all
// the same.
func TestDeafChildIsLeftNowhere(t *testing.T) {
	h := herd.New(t)
	file := filepath.Join(h.Dir, "deaf.child")
	p := h.Start(herd.Spec{Name: "deaf", Path: "/bin/sh", Args: []string{
		"-c", `trap 'exit 0' TERM; (trap "" TERM; exec sleep 600) & echo $! >"` + file + `.part"; mv "` + file + `.part" "` + file + `"; wait`,
	}})
	child := childOf(t, h, "deaf")
	herd.Wait(t, "the child to be a sleep", 5*time.Second, func() bool {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(child) + "/comm")
		return string(b) == "sleep\n"
	})
	require.NoError(t, syscall.Kill(child, syscall.SIGTERM))
	require.True(t, alive(child), "it is deaf")
	p.Stop()
	herd.Wait(t, "the child's end", 5*time.Second, func() bool { return !alive(child) })
}

// The settings of the tests do not reach the processes: the program refuses
// variables that it does not know.
func TestEnvironment(t *testing.T) {
	t.Setenv("TIDEGATE_CHAOS", "short")
	h := herd.New(t)
	out := filepath.Join(h.Dir, "env")
	p := h.Start(herd.Spec{Name: "env", Path: "/bin/sh", Args: []string{"-c", `env >"` + out + `.part"; mv "` + out + `.part" "` + out + `"; sleep 600`}, Env: []string{"OURS=1"}, AnyExit: true})
	herd.Wait(t, "the environment", 5*time.Second, func() bool { _, err := os.Stat(out); return err == nil })
	b, err := os.ReadFile(out)
	require.NoError(t, err)
	require.NotContains(t, string(b), "TIDEGATE_CHAOS")
	require.Contains(t, string(b), "OURS=1")
	p.Kill()
}
