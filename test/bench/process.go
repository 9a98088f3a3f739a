//go:build bench

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// process is a program that this one has started.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   string
	lines *bufio.Reader
	ended chan struct{}
}

// launch starts a program in dir; what it complains about goes to a file there.
func launch(name, dir, path string, args ...string) (*process, error) {
	p := &process{name: name, log: dir + "/" + name + ".log", ended: make(chan struct{})}
	f, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p.cmd = exec.Command(path, args...) //nolint:noctx // it ends by a signal, so that it can stop cleanly
	p.cmd.Dir, p.cmd.Stderr = dir, f
	r, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines = bufio.NewReader(r)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// line reads one line of the program's output, or says why there is none.
func (p *process) line() (string, error) {
	s, err := p.lines.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s did not start:\n%s", p.name, p.tail())
	}
	return strings.TrimSpace(s), nil
}

// attend waits for the program's end in the background; call it once, after the
// last line was read.
func (p *process) attend() {
	go func() {
		_, _ = io.Copy(io.Discard, p.lines)
		_ = p.cmd.Wait()
		close(p.ended)
	}()
}

func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-3000):])
}

// stop asks the program to end, and ends it after a while.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("%s did not stop within 20 s:\n%s", p.name, p.tail())
	}
}

// ready waits until get answers "ready".
func (p *process) ready(ctx context.Context, get func() (string, error)) error {
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended at its start:\n%s", p.name, p.tail())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
		if body, err := get(); err == nil && body == "ready\n" {
			return nil
		}
	}
	return fmt.Errorf("%s did not become ready within 30 s:\n%s", p.name, p.tail())
}

// command runs a program to its end.
func command(ctx context.Context, dir, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("%s %s: %w", path, strings.Join(args, " "), err), errors.New(string(out)))
	}
	return nil
}
