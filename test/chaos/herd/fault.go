//go:build linux

package herd

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"tidegate/test/chaos/history"
)

// Names of faults in the history.
const (
	SIGKILL = "SIGKILL"
	SIGSTOP = "SIGSTOP"
	SIGTERM = "SIGTERM"
)

// signal reaches the whole group; one that has ended in the meantime is no
// error.
func (p *Process) signal(s syscall.Signal) { _ = syscall.Kill(-p.PID(), s) }

func (p *Process) fault(what, phase string) {
	p.h.note(history.Event{Kind: history.Fault, What: what, Target: p.Name, Node: p.Name, PID: p.PID(), Phase: phase})
}

// Kill ends the process without a word to it.
func (p *Process) Kill() {
	p.h.tb.Helper()
	if !p.Running() {
		p.h.tb.Fatalf("%s was to be killed and does not run:\n%s", p.Name, p.Tail())
	}
	p.signal(syscall.SIGKILL)
	<-p.end()
	p.fault(SIGKILL, history.Once)
}

// Stop is a clean stop by the test in the middle of a run, written down.
func (p *Process) Stop() {
	p.h.tb.Helper()
	p.fault(SIGTERM, history.Once)
	p.Terminate()
}

// Pause freezes the process and returns when the kernel says that it is frozen.
func (p *Process) Pause() {
	p.h.tb.Helper()
	p.mu.Lock()
	p.paused = true
	p.mu.Unlock()
	p.signal(syscall.SIGSTOP)
	Wait(p.h.tb, p.Name+" to be frozen", 5*time.Second, p.frozen)
	p.fault(SIGSTOP, history.Begin)
}

// Resume wakes a frozen process, and does nothing to another.
func (p *Process) Resume() {
	p.mu.Lock()
	was := p.paused
	p.paused = false
	p.mu.Unlock()
	if was {
		p.signal(syscall.SIGCONT)
		p.fault(SIGSTOP, history.End)
	}
}

func (p *Process) frozen() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "T")
}
