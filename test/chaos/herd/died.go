//go:build linux

package herd

import (
	"os"
	"strings"
	"syscall"
	"time"

	"tidegate/test/chaos/history"
)

// Died waits until a process that was made to end itself has done so, writes
// that down under the given name, and tells by which signal it ended (0: none).
func (p *Process) Died(what string, limit time.Duration) syscall.Signal {
	p.h.tb.Helper()
	Wait(p.h.tb, p.Name+" to die at "+what, limit, func() bool { return !p.Running() })
	p.fault(what, history.Once)
	p.mu.Lock()
	defer p.mu.Unlock()
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0
	}
	return status.Signal()
}

// Said tells whether a line of the log, of any of its lives, is this text.
func (p *Process) Said(line string) bool {
	b, err := os.ReadFile(p.log)
	if err != nil {
		p.h.tb.Fatalf("read the log of %s: %v", p.Name, err)
	}
	return strings.Contains("\n"+string(b), "\n"+line+"\n")
}
