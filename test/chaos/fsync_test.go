//go:build chaos

package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
	syncs, err := proveOrder(string(b), tokens)
	require.NoError(t, err)
	w.broker.Restart()
	door.Restart()
	v := w.verify(w.busy())
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
func proveOrder(trace string, tokens []string) (syncs int, err error) {
	next, written, synced, folder := 0, "", false, false
	pending := map[string]string{} // thread to the file that it syncs
	done := func(file string) {
		if written != "" && file == written {
			synced = true
			syncs++
		}
		folder = folder || !strings.HasSuffix(file, ".seg")
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
		case (call == "fsync" || call == "fdatasync") && strings.Contains(rest, "unfinished"):
			// One of the segment that began before the record was written is none of it.
			if written == file || !strings.HasSuffix(file, ".seg") {
				pending[thread] = file
			}
		case call == "fsync" || call == "fdatasync":
			if strings.HasSuffix(strings.TrimSpace(rest), "= 0") {
				done(file)
			}
		case answers(file, rest):
			if written == "" || !synced || !folder {
				return syncs, fmt.Errorf("answer %d went out early: record %s written %t, synced %t, folder synced %t", next, tokens[next], written != "", synced, folder)
			}
			next, written, synced = next+1, "", false
		}
	}
	if next < len(tokens) {
		return syncs, fmt.Errorf("the trace has %d answers of %d", next, len(tokens))
	}
	return syncs, nil
}

// answers tells whether a line is an acknowledgement on its way into a socket.
func answers(file, rest string) bool {
	return (strings.HasPrefix(file, "socket:") || strings.HasPrefix(file, "TCP:")) &&
		strings.Contains(rest, `"HTTP/1.1 200 OK`) && strings.Contains(rest, `success"`)
}

// The proof itself: a trace in which an answer overtakes its sync is refused.
func TestProveOrderCatches(t *testing.T) {
	const (
		dir   = `1 fsync(5</s>) = 0`
		write = `1 pwrite64(6</s/1.seg>, "...#a.1#...", 9, 0) = 9`
		other = `1 pwrite64(6</s/1.seg>, "...#a.2#...", 9, 0) = 9`
		sync  = `1 fsync(6</s/1.seg>) = 0`
		begin = `1 fsync(6</s/1.seg> <unfinished ...>`
		end   = `1 <... fsync resumed>) = 0`
		bad   = `1 <... fsync resumed>) = -1 EIO (Input/output error)`
		reply = `2 write(7<socket:[1]>, "HTTP/1.1 200 OK\r\n\r\nsuccess", 30) = 30`
	)
	for name, c := range map[string]struct {
		lines []string
		good  bool
	}{
		"in order":               {[]string{dir, write, sync, reply}, true},
		"in two parts":           {[]string{dir, write, begin, end, reply}, true},
		"answer before the sync": {[]string{dir, write, reply, sync}, false},
		"before it has ended":    {[]string{dir, write, begin, reply, end}, false},
		"a sync that failed":     {[]string{dir, write, begin, bad, reply}, false},
		"one begun too early":    {[]string{dir, begin, write, end, reply}, false},
		"another record":         {[]string{dir, other, sync, reply}, false},
		"not written":            {[]string{dir, sync, reply}, false},
		"folder not synced":      {[]string{write, sync, reply}, false},
		"no answer":              {[]string{dir, write, sync}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := proveOrder(strings.Join(c.lines, "\n"), []string{"#a.1#"})
			require.Equal(t, c.good, err == nil, "%v", err)
		})
	}
}
