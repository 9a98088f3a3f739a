package slice

import "time"

// SetClock replaces the server's clock.
func (c *Counters) SetClock(now func() time.Time) { c.clock = now }
