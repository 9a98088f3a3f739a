//go:build unix

package ratelimit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	pauseRole  = "TIDEGATE_RATELIMIT_PAUSED"
	pauseRate  = 200
	pauseBurst = 10
)

// TestStoppedProcess is T41 with a real process: 64 callers wait, the process is
// stopped with SIGSTOP for a second, and goes on. It is its own child.
func TestStoppedProcess(t *testing.T) {
	if os.Getenv(pauseRole) != "" {
		departures()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestStoppedProcess$")
	cmd.Env = append(os.Environ(), pauseRole+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	require.True(t, lines.Scan(), "the child says that it works")
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	stopped := time.NewTimer(time.Second)
	<-stopped.C
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.True(t, lines.Scan(), "the child ends its work")
	var at []int64
	require.NoError(t, json.Unmarshal(lines.Bytes(), &at))
	for lines.Scan() {
	}
	require.NoError(t, cmd.Wait())

	slices.Sort(at)
	gap := int64(0)
	for i := 1; i < len(at); i++ {
		gap = max(gap, at[i]-at[i-1])
	}
	require.Greater(t, gap, int64(500*time.Millisecond), "the fault happened in the middle")
	// The child reads the clock after it has its permit, and may lose the
	// processor in between: some departures look closer than they were.
	require.Empty(t, overfull(at, pauseRate, pauseBurst+8))
}

// departures is the child: 64 callers take 300 permits; when the first are
// taken it prints a line, and at the end the times.
func departures() {
	l := New(Limit{Rate: pauseRate, Burst: pauseBurst})
	begin := time.Now()
	var mu sync.Mutex
	var at []int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for {
				release, err := l.Acquire(context.Background(), 0)
				if err != nil {
					panic(err)
				}
				now := int64(time.Since(begin)) // before anything that may block
				mu.Lock()
				at = append(at, now)
				n := len(at)
				mu.Unlock()
				release()
				if n == 50 {
					fmt.Fprintln(os.Stdout, "working")
				}
				if n >= 300 {
					return
				}
			}
		})
	}
	wg.Wait()
	out, err := json.Marshal(at)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stdout, string(out))
}
