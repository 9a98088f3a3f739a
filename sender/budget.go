package sender

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Numbers of the budget.
const (
	// retryShare is what each first request adds: one retry for ten of them.
	retryShare = 0.1
	// retryMost bounds what is saved up, and what is owed.
	retryMost = 10.0
	// retryTrickle is how long a road without other traffic waits for a retry.
	retryTrickle = 10 * time.Second
	// retryLook is how long to wait before asking again.
	retryLook = 500 * time.Millisecond
)

// budget keeps a road's retries below a tenth of its requests (reliability.md,
// WeChat slow): when something is wrong for many, everybody's retries are a storm
// of our own making. What may not go again yet waits. Not counted are retries
// with another token, which WeChat refuses at its door and the keeper bounds, and
// those after "too fast", which have a rate of their own.
type budget struct {
	mu      sync.Mutex
	left    float64
	at      time.Time // the trickle is paid out until then
	firsts  int64
	retries int64
}

func newBudget() *budget { return &budget{left: retryMost} }

// wait is zero if a retry may go now. Whoever goes pays by sent.
func (b *budget) wait(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at.IsZero() {
		b.at = now
	}
	if past := now.Sub(b.at); b.left < 1 && past > 0 {
		b.left = min(1, b.left+past.Seconds()/retryTrickle.Seconds())
	}
	b.at = now
	if b.left >= 1 {
		return 0
	}
	return retryLook + rand.N(retryLook)
}

// sent books a request.
func (b *budget) sent(retry bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if retry {
		b.retries++
		b.left = max(b.left-1, -retryMost)
		return
	}
	b.firsts++
	b.left = min(b.left+retryShare, retryMost)
}

// counts are the requests so far.
func (b *budget) counts() (firsts, retries int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.firsts, b.retries
}
