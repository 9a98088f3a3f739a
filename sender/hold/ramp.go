package hold

import "time"

const (
	// calm is how long nothing of an account is due until its ramp begins anew.
	calm = 5 * time.Second
	// saved is the most that a ramp saves up, as time at its present rate: after
	// a pause of the releaser nobody gets a wave.
	saved = time.Second
)

// ramp is how fast the rows of one account go back to the queue. It has no clock
// of its own.
type ramp struct {
	began, last, busy time.Time
	credit            float64
}

// rate is what holds at a moment, in rows a second.
func (r *ramp) rate(c Config, now time.Time) float64 {
	if c.ReleaseOver <= 0 {
		return c.ReleaseTo
	}
	part := min(1, now.Sub(r.began).Seconds()/c.ReleaseOver.Seconds())
	return c.ReleaseFrom + (c.ReleaseTo-c.ReleaseFrom)*part
}

// grant gives how many rows may go now. The first one of a wave goes at once.
func (r *ramp) grant(c Config, now time.Time) int {
	if r.began.IsZero() || now.Before(r.last) {
		*r = ramp{began: now, last: now, busy: now, credit: 1}
	}
	rate := r.rate(c, now)
	r.credit = min(r.credit+rate*now.Sub(r.last).Seconds(), max(1, rate*saved.Seconds()))
	r.last = now
	return int(r.credit)
}

// took books what went. Nothing for a while ends the wave.
func (r *ramp) took(n int, now time.Time) {
	r.credit -= float64(n)
	if n > 0 {
		r.busy = now
	} else if now.Sub(r.busy) >= calm {
		*r = ramp{}
	}
}
