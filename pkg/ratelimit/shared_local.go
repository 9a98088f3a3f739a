package ratelimit

// share is what a node takes of a cap while Redis is away.
type share struct {
	rate   bool // whether departures are capped
	paused bool // the share is too small for one permit
	places int  // 0 if places are not capped
	pace   gcra
}

// newShare divides a cap among so many nodes, so that all of them together stay
// within it. A share of the burst or of the places below one is none: any node
// that used it could be one too many. It begins empty at now.
func newShare(l Limit, nodes int, now int64) *share {
	s := &share{rate: l.Rate > 0}
	if s.rate {
		// The last digits of the quotient must not add up to more than the whole.
		part := Limit{Rate: l.Rate / float64(nodes) * (1 - 1e-12), Burst: l.Burst / nodes}
		s.paused = part.Rate < minRate || part.Burst < 1
		if !s.paused {
			s.pace = newGCRA(part, now)
		}
	}
	if l.Concurrency > 0 {
		s.places = l.Concurrency / nodes
		s.paused = s.paused || s.places == 0
	}
	return s
}

// lower is what of two limits lets less through.
func lower(a, b Limit) Limit {
	least := func(x, y float64) float64 {
		if x == 0 || y > 0 && y < x {
			return y
		}
		return x
	}
	return Limit{
		Rate: least(a.Rate, b.Rate), Burst: min(a.Burst, b.Burst),
		Concurrency: int(least(float64(a.Concurrency), float64(b.Concurrency))),
	}
}
