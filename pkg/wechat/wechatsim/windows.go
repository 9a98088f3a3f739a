package wechatsim

import (
	"slices"
	"time"
)

// allowance is how many customer-service messages a user's acts allow, and
// until when.
//
// By the mini-program page allowances do not add up: a new act raises count and
// expiry to the larger value, so there is one grant. The other reading keeps a
// grant per kind of act and uses the one that ends first.
type allowance struct {
	separate bool
	grants   []grant
}

type grant struct {
	kind  string
	left  int
	until time.Time
}

// grant notes an act that allows w.
func (a *allowance) grant(kind string, w Window, now time.Time) {
	a.expire(now)
	if !a.separate {
		kind = ""
	}
	i := slices.IndexFunc(a.grants, func(g grant) bool { return g.kind == kind })
	if i < 0 {
		a.grants = append(a.grants, grant{kind: kind})
		i = len(a.grants) - 1
	}
	g := &a.grants[i]
	g.left = max(g.left, w.Count)
	if until := now.Add(w.Life); until.After(g.until) {
		g.until = until
	}
}

// use takes one message. It returns 0, or 45015 when no window is open, or
// 45047 when the open ones are used up.
func (a *allowance) use(now time.Time) int {
	a.expire(now)
	if len(a.grants) == 0 {
		return errOutOfWindow
	}
	best := -1
	for i, g := range a.grants {
		if g.left > 0 && (best < 0 || g.until.Before(a.grants[best].until)) {
			best = i
		}
	}
	if best < 0 {
		return errCountUsedUp
	}
	a.grants[best].left--
	return 0
}

func (a *allowance) expire(now time.Time) {
	a.grants = slices.DeleteFunc(a.grants, func(g grant) bool { return !now.Before(g.until) })
}
