package queues

import (
	"math"
	"slices"
	"time"
)

// Verdict says what operations should think of a partition.
type Verdict string

// The verdicts.
const (
	Fine     Verdict = "ok"
	Deep     Verdict = "deep"     // above warn_depth
	Laggard  Verdict = "slow"     // above max_depth and worked, while the others are well below
	Faulty   Verdict = "faulty"   // above max_depth and not worked
	Overload Verdict = "overload" // above max_depth together with more than half of the others
)

// seat is what the verdict of one partition rests on, and the verdict.
type seat struct {
	depth  int64
	status Status
	moving bool // something of it was worked lately
	early  bool // the status is known sooner than the window proves it, and counts for no verdict yet
	unseen bool // for a window: the rest of the seat is old

	over  gate // above max_depth; closes below 80 % of it
	deep  gate // above warn_depth
	stuck int  // checks in a row without progress
	apart int  // checks in a row in which it alone was slow
	calm  int  // checks in a row below 80 % of max_depth

	verdict Verdict
	since   time.Time
}

// bench is the partitions of one queue, judged together.
type bench struct {
	seats    []*seat
	overload gate
}

// check gives every seat its verdict. M7 alone – above the maximum the robot
// counts as failed – would call all robots failed when it is the back ends that
// are slow. So: faulty needs a position that does not move, slow needs others
// that do better, and when more than half exceed the maximum it is an overload
// and nobody is called either. A seat that was not measured for long keeps its
// verdict and says nothing about the others.
func (b *bench) check(l Limits, mode string, now time.Time) {
	n, exceed := 0, 0
	for _, s := range b.seats {
		if s.unseen {
			continue
		}
		s.count(l)
		n++
		if s.over.open {
			exceed++
		}
	}
	if n == 0 && len(b.seats) > 0 {
		return
	}
	many := n > 1 && 2*exceed > n && mode != Paper
	b.overload.step(many, !many, enterChecks, leaveChecks)
	for i, s := range b.seats {
		if !s.unseen {
			s.turn(b.next(i, l, mode), now)
		}
	}
}

func (s *seat) count(l Limits) {
	s.over.value(float64(s.depth), float64(l.MaxDepth), 1, 1)
	s.deep.value(float64(s.depth), float64(l.WarnDepth), enterChecks, leaveChecks)
	count(&s.stuck, s.status.stuck() && !s.early)
	count(&s.calm, float64(s.depth) < leaveShare*float64(l.MaxDepth))
}

func count(n *int, more bool) {
	if more {
		*n++
		return
	}
	*n = 0
}

func (s *seat) turn(v Verdict, now time.Time) {
	if v != s.verdict {
		s.verdict, s.since = v, now
	}
}

func (b *bench) next(i int, l Limits, mode string) Verdict {
	s := b.seats[i]
	otherwise := Fine
	if s.deep.open {
		otherwise = Deep
	}
	if mode == Paper {
		if s.depth > l.MaxDepth {
			return Faulty
		}
		return otherwise
	}
	count(&s.apart, s.over.open && s.moving && b.median(i) < (l.MaxDepth+1)/2)
	held := s.calm < leaveChecks // a verdict ends only below 80 %, after several checks
	switch {
	case b.overload.open && s.over.open:
		return Overload
	case s.over.open && s.stuck >= stuckChecks, s.verdict == Faulty && held:
		return Faulty
	case s.over.open && s.apart >= stuckChecks, s.verdict == Laggard && held:
		return Laggard
	}
	return otherwise
}

// median is that of the depths of the other partitions; alone there is nobody
// to be slower than.
func (b *bench) median(except int) int64 {
	depths := make([]int64, 0, len(b.seats))
	for i, s := range b.seats {
		if i != except && !s.unseen {
			depths = append(depths, s.depth)
		}
	}
	if len(depths) == 0 {
		return math.MaxInt64
	}
	slices.Sort(depths)
	return depths[len(depths)/2]
}
