package wechatsim

import (
	"sync"
	"time"
)

// Clock is business time: message times, windows, token lives, quotas.
type Clock interface{ Now() time.Time }

// ShiftClock is the machine's clock plus an offset, so that 48 hours can pass
// at once. Its zero value shows the machine's time.
type ShiftClock struct {
	mu     sync.Mutex
	offset time.Duration
}

// Now returns the shifted time.
func (c *ShiftClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

// Advance moves the clock by d, which may be negative.
func (c *ShiftClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

// beijing is the zone whose midnight resets daily quotas.
var beijing = time.FixedZone("UTC+8", 8*3600)

// dayOf names the quota day of t.
func dayOf(t time.Time) int {
	y, m, d := t.In(beijing).Date()
	return y*10_000 + int(m)*100 + d
}

// monthOf names the quota month of t.
func monthOf(t time.Time) int { return dayOf(t) / 100 }
