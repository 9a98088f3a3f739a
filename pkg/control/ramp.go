package control

import (
	"math"
	"time"
)

// openFrom is how far above its old rate a limit is led before it is taken away
// altogether: there is no straight line to infinity.
const openFrom = 10

// ramp leads a limit from one value to another. Rate and concurrency each for
// itself: what falls holds at once, what rises follows a straight line. A burst
// is small against what flows, so it holds at once.
type ramp struct {
	from, to Limit
	began    time.Time
	over     time.Duration
}

// at is the limit at a moment; done says that it is the target.
func (r ramp) at(now time.Time) (l Limit, done bool) {
	share := 1.0
	if r.over > 0 {
		share = min(1, max(0, float64(now.Sub(r.began))/float64(r.over)))
	}
	if share == 1 {
		return r.to, true
	}
	l = Limit{
		Rate:        math.Round(rising(r.from.Rate, r.to.Rate, share)*1000) / 1000,
		Burst:       r.to.Burst,
		Concurrency: int(rising(float64(r.from.Concurrency), float64(r.to.Concurrency), share)),
	}
	if l.Rate == 0 && r.to.Rate > 0 { // rounded away, which would mean no cap
		l.Rate = min(r.to.Rate, minRate)
	}
	return l, l == r.to
}

// step is what a limiter is told at a moment.
func (r ramp) step(now time.Time) (s Step, done bool) {
	s.Now, done = r.at(now)
	s.Target = r.to
	if done {
		return s, true
	}
	s.Left = r.began.Add(r.over).Sub(now)
	if r.to.Rate == 0 && r.from.Rate > 0 {
		s.Target.Rate = r.from.Rate * openFrom
	}
	return s, false
}

// rising is a point of the way from one number to another, where 0 is infinite.
func rising(from, to, share float64) float64 {
	switch {
	case from == to, from == 0, to != 0 && to < from:
		return to
	case to == 0:
		to = from * openFrom
	}
	return from + (to-from)*share
}
