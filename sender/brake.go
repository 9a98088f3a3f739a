package sender

import (
	"sync"
	"time"
)

// brake closes something for a time and then lets one probe through at a time,
// until a probe brings good news (T46: half-open lets one through, not all).
type brake struct {
	mu      sync.Mutex
	why     cause
	detail  string
	until   time.Time
	asked   time.Time // when somebody wanted to go last
	streak  int
	probing bool
	// told hears of each closing and of the opening, in their order; it must not
	// wait. nil hears nothing.
	told func(why cause, streak int, detail string)
}

// cause says why a road or an account is closed.
type cause string

const (
	causeNone    cause = ""
	causeTrouble cause = "trouble" // WeChat does not answer, or with errors of its own
	causeFast    cause = "too_fast"
	causeQuota   cause = "quota"
	causeStop    cause = "stopped" // a person must change something
)

// The pauses of a closed road double from first to last.
var pauses = map[cause]struct{ first, last time.Duration }{
	causeTrouble: {time.Second, 30 * time.Second},
	causeFast:    {5 * time.Second, time.Minute},
	causeStop:    {30 * time.Second, 10 * time.Minute},
}

// lookAgain is how long to wait while somebody else's probe is out.
const lookAgain = 500 * time.Millisecond

// pass asks to go. wait is zero if the way is open, or if the caller is the
// probe; otherwise how long to wait before asking again. A probe must end with
// open, close or leave.
func (b *brake) pass(now time.Time) (probe bool, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = now
	switch {
	case b.why == causeNone:
		return false, 0
	case now.Before(b.until):
		return false, b.until.Sub(now)
	case b.probing:
		return false, lookAgain
	}
	b.probing = true
	return true, 0
}

// closed tells a caller that is not the probe whether the way has been closed
// since it passed.
func (b *brake) closed(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why == causeNone {
		return 0
	}
	return max(b.until.Sub(now), lookAgain)
}

// close closes the way, for pause or, if that is zero, for the cause's own
// growing pause. Failures of requests that were under way when it was closed
// change nothing. It reports whether this is news.
func (b *brake) close(now time.Time, why cause, detail string, pause time.Duration, probe bool) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why != causeNone && !probe {
		return false
	}
	news = b.why != why
	if news {
		b.streak = 0
	}
	if pause == 0 {
		p := pauses[why]
		pause = min(p.first<<min(b.streak, 20), p.last)
	}
	b.why, b.detail, b.until, b.probing = why, detail, now.Add(pause), false
	b.streak++
	if b.told != nil {
		b.told(why, b.streak, detail)
	}
	return news
}

// open opens the way after good news from a probe.
func (b *brake) open() (was cause) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was = b.why
	b.why, b.detail, b.streak, b.probing = causeNone, "", 0, false
	if was != causeNone && b.told != nil {
		b.told(causeNone, 0, "")
	}
	return was
}

// leave gives a probe's place back without news.
func (b *brake) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

// idleAfter is how long nobody asks before nobody waits. Whoever waits asks when
// the pause ends; it may be in a queue that is read again by then.
const idleAfter = time.Minute

// idle tells, as if the way were open, that its pause is over and nobody wants to
// go: there is nothing to probe with, and nobody to whom it matters. The way
// stays as it is, so the next one is a probe, and if it fails that is told.
func (b *brake) idle(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why == causeNone || b.probing || b.told == nil || now.Sub(b.until) < idleAfter || now.Sub(b.asked) < idleAfter {
		return
	}
	b.told(causeNone, 0, "")
}

// state is the cause and its detail, for metrics and people.
func (b *brake) state() (cause, string, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.why, b.detail, b.until
}
