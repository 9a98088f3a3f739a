package ratelimit

import (
	"context"
	"time"
)

// Permits is a cap that callers take permits from: a Limiter, which holds for
// this process, or what a Cluster makes, which holds for all of them.
type Permits interface {
	// Acquire waits for a permit; see Limiter.Acquire.
	Acquire(ctx context.Context, priority int) (release func(), err error)
	// TryTake takes a permit if one is free now and nobody waits for it. Whoever got
	// true calls Back exactly once when its work is over. Beside Acquire it needs no
	// memory, for callers whose permits are usually there.
	TryTake() bool
	Back()
	// SetLimit changes the cap for all who wait and all who come.
	SetLimit(l Limit, how ...Change)
	// Close ends the use of the cap. Callers that wait get fault.Unavailable.
	Close()
}

// Change says how a limit is changed.
type Change func(*change)

type change struct {
	version int64
	ramp    time.Duration
}

// Version numbers a limit: the one with the highest number holds, whoever heard
// of it first, and an older one that comes late is ignored. Without it the
// number is 0. Among nodes that hold the same number the lowest limit wins.
func Version(n int64) Change { return func(c *change) { c.version = n } }

// Ramp lets a raised rate begin at the old one and reach the new one in a
// straight line over d. A lower rate holds at once.
func Ramp(d time.Duration) Change { return func(c *change) { c.ramp = d } }

func changed(how []Change) change {
	var c change
	for _, f := range how {
		f(&c)
	}
	c.ramp = max(c.ramp, 0)
	return c
}

// slope is a rate on its way up.
type slope struct {
	from, to Limit
	since    int64 // nanoseconds, by the clock of whoever holds it
	over     time.Duration
}

// newSlope is nil where nothing has to rise: from or to "no limit", or down.
func newSlope(from, to Limit, now int64, over time.Duration) *slope {
	if over <= 0 || from.Rate == 0 || to.Rate <= from.Rate {
		return nil
	}
	return &slope{from: from, to: to, since: now, over: over}
}

// at is the limit at a moment; done reports that the top is reached.
func (s *slope) at(now int64) (l Limit, done bool) {
	part := float64(now-s.since) / float64(s.over)
	if part >= 1 {
		return s.to, true
	}
	l = s.to
	l.Rate = s.from.Rate + (s.to.Rate-s.from.Rate)*max(part, 0)
	return l, false
}

// step is how often the rate is moved.
func (s *slope) step() time.Duration {
	return min(max(s.over/100, 10*time.Millisecond), time.Second)
}
