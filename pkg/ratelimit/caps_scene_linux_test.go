package ratelimit

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/redis/redismem"
)

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

func (s *scene) end() {
	for _, n := range s.all {
		if !n.ended {
			_ = n.cmd.Process.Kill()
			_ = n.cmd.Wait()
		}
	}
	s.server.kill()
}
