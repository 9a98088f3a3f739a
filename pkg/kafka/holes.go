package kafka

import "math"

// holesShare is the part of the time to drain in which holes are closed: a fourth.
// The whole group may wait for it.
const holesShare = 4

// closeHoles begins the end of a partition in good order. Keys are worked side by
// side, so records may be finished that lie behind others which are not begun:
// behind a hole. Only what lies before the first hole can be committed; the next
// owner would do the rest once more. So what lies before the newest record that is
// begun is worked all the same, and nothing behind it: where work is quick, an
// orderly change of owners repeats nothing. It is called with the lock.
func (s *scheduler) closeHoles(c *claim) {
	s.stopTimers(c)
	stuck := int64(math.MaxInt64)
	for _, it := range c.window.s[c.window.head:] {
		if it.done {
			c.upTo = it.rec.Offset
		}
	}
	for _, l := range c.lanes {
		switch {
		case l.current == nil:
		case l.stuck && !l.queued:
			stuck = min(stuck, l.next())
		default:
			c.upTo = max(c.upTo, l.current[len(l.current)-1].rec.Offset)
		}
	}
	s.shorten(c, min(c.upTo, stuck))
	c.rest()
}

// shorten lets nothing be begun from an offset on: what lies behind a record that
// stays unfinished cannot be committed in any case. It is called with the lock.
func (s *scheduler) shorten(c *claim, upTo int64) {
	c.upTo = min(c.upTo, upTo)
	c.ready.removeIf(func(l *lane) bool {
		if l.next() < c.upTo {
			return false
		}
		l.queued = false
		return true
	})
	if c.inRing && c.ready.len() == 0 {
		c.inRing = false
		s.ring.removeIf(func(o *claim) bool { return o == c })
	}
}

// rest tells that nothing of a draining partition runs or will be begun.
func (c *claim) rest() {
	if c.draining && c.inFlight == 0 && c.ready.len() == 0 {
		closeOnce(c.idle)
	}
}

// next is the offset of the record that is, or will be, worked next.
func (l *lane) next() int64 {
	if len(l.current) > 0 {
		return l.current[0].rec.Offset
	}
	return l.waiting.front().rec.Offset
}
