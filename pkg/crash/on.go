//go:build crash

package crash

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Enabled tells whether crash points are compiled in.
const Enabled = true

// point is one armed instant.
type point struct {
	name string
	pass int64 // counts from 1
	seen atomic.Int64
}

// The environment is read once, at the first pass. This is the one place with
// package state: a crash point has no constructor that could carry it.
var (
	kill = sync.OnceValue(func() *point { return armed("TIDEGATE_CRASH_AT") })
	hold = sync.OnceValue(func() *point { return armed("TIDEGATE_LIVELOCK") })
)

// armed reads one variable; nil means that nothing is to happen.
func armed(variable string) *point {
	text := os.Getenv(variable)
	if text == "" {
		return nil
	}
	p, err := parse(text)
	if err != nil {
		fmt.Fprintf(os.Stderr, "crash: %s=%q: %v; write NAME:N, such as CP3:7\n", variable, text, err)
		die()
	}
	return p
}

func parse(text string) (*point, error) {
	name, number, ok := strings.Cut(text, ":")
	if !ok || name == "" {
		return nil, fmt.Errorf("no name and number")
	}
	pass, err := strconv.ParseInt(number, 10, 64)
	if err != nil || pass < 1 {
		return nil, fmt.Errorf("%q is not a number of a pass, which counts from 1", number)
	}
	return &point{name: name, pass: pass}, nil
}

// At is an instant at which the process can be made to die or to stand still.
func At(name string) { With(name, func() {}) }

// With is At for an instant that has to be brought about first: last is called
// right before the process dies, and never otherwise.
func With(name string, last func()) {
	if p := hold(); p != nil && p.name == name {
		if n := p.seen.Add(1); n >= p.pass {
			// Later passes are held as well: a process that makes no progress at all.
			fmt.Fprintf(os.Stderr, "crash: held at %s, pass %d\n", name, n)
			forever()
		}
	}
	if p := kill(); p != nil && p.name == name && p.seen.Add(1) == p.pass {
		last()
		fmt.Fprintf(os.Stderr, "crash: killed at %s, pass %d\n", name, p.pass)
		die()
	}
}

// die is SIGKILL to the process itself; the kernel takes it before the call
// returns.
func die() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	forever()
}

// forever is not select{}: the runtime ends a process in which everybody waits
// for nothing.
func forever() {
	for {
		<-time.After(time.Hour)
	}
}
