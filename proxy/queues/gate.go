package queues

// Checks before a condition is believed, and before its end is.
const (
	enterChecks = 2
	leaveChecks = 3
	stuckChecks = 3 // M7, corrected: no progress for three checks
)

// leaveShare is the share of a threshold below which a state may end.
const leaveShare = 0.8

// gate turns something that flickers into a state: it opens after some checks
// over a threshold and closes after some below 80 % of it.
type gate struct {
	open bool
	run  int
}

// step takes one check. over and under are never both true; neither means that
// the value is between the two marks.
func (g *gate) step(over, under bool, enter, leave int) {
	turning := over && !g.open || under && g.open
	if !turning {
		g.run = 0
		return
	}
	g.run++
	if g.open && g.run >= leave || !g.open && g.run >= enter {
		g.open, g.run = !g.open, 0
	}
}

// value is step for something that is measured; a threshold of 0 is none.
func (g *gate) value(v, threshold float64, enter, leave int) {
	if threshold <= 0 {
		g.open, g.run = false, 0
		return
	}
	g.step(v > threshold, v < leaveShare*threshold, enter, leave)
}
