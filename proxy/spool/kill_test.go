package spool

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// appendForEver is another process, until it is killed. It prints what was
// acknowledged, after it was.
func appendForEver(dir string, first int) {
	s, err := Open(Options{Dir: dir, SegmentBytes: 32 << 10})
	if err != nil {
		fmt.Fprintln(os.Stdout, "error", err)
		return
	}
	for k := range 4 {
		go func() {
			for n := first; ; n++ {
				v := fmt.Sprintf("k%d#%d", k, n)
				if err := s.Append(context.Background(), Record{Topic: "t", Key: []byte(key(v)), Value: []byte(v)}); err != nil {
					fmt.Fprintln(os.Stdout, "error", err)
					return
				}
				fmt.Fprintln(os.Stdout, v)
			}
		}()
	}
	for range s.More() { // the queue takes some and goes away, over and over
		var left atomic.Int64
		left.Store(rand.Int64N(200))
		_ = s.Replay(context.Background(), func(_ context.Context, r Record) error {
			if left.Add(-1) < 0 {
				return context.DeadlineExceeded
			}
			fmt.Fprintln(os.Stdout, "took", string(r.Value)) // in the pipe before the spool may forget it
			return nil
		})
	}
}

// kill -9 while appending and replaying: what the killed process had
// acknowledged is with the queue or in the spool, in order.
func TestKillNine(t *testing.T) {
	dir := t.TempDir()
	acked := map[string]int{}
	var seen []string
	const kills, lines = 12, 1500
	for round := range kills {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SPOOL_CHILD="+dir, "SPOOL_FIRST="+strconv.Itoa(round*1_000_000))
		pipe, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		sc := bufio.NewScanner(pipe)
		for n := 0; sc.Scan(); n++ {
			line := sc.Text()
			require.NotContains(t, line, "error")
			if v, ok := strings.CutPrefix(line, "took "); ok {
				seen = append(seen, v)
			} else {
				acked[line]++
			}
			if n == lines+rand.IntN(50) || n == lines+50 {
				require.NoError(t, cmd.Process.Kill())
			}
		}
		require.Error(t, cmd.Wait(), "it must have been killed")
	}
	s := openAt(t, Options{Dir: dir})
	require.Positive(t, s.Depth().Records, "kills must have left something")
	k := &sink{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, s.Replay(ctx, k.publish))
	seen = append(seen, k.values()...)
	first := map[string]bool{}
	last := map[string]int{}
	for _, v := range seen {
		n, err := strconv.Atoi(v[len(key(v))+1:])
		require.NoError(t, err)
		if first[v] {
			continue
		}
		first[v] = true
		require.GreaterOrEqual(t, n, last[key(v)], "%s was overtaken", v)
		last[key(v)] = n
	}
	for v := range acked {
		require.True(t, first[v], "%s was acknowledged and lost", v)
	}
	t.Logf("CI: %d kill -9, %d acknowledged, %d seen by the queue: lost 0, out of order 0, twice %d", kills, len(acked), len(first), len(seen)-len(first))
}
