package ratelimit

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	capsNode  = "TIDEGATE_TEST_CAPS_NODE"  // set in a child: where its journal is
	capsRedis = "TIDEGATE_TEST_CAPS_REDIS" // and its Redis
	capsFull  = "TIDEGATE_TEST_CAPS_FULL"  // 60 s instead of 6

	capsRate  = 200
	capsBurst = 20
	capsNodes = 4
)

// TestCaps is G10 and T39 with real processes: nodes take permits of one cap and
// write each departure into a journal, while nodes come, go, are killed and
// stopped, and Redis loses its data. TIDEGATE_TEST_REDIS chooses a real server,
// which the test starts itself; TIDEGATE_TEST_CAPS_FULL the long form.
func TestCaps(t *testing.T) {
	if os.Getenv(capsNode) != "" {
		capsChild()
		return
	}
	t.Parallel()
	onReal := os.Getenv("TIDEGATE_TEST_REDIS") != ""
	if _, err := exec.LookPath("redis-server"); onReal && err != nil {
		t.Skip("redis-server is not on the PATH: this test kills its Redis, so it needs one of its own")
	}
	s := &scene{t: t, dir: t.TempDir(), server: &memServer{}}
	if onReal {
		s.server = &realServer{}
	}
	s.begin()
	defer s.end()
	if os.Getenv(capsFull) != "" {
		s.long()
	} else {
		s.short()
	}
	s.judge(os.Getenv(capsFull) != "")
}

// long is the scenario of G10: 60 s, 2→4→1 nodes.
func (s *scene) long() {
	s.until(5 * time.Second)
	s.restart(100 * time.Millisecond)
	s.until(10 * time.Second)
	s.scale(4)
	s.until(15 * time.Second)
	s.kill9()
	s.restart(300 * time.Millisecond)
	s.until(22 * time.Second)
	cont := s.sigstop()
	s.until(24 * time.Second)
	s.restart(100 * time.Millisecond)
	s.until(32 * time.Second)
	cont()
	s.kill9()
	s.until(40 * time.Second)
	s.restart(4 * time.Second) // long enough for static shares
	s.until(50 * time.Second)
	s.scale(1)
	s.until(52 * time.Second)
	s.restart(100 * time.Millisecond)
	s.until(60 * time.Second)
}

// short has one of each.
func (s *scene) short() {
	s.until(600 * time.Millisecond)
	s.restart(50 * time.Millisecond)
	s.until(1800 * time.Millisecond)
	s.scale(4)
	cont := s.sigstop()
	s.until(2800 * time.Millisecond)
	s.kill9()
	s.until(4 * time.Second)
	cont()
	s.waitWork(s.alive...)
	s.until(4500 * time.Millisecond)
	s.scale(1)
	s.until(5 * time.Second)
}

func read(t *testing.T, journal string) []int64 {
	b, err := os.ReadFile(journal)
	require.NoError(t, err)
	var at []int64
	for ; len(b) >= 8; b = b[8:] {
		at = append(at, int64(binary.LittleEndian.Uint64(b)))
	}
	slices.Sort(at) // callers of one process write as they are scheduled
	return at
}

// judge merges the journals, looks at them and prints the table. The use of the
// cap is a duration and judged in the full form only, on a machine of its own.
func (s *scene) judge(strict bool) {
	over := monotonic()
	s.scale(0)
	var at []int64
	for _, n := range s.all {
		at = append(at, read(s.t, n.journal)...)
	}
	slices.Sort(at)
	require.NotEmpty(s.t, at)
	for _, st := range s.stops { // the fault happened
		own := read(s.t, st.n.journal)
		i, _ := slices.BinarySearch(own, st.from+int64(100*time.Millisecond))
		j, _ := slices.BinarySearch(own, st.to)
		require.Equal(s.t, i, j, "the stopped node sent nothing")
		require.Less(s.t, j, len(own), "and went on afterwards")
	}

	var out table
	for _, f := range judge(at, capsRate, capsBurst) {
		out.row(fmt.Sprintf("at most %.0f in any %v", f.allowed, f.window), fmt.Sprintf("most %d (at %.1f s), violations %d", f.most, float64(f.at-s.origin)/1e9, f.violations), f.violations == 0)
	}
	total, length := s.calm(at, over)
	s.dump(os.Getenv("TIDEGATE_TEST_CAPS_DUMP"))
	if length > 0 {
		out.row("97 % of the cap used, 3 s after a fault", fmt.Sprintf("%.1f %% in %.0f s", 100*total/length, length), !strict || total/length >= 0.97)
	}
	if strict {
		out.row("5 restarts, 2 kills, 1 stop", fmt.Sprint(s.counts), s.counts["restart of Redis without data"] == 5 && s.counts["kill -9"] == 2 && s.counts["SIGSTOP"] == 1)
	}
	s.t.Logf("%d departures of %d processes\n%s", len(at), len(s.all), out.String())
	require.Zero(s.t, out.failed)
}

// calm is how much of the cap was used, and for how many seconds that was looked
// at, outside of the 3 s after each fault.
func (s *scene) calm(at []int64, over int64) (used, length float64) {
	edges := append([]int64{s.origin - int64(3*time.Second)}, s.faults...)
	slices.Sort(edges)
	edges = append(edges, over)
	for i := 1; i < len(edges); i++ {
		from, to := edges[i-1]+int64(3*time.Second), edges[i]
		if to-from < int64(500*time.Millisecond) {
			continue
		}
		u, d := use(at, from, to, capsRate), float64(to-from)/1e9
		s.t.Logf("calm from %.1f to %.1f s: %.1f %% of the cap used", float64(from-s.origin)/1e9, float64(to-s.origin)/1e9, 100*u)
		used, length = used+u*d, length+d
	}
	return used, length
}

// dump writes departures and faults into a file, for people; without a name it
// does nothing.
func (s *scene) dump(file string) {
	if file == "" {
		return
	}
	var b strings.Builder
	for k, n := range s.all {
		for _, x := range read(s.t, n.journal) {
			fmt.Fprintf(&b, "%d %.6f\n", k, float64(x-s.origin)/1e9)
		}
	}
	for _, x := range s.faults {
		fmt.Fprintf(&b, "F %.6f\n", float64(x-s.origin)/1e9)
	}
	require.NoError(s.t, os.WriteFile(file, []byte(b.String()), 0o600))
}
