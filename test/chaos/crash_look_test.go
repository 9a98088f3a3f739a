//go:build chaos

package chaos

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var torn = regexp.MustCompile(`(?m)^(\S+\.seg)\s+(\d+)\s+(\d+)\s+never acknowledged, cut off`)

// halfWritten demands that CP6 has left exactly the first half of a record at
// the end of the spool.
func (r *crashRun) halfWritten() {
	r.t.Helper()
	dir := filepath.Join(r.h.Dir, "spool-"+r.run+"-"+r.door.Name)
	report := r.command("spool", "inspect", dir)
	m := torn.FindStringSubmatch(report)
	require.NotNil(r.t, m, "no torn record: %s", report)
	from, err := strconv.ParseInt(m[2], 10, 64)
	require.NoError(r.t, err)
	have, err := strconv.ParseInt(m[3], 10, 64)
	require.NoError(r.t, err)
	f, err := os.Open(filepath.Join(dir, m[1]))
	require.NoError(r.t, err)
	defer f.Close()
	head := make([]byte, 20) // magic, length, sequence, checksum
	_, err = f.ReadAt(head, from)
	require.NoError(r.t, err)
	whole := int64(len(head)) + int64(binary.LittleEndian.Uint32(head[4:]))
	require.Equal(r.t, whole/2, have, "half of a record of %d bytes", whole)
}

// TestReleaseHasNoCrashPoints looks into the binary that is shipped for what the
// tag crash adds (S90), and into the other one to know that it would be found.
func TestReleaseHasNoCrashPoints(t *testing.T) {
	traces := []string{"TIDEGATE_CRASH_AT", "TIDEGATE_LIVELOCK", "tidegate/pkg/crash", "crashConn", "crashDialer", "crashWriter"}
	found := func(tags string) (symbols, texts int) {
		path, err := builds.Make(".", tags)
		require.NoError(t, err)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		out, err := exec.Command("go", "tool", "nm", path).Output()
		require.NoError(t, err)
		return traced(string(out), traces), traced(string(b), traces)
	}
	symbols, texts := found("crash")
	require.GreaterOrEqual(t, symbols, 4, "the search finds nothing where something is")
	require.Equal(t, len(traces), texts)
	symbols, texts = found("")
	require.Zero(t, symbols, "symbols of crash points in a release")
	require.Zero(t, texts, "names of crash points in a release")
	ci(t, "S90 the release binary has no crash point: none of %d names in its text or symbols; the one with the tag crash has them all", len(traces))
}

// traced counts the traces that a text contains.
func traced(text string, traces []string) (n int) {
	for _, s := range traces {
		if strings.Contains(text, s) {
			n++
		}
	}
	return n
}
