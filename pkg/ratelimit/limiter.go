package ratelimit

import (
	"time"
)

// Limiter hands out permits. It is safe for concurrent use.
type Limiter struct {
	line
	now func() int64 // nanoseconds since New, by the monotonic clock

	// Guarded by the line's lock.
	limit    Limit
	version  int64
	rising   *slope // nil unless a rate is on its way up
	stepped  int64  // when the rate was last moved
	pace     gcra
	inFlight int
	granted  uint64
}

// New makes a limiter. The limit must be valid (Limit.Validate); values out of
// range are replaced by the nearest that is allowed.
func New(l Limit) *Limiter {
	l = l.clamp()
	begin := time.Now()
	n := &Limiter{
		now:   func() int64 { return int64(time.Since(begin)) },
		limit: l, pace: newGCRA(l, 0),
	}
	n.desk = n
	return n
}

// TryAcquire takes a permit if one is free now and nobody waits for it.
func (l *Limiter) TryAcquire() (release func(), ok bool) {
	if !l.TryTake() {
		return func() {}, false
	}
	return l.releaser(), true
}

// turn says how long the first in the queue has to wait; 0 means not at all.
func (l *Limiter) turn() time.Duration {
	l.rise()
	if l.limit.Concurrency > 0 && l.inFlight >= l.limit.Concurrency {
		return full
	}
	d := l.pace.wait(l.now())
	if d > 0 && l.rising != nil {
		d = min(d, l.rising.step()) // by then it goes faster
	}
	return d
}

func (l *Limiter) take() {
	l.pace.take(l.now())
	l.inFlight++
	l.granted++
}

func (l *Limiter) back() { l.inFlight-- }

// rise moves a rate that is on its way up.
func (l *Limiter) rise() {
	now := l.now()
	if l.rising == nil || now-l.stepped < int64(l.rising.step()) {
		return
	}
	at, done := l.rising.at(now)
	if done {
		l.rising = nil
	}
	l.pace, l.stepped = l.pace.change(at, now), now
}

// SetLimit changes the limit for all who wait and all who come. Permits that are
// out stay out: a lower Concurrency is reached as they come back. StartFull is
// not looked at.
func (l *Limiter) SetLimit(n Limit, how ...Change) {
	c := changed(how)
	n = n.clamp()
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.version < l.version {
		return
	}
	l.version = c.version
	now := l.now()
	from := l.limit
	if l.rising != nil {
		from, _ = l.rising.at(now)
	}
	l.limit = n
	l.rising = newSlope(from, n, now, c.ramp)
	if l.rising != nil {
		n, _ = l.rising.at(now)
	}
	l.pace, l.stepped = l.pace.change(n, now), now
	l.arm()
}

// Close sends away whoever waits. A limiter owns nothing else.
func (l *Limiter) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut()
}

// Limit is the limit in force; while a rate rises, the one that it rises to.
func (l *Limiter) Limit() Limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit
}

// Stats is the state of a cap in this process at one moment.
type Stats struct {
	Waiting  int    // callers in the queue
	InFlight int    // permits out
	Granted  uint64 // permits taken since the start
}

// Stats tells the state now.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Waiting: len(l.queue), InFlight: l.inFlight, Granted: l.granted}
}
