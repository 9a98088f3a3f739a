package queues

import "time"

// Status says how a partition is worked, from the window alone.
type Status string

// The statuses. Burrow's names, but for its "warning", which is Slow here.
const (
	Unknown Status = "unknown" // not measured yet
	OK      Status = "ok"
	Slow    Status = "slow"   // it moves, but what waits never becomes less
	Stall   Status = "stall"  // somebody holds it, and its position does not move
	Stop    Status = "stop"   // nobody holds it
	Rewind  Status = "rewind" // its position went back and has not caught up again
)

// stuck tells that nobody works the partition.
func (s Status) stuck() bool { return s == Stall || s == Stop }

// holder is what is known about who holds a partition.
type holder uint8

const (
	holderUnknown holder = iota
	holderNone
	holderSomebody
)

// sample is one measurement.
type sample struct {
	at                    time.Time
	committed, start, end int64
}

// position is the next record that will be worked.
func (s sample) position() int64 { return max(s.committed, s.start) }

func (s sample) lag() int64 { return max(0, s.end-s.position()) }

// history is the window: samples in the order of time, the first of them at or
// before its beginning once it is full.
type history struct {
	window  time.Duration
	samples []sample
}

func (h *history) last() (sample, bool) {
	if len(h.samples) == 0 {
		return sample{}, false
	}
	return h.samples[len(h.samples)-1], true
}

// add takes the next measurement. After a gap – the queue was away, so nobody
// could commit – and after a topic was made anew the window begins again.
func (h *history) add(s sample) {
	if prev, ok := h.last(); ok {
		if !s.at.After(prev.at) {
			return
		}
		if s.at.Sub(prev.at) > h.window/2 || s.end < prev.end {
			h.samples = h.samples[:0]
		}
	}
	drop := 0
	for drop+1 < len(h.samples) && s.at.Sub(h.samples[drop+1].at) >= h.window {
		drop++
	}
	h.samples = append(h.samples[:0], h.samples[drop:]...)
	h.samples = append(h.samples, s)
}

// full tells that the window is known from its beginning.
func (h *history) full() bool {
	last, ok := h.last()
	return ok && last.at.Sub(h.samples[0].at) >= h.window
}

// moved tells that something was committed in the window.
func (h *history) moved() bool {
	last, ok := h.last()
	return ok && last.committed > h.samples[0].committed
}

// moving tells that something was committed lately: within a third of the
// window.
func (h *history) moving() bool {
	last, ok := h.last()
	if !ok {
		return false
	}
	for i := len(h.samples) - 2; i >= 0; i-- {
		if last.committed > h.samples[i].committed {
			return true
		}
		if last.at.Sub(h.samples[i].at) >= h.window/3 {
			return false
		}
	}
	return false
}

// judge applies Burrow's rules, in this order: a position that went back; a
// partition that nobody holds, which needs no window to be known; a queue that was empty at any moment of the window, where nothing can have
// waited for longer than it; a window that is not full yet; a position that does
// not move; a lag that never falls.
//
// Burrow reads commits one by one and so tells a commit that repeats its offset
// (stall) from no commit at all (stop). Positions that are polled look the same
// in both cases; whether somebody holds the partition tells them apart.
func (h *history) judge(by holder) Status {
	last, ok := h.last()
	switch {
	case !ok:
		return Unknown
	case last.lag() == 0:
		return OK
	case h.rewound():
		return Rewind
	case by == holderNone:
		return Stop
	case h.wasEmpty(), !h.full():
		return OK
	case !h.moved():
		return Stall
	case h.neverFalls():
		return Slow
	}
	return OK
}

// rewound tells that the position went back in the window and is still below
// where it was. Offsets that were deleted or expired count: the group then
// begins at the oldest record.
func (h *history) rewound() bool {
	high := int64(-1)
	for _, s := range h.samples {
		high = max(high, s.committed)
	}
	last, _ := h.last()
	return high >= 0 && last.committed < high
}

// stood tells that through the whole window something waited and nothing was
// worked. Verdicts want that: a partition is without a holder also for the
// moments in which a group deals them anew.
func (h *history) stood() bool { return h.full() && !h.moved() && !h.wasEmpty() }

func (h *history) wasEmpty() bool {
	for _, s := range h.samples {
		if s.lag() == 0 {
			return true
		}
	}
	return false
}

// neverFalls tells that the lag was never clearly below what it had been before
// in the window. Commits come once a second and polls in between, so a twentieth
// less is no fall.
func (h *history) neverFalls() bool {
	high := int64(0)
	for _, s := range h.samples {
		lag := s.lag()
		if high-lag > high/20 {
			return false
		}
		high = max(high, lag)
	}
	return true
}
