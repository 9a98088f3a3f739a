package kafka

import "time"

// StandStill makes the group believe that its process did nothing for so long.
func StandStill(g *Group, d time.Duration) { g.sched.watch.last.Add(-int64(d)) }
