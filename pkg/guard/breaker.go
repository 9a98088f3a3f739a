package guard

import (
	"sync"
	"time"
)

// breaker keeps what is dead from being asked: after a number of failures in a
// row it opens, then one caller per pause may try, and a success closes it.
type breaker struct {
	after int
	pause time.Duration

	mu       sync.Mutex
	failures int
	tryAt    time.Time // when open: the next trial
}

// allow reports whether to ask now, and if not, how long not.
func (b *breaker) allow() (ok bool, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < b.after {
		return true, 0
	}
	now := time.Now()
	if now.Before(b.tryAt) {
		return false, b.tryAt.Sub(now)
	}
	b.tryAt = now.Add(b.pause)
	return true, 0
}

// note records how asking went, and reports whether that opened or closed it.
func (b *breaker) note(ok bool) (turned bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.failures >= b.after
	if ok {
		b.failures = 0
		return was
	}
	b.failures++
	if b.failures < b.after {
		return false
	}
	b.tryAt = time.Now().Add(b.pause)
	return !was
}

func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures >= b.after
}
