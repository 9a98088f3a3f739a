//go:build crash

package crash_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/crash"
)

// The test binary is its own victim: with TIDEGATE_CRASH_VICTIM it passes the
// points and says so.
func TestMain(m *testing.M) {
	if os.Getenv("TIDEGATE_CRASH_VICTIM") == "" {
		os.Exit(m.Run())
	}
	for i := range 5 {
		fmt.Fprintf(os.Stdout, "before CP1 %d\n", i+1)
		crash.At("CP1")
		crash.With("CP6", func() { fmt.Fprintln(os.Stdout, "half") })
	}
	fmt.Fprintln(os.Stdout, "end")
}

func victim(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), append(env, "TIDEGATE_CRASH_VICTIM=1")...)
	return cmd
}

// run gives what the victim printed, what it complained about and how it ended.
func run(t *testing.T, env ...string) (out, complaint, end string) {
	t.Helper()
	cmd := victim(t, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	return stdout.String(), stderr.String(), cmd.ProcessState.String()
}

// It dies at the pass that was named, by SIGKILL, and says where.
func TestKilledAtTheNthPass(t *testing.T) {
	out, complaint, end := run(t, "TIDEGATE_CRASH_AT=CP1:3")
	require.Equal(t, "before CP1 1\nbefore CP1 2\nbefore CP1 3\n", out)
	require.Equal(t, "crash: killed at CP1, pass 3\n", complaint)
	require.Equal(t, "signal: killed", end)
}

// What brings the instant about is done once, right before.
func TestLastActFirst(t *testing.T) {
	out, complaint, end := run(t, "TIDEGATE_CRASH_AT=CP6:2")
	require.Equal(t, "before CP1 1\nbefore CP1 2\nhalf\n", out)
	require.Equal(t, "crash: killed at CP6, pass 2\n", complaint)
	require.Equal(t, "signal: killed", end)
}

// Unarmed, another point's name, or a pass that does not come: it lives.
func TestLives(t *testing.T) {
	for _, env := range []string{"TIDEGATE_CRASH_AT=", "TIDEGATE_CRASH_AT=CP2:1", "TIDEGATE_CRASH_AT=CP1:6"} {
		out, complaint, end := run(t, env)
		require.True(t, strings.HasSuffix(out, "end\n"), out)
		require.Empty(t, complaint)
		require.Equal(t, "exit status 0", end)
	}
}

// A variable that means nothing is no silent run without a fault.
func TestNonsenseDies(t *testing.T) {
	for _, value := range []string{"CP1", "CP1:", "CP1:0", "CP1:x", ":3"} {
		out, complaint, end := run(t, "TIDEGATE_CRASH_AT="+value)
		require.NotContains(t, out, "before CP1 2")
		require.Contains(t, complaint, "write NAME:N", value)
		require.Equal(t, "signal: killed", end)
	}
}

// A held process lives, says so and goes no further.
func TestHeld(t *testing.T) {
	cmd := victim(t, "TIDEGATE_LIVELOCK=CP1:2")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stderr).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "crash: held at CP1, pass 2\n", line)
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	select {
	case <-ended:
		t.Fatal("it ended by itself")
	case <-time.After(300 * time.Millisecond):
	}
	require.NoError(t, cmd.Process.Kill())
	<-ended
	require.Equal(t, "before CP1 1\nbefore CP1 2\n", stdout.String())
}
