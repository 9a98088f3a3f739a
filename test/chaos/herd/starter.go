//go:build linux

package herd

import (
	"os/exec"
	"runtime"
	"syscall"
)

// starter begins processes from one operating system thread, because the signal
// that Linux sends a child when its parent has died is bound to the thread that
// began it.
type starter struct {
	work  chan func()
	ended chan struct{}
}

func newStarter() *starter {
	s := &starter{work: make(chan func()), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		runtime.LockOSThread()
		for do := range s.work {
			do()
		}
	}()
	return s
}

// begin starts cmd in a process group of its own.
func (s *starter) begin(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	failed := make(chan error, 1)
	s.work <- func() { failed <- cmd.Start() }
	return <-failed
}

// close ends the thread, and with it whatever it began and still runs.
func (s *starter) close() {
	close(s.work)
	<-s.ended
}
