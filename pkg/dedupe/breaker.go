package dedupe

import (
	"sync"
	"sync/atomic"
	"time"
)

// breaker keeps a dead Redis from costing every delivery its budget. After a
// number of failures in a row it opens; then one caller per interval may probe,
// and one success closes it.
type breaker struct {
	after    int
	interval time.Duration
	// window is how long one late answer speaks for those beside it: a pipeline that
	// did not come back in time fails hundreds of questions at once, and that is
	// one hiccup.
	window time.Duration

	// failures in a row. It changes under mu; while all is well it is only read.
	failures atomic.Int64

	mu      sync.Mutex
	probeAt time.Time // when open: the next probe
	counted time.Time // the last failure that was counted
}

// allow reports whether Redis may be asked now. An open breaker allows one
// caller and moves the next probe on, whatever becomes of this one.
func (b *breaker) allow() bool {
	if !b.open() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open() {
		return true
	}
	now := time.Now()
	if now.Before(b.probeAt) {
		return false
	}
	b.probeAt = now.Add(b.interval)
	return true
}

// note records how asking went, and reports whether that opened or closed the
// breaker. late is a failure that took its time: those of one window are one.
func (b *breaker) note(ok, late bool) (turned bool) {
	if ok && b.failures.Load() == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.open()
	if ok {
		b.failures.Store(0)
		return was
	}
	now := time.Now()
	if !late || b.failures.Load() == 0 || now.Sub(b.counted) >= b.window {
		b.counted = now
		b.failures.Add(1)
	}
	// Counted from the end of a probe: one that takes longer than the interval
	// must not be followed at once by the next.
	if b.open() {
		b.probeAt = now.Add(b.interval)
	}
	return !was && b.open()
}

func (b *breaker) open() bool { return b.failures.Load() >= int64(b.after) }
