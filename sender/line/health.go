package line

import "time"

// State is how a line stands.
type State string

// The states, in the order in which lines are tried.
const (
	Up         State = "up"
	Recovering State = "recovering" // answers again, for less than the hold
	Down       State = "down"
)

// health is what is known of a line. It is no clock and does nothing; its owner
// holds the lock.
type health struct {
	hold  time.Duration
	down  bool      // since the last loss it has not answered for the hold
	since time.Time // of the present state
	good  time.Time // it answers again since then; zero while it does not
	heard time.Time // last answer
	why   string    // it was lost
}

func (h *health) state() State {
	switch {
	case !h.down:
		return Up
	case !h.good.IsZero():
		return Recovering
	}
	return Down
}

// answered notes an answer, and says whether the line is taken again.
func (h *health) answered(now time.Time) (back bool) {
	h.heard = now
	if !h.down {
		return false
	}
	if h.good.IsZero() {
		h.good, h.since = now, now
	}
	if now.Sub(h.good) < h.hold {
		return false
	}
	*h = health{hold: h.hold, heard: now, since: now}
	return true
}

// unreached notes that no connection came about, and says whether the line is
// left now. One that was recovering begins its hold anew.
func (h *health) unreached(now time.Time, why string) (left bool) {
	h.why = why
	if h.down {
		if !h.good.IsZero() {
			h.good, h.since = time.Time{}, now
		}
		return false
	}
	h.down, h.since, h.good = true, now, time.Time{}
	return true
}
