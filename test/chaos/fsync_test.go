//go:build chaos

package chaos

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/test/chaos/check"
)

// fsyncFirst watches the system calls of a door that spools: for each ack the
// record was written and synced before the answer went into the socket (G3 b).
// The acks come one after another, so that each has a sync of its own. What a
// synced record is worth after a power cut is shown in proxy/spool.
func fsyncFirst(t *testing.T, e *engines, n numbers) {
	strace, err := exec.LookPath("strace")
	require.NoError(t, err, "strace is missing: apt-get install strace")
	w := newWorld(t, e, shape{doors: 1, broker: e.node})
	door := w.doors[0]
	door.Stop()
	w.broker.Kill()
	trace := filepath.Join(w.h.Dir, "trace")
	program := door.Spec
	traced := program
	traced.Name, traced.Path, traced.AnyExit = "door0-traced", strace, true
	traced.Args = append([]string{"-f", "-y", "-s", "8192", "-o", trace, "-e", "trace=pwrite64,write,writev,fsync,fdatasync,sendto,sendmsg", program.Path}, program.Args...)
	p := w.h.Start(traced)
	var tokens []string
	for i := range n.fsync.acks {
		act := w.text(i, accounts[i%2].Name, user(i))
		tokens = append(tokens, act.Token)
		require.True(t, w.drive.Send(t.Context(), act, time.Time{}), "ack %d", i)
	}
	require.EqualValues(t, n.fsync.acks, p.Metric("tidegate_proxy_spool_records"), "every ack came out of the spool")
	p.Terminate()
	b, err := os.ReadFile(trace)
	require.NoError(t, err)
	syncs := proveOrder(t, string(b), tokens)
	w.broker.Restart()
	door.Restart()
	v := w.verify(check.Options{Doubles: true})
	require.Equal(t, n.fsync.acks, v.acked)
	ci(t, "G3b %d acks of a door whose queue is away: each record was written, then synced (%d syncs of segments), then answered; lost %d", n.fsync.acks, syncs, v.lost)
}

var (
	callLine    = regexp.MustCompile(`^(\d+) +(?:\d+\.\d+ )?(\w+)\((\d+)<([^>]*)>(.*)$`)
	resumedLine = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>.*= (-?\d+)`)
)

// proveOrder walks over a trace: the record of token k, a sync of the same file
// that begins after it and succeeds, the k-th answer. It gives the number of
// such syncs.
func proveOrder(t *testing.T, trace string, tokens []string) (syncs int) {
	t.Helper()
	next, written, synced := 0, "", false
	pending := map[string]string{} // thread to the file that it syncs
	dirSynced := false
	done := func(file string) {
		if written != "" && file == written {
			synced = true
			syncs++
		}
		dirSynced = dirSynced || !strings.HasSuffix(file, ".seg")
	}
	for line := range strings.SplitSeq(trace, "\n") {
		if m := resumedLine.FindStringSubmatch(line); m != nil {
			if file := pending[m[1]]; file != "" && m[3] == "0" {
				done(file)
			}
			delete(pending, m[1])
			continue
		}
		m := callLine.FindStringSubmatch(line)
		if m == nil || next == len(tokens) {
			continue
		}
		thread, call, file, rest := m[1], m[2], m[4], m[5]
		switch {
		case call == "pwrite64" && strings.HasSuffix(file, ".seg") && strings.Contains(rest, tokens[next]):
			written, synced = file, false
		case call == "fsync" || call == "fdatasync":
			if strings.Contains(rest, "unfinished") {
				if written == file || !strings.HasSuffix(file, ".seg") {
					pending[thread] = file
				}
			} else if strings.HasSuffix(strings.TrimSpace(rest), "= 0") {
				done(file)
			}
		case strings.HasPrefix(file, "socket:") || strings.HasPrefix(file, "TCP:"):
			if !strings.Contains(rest, `"HTTP/1.1 200 OK`) || strings.Contains(rest, "ready") {
				continue
			}
			require.NotEmpty(t, written, "answer %d went out before its record %s was written", next, tokens[next])
			require.True(t, synced, "answer %d went out before its record %s was synced", next, tokens[next])
			require.True(t, dirSynced, "answer %d went out before the folder knew the segment", next)
			next, written, synced = next+1, "", false
		}
	}
	require.Equal(t, len(tokens), next, "answers seen in the trace")
	return syncs
}
