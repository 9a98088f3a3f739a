package dedupe

import (
	"sync"
	"time"
)

// breaker keeps a dead Redis from costing every delivery its budget. After a
// number of failures in a row it opens; then one caller per interval may probe,
// and one success closes it.
type breaker struct {
	after    int
	interval time.Duration

	mu       sync.Mutex
	failures int
	probeAt  time.Time // when open: the next probe
}

// allow reports whether Redis may be asked now. An open breaker allows one
// caller and moves the next probe on, whatever becomes of this one.
func (b *breaker) allow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < b.after {
		return true
	}
	now := time.Now()
	if now.Before(b.probeAt) {
		return false
	}
	b.probeAt = now.Add(b.interval)
	return true
}

// note records how asking went, and reports whether that opened or closed the breaker.
func (b *breaker) note(ok bool) (turned bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.failures >= b.after
	if ok {
		b.failures = 0
		return was
	}
	// Counted from the end of a probe: one that takes longer than the interval
	// must not be followed at once by the next.
	if b.failures++; b.failures >= b.after {
		b.probeAt = time.Now().Add(b.interval)
	}
	return !was && b.failures >= b.after
}

func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures >= b.after
}
