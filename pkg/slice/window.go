package slice

import (
	"math"
	"sync"
	"time"
)

// Window is a scope in this process only, decided as Counters decides. It is
// safe for concurrent use and holds one number per slice. Callers pass the time
// of a clock that does not step.
type Window struct {
	rule  Rule
	width int64

	mu   sync.Mutex
	ring []cell // Slices+1 of them, by slice number
}

type cell struct{ slice, count int64 }

// NewWindow makes an empty window. The rule must be valid.
func NewWindow(r Rule) *Window {
	return &Window{rule: r, width: r.width(), ring: make([]cell, r.Slices+1)}
}

// Add counts n whatever the limit is, and gives the sum with it.
func (w *Window) Add(now time.Time, n int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(now.UnixMicro(), n)
	return int64(math.Ceil(w.sum(now.UnixMicro())))
}

// Take counts n if that much fits, and reports whether it did.
func (w *Window) Take(now time.Time, n int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := now.UnixMicro()
	if w.rule.Limit > 0 && w.sum(at)+float64(n) > float64(w.rule.Limit) {
		return false
	}
	w.add(at, n)
	return true
}

// Sum is what the period holds now.
func (w *Window) Sum(now time.Time) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(math.Ceil(w.sum(now.UnixMicro())))
}

func (w *Window) add(at, n int64) {
	k := at / w.width
	c := &w.ring[k%int64(len(w.ring))]
	if c.slice != k {
		*c = cell{slice: k}
	}
	c.count += n
}

func (w *Window) sum(at int64) float64 {
	now, total := at/w.width, 0.0
	for _, c := range w.ring {
		total += float64(c.count) * share(w.rule.Mode, now-c.slice, int64(w.rule.Slices), float64(at%w.width)/float64(w.width))
	}
	return total
}

// share is the part of a slice that counts: age is its distance from the
// current slice, part how much of the current one is over.
func share(m Mode, age, n int64, part float64) float64 {
	switch {
	case age < n:
		return 1
	case age > n || m == Paper:
		return 0
	case m == Strict:
		return 1
	}
	return 1 - part
}
