package kafka

import (
	"math/rand/v2"
	"time"
)

// backoff is a growing pause: min, doubling up to max, with ±25 % jitter so that
// many members do not return at the same moment.
type backoff struct {
	min, max time.Duration
	fails    int
}

func (b *backoff) next() time.Duration {
	d := pause(b.min, b.max, b.fails)
	b.fails++
	return d
}

// sleep waits the next pause, or until stop is closed.
func (b *backoff) sleep(stop <-chan struct{}) {
	t := time.NewTimer(b.next())
	defer t.Stop()
	select {
	case <-t.C:
	case <-stop:
	}
}

// pause is the wait after so many earlier failures (0 for the first).
func pause(low, high time.Duration, fails int) time.Duration {
	d := high
	if fails < 32 && low<<fails > 0 && low<<fails < high {
		d = low << fails
	}
	return d - d/4 + rand.N(d/2+1)
}
