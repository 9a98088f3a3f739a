package token

import (
	"sync"
	"time"

	"tidegate/pkg/fault"
)

// reason says why a token is asked for. ahead means: the current one still
// serves, but its end is near. common means that it must be the one that all nodes
// have, so that memory alone is no answer.
type reason struct{ ahead, common bool }

// holder is one account's token in memory.
type holder struct {
	account Account
	turn    chan struct{} // one renewal at a time on this node

	mu       sync.Mutex
	current  Token
	rejected string // the value that WeChat refused last
	ledger   Ledger
	failed   failure
}

// failure is shared by everybody who asks while it is in force, so that a
// hundred waiting sends make one call and not a hundred.
type failure struct {
	err    error
	until  time.Time
	streak int
	stop   bool
}

// The pauses after failures: transient ones begin short, refusals of the
// account are asked again slowly (wechat.md 6.1: never in a loop).
const (
	retryFirst = time.Second
	retryLast  = 30 * time.Second
	stopFirst  = 30 * time.Second
	stopLast   = 10 * time.Minute
)

func newHolder(a Account) *holder { return &holder{account: a, turn: make(chan struct{}, 1)} }

// usable gives the current token unless it is over, rejected, or (for a
// renewal ahead) close to its end. Where the nodes' common one is asked for, memory
// does not count.
func (h *holder) usable(now time.Time, why reason, ahead ...time.Duration) (Token, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	need := time.Duration(0)
	if why.ahead && len(ahead) > 0 {
		need = ahead[0]
	}
	return h.current, !why.common && h.good(h.current, now, need)
}

// good is called with mu held.
func (h *holder) good(t Token, now time.Time, need time.Duration) bool {
	return t.Value != "" && t.Value != h.rejected && t.ExpiresAt.Sub(now) > need
}

func (h *holder) acceptable(t Token, now time.Time, need time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.good(t, now, need)
}

func (h *holder) due(now time.Time, ahead time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.good(h.current, now, ahead) && !now.Before(h.failed.until)
}

// reject notes a refused value, unless it is no longer the one in use: a late
// rejection must not expire a fresh token (pitfall 20).
func (h *holder) reject(value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current.Value == value {
		h.rejected = value
	}
}

func (h *holder) rejectedValue() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rejected
}

// adopt makes t current. The caller has made sure that it is acceptable.
func (h *holder) adopt(t Token) (recovered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	recovered = h.failed.stop
	h.current, h.failed = t, failure{}
	return recovered
}

func (h *holder) failure(now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed.err == nil || !now.Before(h.failed.until) {
		return nil
	}
	return fault.New(fault.KindOf(h.failed.err), "token of "+h.account.Name, "%w", h.failed.err).WithRetryAfter(h.failed.until.Sub(now))
}

// fail records an error with its pause and reports how many of its kind came in
// a row and whether the account has just been stopped.
func (h *holder) fail(err error, v Verdict, now time.Time) (pause time.Duration, failures int, stoppedNow bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first, last := retryFirst, retryLast
	if v.Stop {
		first, last = stopFirst, stopLast
	}
	streak := 0
	if h.failed.stop == v.Stop {
		streak = h.failed.streak
	}
	pause = max(min(first<<min(streak, 20), last), v.Retry)
	stoppedNow = v.Stop && !h.failed.stop
	h.failed = failure{err: err, until: now.Add(pause), streak: streak + 1, stop: v.Stop}
	return pause, streak + 1, stoppedNow
}

func (h *holder) stopReason() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.failed.stop {
		return ""
	}
	return h.failed.err.Error()
}

func (h *holder) bookkeeping() Ledger {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ledger
}

func (h *holder) book(l Ledger) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ledger = h.ledger.merge(l)
}
