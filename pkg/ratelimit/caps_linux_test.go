package ratelimit

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

const (
	capsNode  = "TIDEGATE_TEST_CAPS_NODE"  // set in a child: where its journal is
	capsRedis = "TIDEGATE_TEST_CAPS_REDIS" // and its Redis
	capsFull  = "TIDEGATE_TEST_CAPS_FULL"  // 60 s instead of 6

	capsRate  = 200
	capsBurst = 20
	capsNodes = 4
)

// monotonic is the clock that all processes of a machine share.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

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

// server is a Redis that can be killed and comes back on its port without data.
type server interface {
	start(addr string) error
	kill()
}

type memServer struct{ s *redismem.Server }

func (m *memServer) start(addr string) (err error) { m.s, err = redismem.Start(addr); return err }
func (m *memServer) kill()                         { m.s.Close() }

type realServer struct{ cmd *exec.Cmd }

func (r *realServer) start(addr string) error {
	_, port, _ := net.SplitHostPort(addr)
	r.cmd = exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no")
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return r.cmd.Start()
}

func (r *realServer) kill() { _ = r.cmd.Process.Kill(); _ = r.cmd.Wait() }

// node is one process.
type node struct {
	cmd     *exec.Cmd
	journal string
	ended   bool
}

// scene plays the faults and remembers when.
type scene struct {
	t      *testing.T
	dir    string
	server server
	addr   string
	origin int64
	alive  []*node
	all    []*node
	faults []int64 // CLOCK_MONOTONIC
	stops  []stopped
	counts map[string]int
}

type stopped struct {
	n        *node
	from, to int64
}

func (s *scene) begin() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	s.addr = l.Addr().String()
	require.NoError(s.t, l.Close())
	require.NoError(s.t, s.server.start(s.addr))
	s.counts = map[string]int{}
	s.scale(2)
	s.waitWork(s.alive...)
	s.origin = monotonic()
}

// until waits for a moment of the scene.
func (s *scene) until(at time.Duration) {
	<-time.After(time.Duration(s.origin + int64(at) - monotonic()))
}

func (s *scene) fault(what string) {
	s.counts[what]++
	s.faults = append(s.faults, monotonic())
}

// scale starts nodes, or asks some to leave.
func (s *scene) scale(n int) {
	for len(s.alive) < n {
		journal := filepath.Join(s.dir, strconv.Itoa(len(s.all)))
		cmd := exec.Command(os.Args[0], "-test.run=^TestCaps$")
		cmd.Env = append(os.Environ(), capsNode+"="+journal, capsRedis+"="+s.addr)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		var out bytes.Buffer
		cmd.Stderr = &out
		s.t.Cleanup(func() {
			if out.Len() > 0 {
				s.t.Logf("a node said:\n%s", out.String())
			}
		})
		require.NoError(s.t, cmd.Start())
		nd := &node{cmd: cmd, journal: journal}
		s.alive, s.all = append(s.alive, nd), append(s.all, nd)
	}
	for len(s.alive) > n {
		nd := s.alive[len(s.alive)-1]
		s.alive = s.alive[:len(s.alive)-1]
		s.finish(nd)
	}
}

func (s *scene) finish(n *node) {
	require.NoError(s.t, n.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(s.t, n.cmd.Wait())
	n.ended = true
}

// waitWork waits until each node has written a departure.
func (s *scene) waitWork(nodes ...*node) {
	for _, n := range nodes {
		require.Eventually(s.t, func() bool {
			i, err := os.Stat(n.journal)
			return err == nil && i.Size() > 0
		}, 30*time.Second, 10*time.Millisecond)
	}
}

// kill9 kills the first node and starts another.
func (s *scene) kill9() {
	n := s.alive[0]
	s.fault("kill -9")
	require.NoError(s.t, n.cmd.Process.Kill())
	require.Error(s.t, n.cmd.Wait(), "it was killed")
	n.ended = true
	s.alive = s.alive[1:]
	s.scale(len(s.alive) + 1)
}

// restart kills Redis; it comes back after a while, without data.
func (s *scene) restart(away time.Duration) {
	s.fault("restart of Redis without data")
	s.server.kill()
	<-time.After(away)
	require.NoError(s.t, s.server.start(s.addr))
	s.faults = append(s.faults, monotonic())
}

// sigstop stops the last node and lets it go on later, by the returned function.
func (s *scene) sigstop() (cont func()) {
	n := s.alive[len(s.alive)-1]
	s.fault("SIGSTOP")
	st := stopped{n: n, from: monotonic()}
	require.NoError(s.t, n.cmd.Process.Signal(syscall.SIGSTOP))
	return func() {
		st.to = monotonic()
		s.stops, s.faults = append(s.stops, st), append(s.faults, st.to)
		require.NoError(s.t, n.cmd.Process.Signal(syscall.SIGCONT))
	}
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

func (s *scene) end() {
	for _, n := range s.all {
		if !n.ended {
			_ = n.cmd.Process.Kill()
			_ = n.cmd.Wait()
		}
	}
	s.server.kill()
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
	total, length := 0.0, 0.0
	edges := append([]int64{s.origin - int64(3*time.Second)}, s.faults...)
	slices.Sort(edges)
	edges = append(edges, over+int64(3*time.Second))
	for i := 1; i < len(edges); i++ {
		from, to := edges[i-1]+int64(3*time.Second), edges[i]
		if i == len(edges)-1 {
			to -= int64(3 * time.Second)
		}
		if to-from < int64(500*time.Millisecond) {
			continue
		}
		u, d := use(at, from, to, capsRate), float64(to-from)/1e9
		s.t.Logf("calm from %.1f to %.1f s: %.1f %% of the cap used", float64(from-s.origin)/1e9, float64(to-s.origin)/1e9, 100*u)
		total, length = total+u*d, length+d
	}
	if f := os.Getenv("TIDEGATE_TEST_CAPS_DUMP"); f != "" {
		var b strings.Builder
		for k, n := range s.all {
			for _, x := range read(s.t, n.journal) {
				fmt.Fprintf(&b, "%d %.6f\n", k, float64(x-s.origin)/1e9)
			}
		}
		for _, x := range s.faults {
			fmt.Fprintf(&b, "F %.6f\n", float64(x-s.origin)/1e9)
		}
		require.NoError(s.t, os.WriteFile(f, []byte(b.String()), 0o600))
	}
	if length > 0 {
		out.row("97 % of the cap used, 3 s after a fault", fmt.Sprintf("%.1f %% in %.0f s", 100*total/length, length), !strict || total/length >= 0.97)
	}
	if strict {
		out.row("5 restarts, 2 kills, 1 stop", fmt.Sprint(s.counts), s.counts["restart of Redis without data"] == 5 && s.counts["kill -9"] == 2 && s.counts["SIGSTOP"] == 1)
	}
	s.t.Logf("%d departures of %d processes\n%s", len(at), len(s.all), out.String())
	require.Zero(s.t, out.failed)
}

// capsChild is a node: 32 callers take permits until it is asked to stop.
func capsChild() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	f, err := os.OpenFile(os.Getenv(capsNode), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(err)
	rc := redis.DefaultConfig()
	rc.Addrs = []string{os.Getenv(capsRedis)}
	c, err := redis.Open(rc, zap.NewNop())
	must(err)
	cfg := DefaultConfig()
	cfg.MaxNodes = capsNodes
	cl, err := NewCluster(cfg, c, zap.NewNop(), nil)
	must(err)
	p := cl.Permits("caps", Limit{Rate: capsRate, Burst: capsBurst})
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for {
				release, err := p.Acquire(ctx, 0)
				if err != nil {
					return
				}
				now := monotonic() // before anything that may block
				_, err = f.Write(binary.LittleEndian.AppendUint64(nil, uint64(now)))
				must(err)
				release()
			}
		})
	}
	wg.Wait()
	must(cl.Close(context.Background()))
	must(c.Close())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
