//go:build linux

package herd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Spec says what to run.
type Spec struct {
	// Name is that of the log file and of the node in the history.
	Name string
	Path string
	Args []string
	// Env comes beside the environment of the test without its TIDEGATE_… .
	Env []string
	// Ops is the address of the operations listener; empty if there is none.
	Ops string
	// Ready tells that it serves; nil asks /readyz at Ops, or nothing.
	Ready func(context.Context) error
	// Patience is how long it may take to become ready. Default 30 s.
	Patience time.Duration
	// Tries is how often it is started when it ends instead of becoming ready, for
	// engines whose further ports may be taken for a moment. Default once.
	Tries int
	// AnyExit accepts every exit code after SIGTERM; otherwise it must be 0.
	AnyExit bool
}

// Process is one process, or its next life after a kill.
type Process struct {
	Spec
	h   *Herd
	log string

	mu     sync.Mutex
	cmd    *exec.Cmd
	ended  chan struct{}
	paused bool
}

// Start runs a process, waits until it is ready, and stops it with the test.
func (h *Herd) Start(s Spec) *Process {
	h.tb.Helper()
	if s.Patience == 0 {
		s.Patience = 30 * time.Second
	}
	p := &Process{Spec: s, h: h, log: filepath.Join(h.Dir, s.Name+".log")}
	h.tb.Cleanup(p.Terminate)
	p.Restart()
	return p
}

// Restart starts it again, with the same arguments, and waits until it is
// ready.
func (p *Process) Restart() {
	p.h.tb.Helper()
	for try := 1; ; try++ {
		p.launch()
		err := p.ready()
		if err == nil {
			return
		}
		if p.Running() || try >= p.Tries {
			p.h.tb.Fatalf("%s: %v; the end of its log:\n%s", p.Name, err, p.Tail())
		}
	}
}

func (p *Process) launch() {
	p.h.tb.Helper()
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.h.tb.Fatalf("open the log of %s: %v", p.Name, err)
	}
	defer f.Close()
	cmd := exec.Command(p.Path, p.Args...) //nolint:noctx // it ends by the signals that the test sends
	cmd.Env, cmd.Stdout, cmd.Stderr = Environ(p.Env...), f, f
	if err := p.h.start.begin(cmd); err != nil {
		p.h.tb.Fatalf("start %s: %v", p.Name, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		// A child that slept through the group's SIGTERM, or got it between fork and
		// exec when its shell's handler still took it, does not outlive its parent.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		close(ended)
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.ended, p.paused = cmd, ended, false
}

func (p *Process) ready() error {
	ask := p.Ready
	if ask == nil {
		if p.Ops == "" {
			return nil
		}
		ask = p.readyz
	}
	ctx, cancel := context.WithTimeout(p.h.tb.Context(), p.Patience)
	defer cancel()
	for {
		select {
		case <-p.end():
			return errors.New("ended at its start")
		case <-ctx.Done():
			return fmt.Errorf("did not become ready within %s", p.Patience)
		case <-time.After(20 * time.Millisecond):
		}
		once, done := context.WithTimeout(ctx, 2*time.Second)
		err := ask(once)
		done()
		if err == nil {
			return nil
		}
	}
}

func (p *Process) readyz(ctx context.Context) error {
	body, err := get(ctx, "http://"+p.Ops+"/readyz")
	if err == nil && body != "ready\n" {
		err = errors.New("not ready")
	}
	return err
}

func (p *Process) end() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// Running tells whether it has not ended; a frozen one runs.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// PID is that of its present or last life.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Terminate asks the process to stop and checks that it does so, cleanly. It
// does nothing when the process has ended.
func (p *Process) Terminate() {
	if !p.Running() {
		return
	}
	p.Resume()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.end():
		if code := p.cmd.ProcessState.ExitCode(); code != 0 && !p.AnyExit {
			p.h.tb.Errorf("%s stopped with exit code %d:\n%s", p.Name, code, p.Tail())
		}
	case <-time.After(20 * time.Second):
		p.signal(syscall.SIGKILL)
		<-p.end()
		p.h.tb.Errorf("%s did not stop within 20 s of SIGTERM:\n%s", p.Name, p.Tail())
	}
}

// Tail is the end of the log.
func (p *Process) Tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}
