package ratelimit

import (
	"math/big"
	"math/bits"
	"time"
)

// instant is a point of time, or a span, in nanoseconds and 1/num of them, so
// that thousands of steps of 58,881,256.13… ns add up without drift.
type instant struct{ ns, part int64 }

func (a instant) after(b instant) bool {
	return a.ns > b.ns || a.ns == b.ns && a.part > b.part
}

// gcra decides when the next permit may be taken. It has no clock and no lock:
// callers pass the time in nanoseconds since some beginning.
type gcra struct {
	num, per int64   // num permits in per nanoseconds; num 0 means no limit
	step     instant // per/num
	slack    instant // (burst-1) steps
	burst    int64
	tat      instant // the theoretical time of the next permit
}

// newGCRA makes the decider for a valid limit, empty or full at time now.
func newGCRA(l Limit, now int64) gcra {
	g := gcra{burst: max(int64(l.Burst), 1)}
	if l.Rate == 0 {
		return g
	}
	num, den := fraction(l.Rate)
	g.num, g.per = num, den*int64(time.Second)
	g.step = g.steps(1)
	g.slack = g.steps(uint64(g.burst - 1))
	g.tat = instant{ns: now}
	if !l.StartFull {
		g.tat = g.add(g.add(g.tat, g.slack), g.step)
	}
	return g
}

// steps is n×per/num, exactly.
func (g *gcra) steps(n uint64) instant {
	hi, lo := bits.Mul64(n, uint64(g.per))
	q, r := bits.Div64(hi, lo, uint64(g.num))
	return instant{int64(q), int64(r)}
}

func (g *gcra) add(a, b instant) instant {
	s := instant{a.ns + b.ns, a.part + b.part}
	if s.part >= g.num {
		s.ns, s.part = s.ns+1, s.part-g.num
	}
	return s
}

// wait is the time until a permit may be taken; 0 means now.
func (g *gcra) wait(now int64) time.Duration {
	if g.num == 0 {
		return 0
	}
	limit := g.add(instant{ns: now}, g.slack)
	if !g.tat.after(limit) {
		return 0
	}
	d := g.tat.ns - limit.ns
	if g.tat.part > limit.part {
		d++ // round up: early would be too many
	}
	return time.Duration(d)
}

// take counts one permit. Only allowed when wait is 0.
func (g *gcra) take(now int64) {
	if g.num == 0 {
		return
	}
	if at := (instant{ns: now}); at.after(g.tat) {
		g.tat = at
	}
	g.tat = g.add(g.tat, g.step)
}

// change gives the decider for a new limit. What was saved up is kept as far as
// the new burst allows and nothing is added, so over a change of limits a window
// holds at most the sum of both rates' parts plus the larger burst.
func (g *gcra) change(l Limit, now int64) gcra {
	next := newGCRA(Limit{Rate: l.Rate, Burst: l.Burst}, now)
	if next.num == 0 || g.num == 0 {
		return next // from "no limit" nothing is known: start without burst
	}
	// Permits missing from a full burst: (tat-now) × num / per, exactly.
	used := new(big.Rat)
	if g.tat.ns >= now {
		owed := new(big.Int).Mul(big.NewInt(g.tat.ns-now), big.NewInt(g.num))
		owed.Add(owed, big.NewInt(g.tat.part))
		used.SetFrac(owed, big.NewInt(g.per))
	}
	used.Add(used, new(big.Rat).SetInt64(next.burst-g.burst))
	if used.Sign() < 0 {
		used.SetInt64(0) // the smaller burst is full
	}
	span := used.Mul(used, big.NewRat(next.per, next.num))
	ns := new(big.Int).Quo(span.Num(), span.Denom())
	if !span.IsInt() {
		ns.Add(ns, big.NewInt(1)) // round up: early would be too many
	}
	next.tat = instant{ns: now + ns.Int64()}
	return next
}
