package guard

import (
	"sync"
	"time"
)

// breaker keeps what is dead from being asked: after a number of failures in a
// row it opens, then one caller per pause may try, and a success closes it. The
// failures must also lie some time apart, where many callers ask at once: one
// moment's trouble of all of them is one failure.
type breaker struct {
	after int
	span  time.Duration // from the first failure in a row to the one that opens it
	pause time.Duration

	mu       sync.Mutex
	failures int
	first    time.Time // of the failures in a row
	isOpen   bool
	tryAt    time.Time // when open: the next trial
}

// allow reports whether to ask now, and if not, how long not.
func (b *breaker) allow() (ok bool, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.isOpen {
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
	was := b.isOpen
	if ok {
		b.failures, b.isOpen = 0, false
		return was
	}
	now := time.Now()
	if b.failures++; b.failures == 1 {
		b.first = now
	}
	if b.failures < b.after || now.Sub(b.first) < b.span {
		return false
	}
	b.isOpen, b.tryAt = true, now.Add(b.pause)
	return !was
}

func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.isOpen
}
