package drive

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"tidegate/test/chaos/history"
)

// Phase is what happened to the deliveries that ended in a part of a run.
type Phase struct {
	Name  string
	Acked int64
	// Refused are 503s. Malformed are other answers. Silent are deliveries without
	// an answer, Unreached those that no door took. None of them is an ack.
	Refused, Malformed, Silent, Unreached int64
	// Late are acks beyond WeChat's patience.
	Late int64
	Bad  string // the first answer that was none of G2's

	took   []time.Duration // of answers, from when they were due
	sorted bool
}

// Begin starts a phase; the one before it ends.
func (d *Driver) Begin(name string) *Phase {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.phase = &Phase{Name: name}
	d.all = append(d.all, d.phase)
	return d.phase
}

// Phases gives a copy of them, without those in which nothing was delivered.
func (d *Driver) Phases() []Phase {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Phase
	for _, p := range d.all {
		c := *p
		if c.Deliveries() > 0 {
			c.took = slices.Clone(p.took)
			slices.Sort(c.took)
			c.sorted = true
			out = append(out, c)
		}
	}
	return out
}

// Delivered counts deliveries that have ended, of all phases.
func (d *Driver) Delivered() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var n int64
	for _, p := range d.all {
		n += p.Deliveries()
	}
	return n
}

// Acked counts deliveries that were acknowledged in time, of all phases.
func (d *Driver) Acked() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var n int64
	for _, p := range d.all {
		n += p.Acked
	}
	return n
}

func (d *Driver) count(a Answer, e history.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.phase
	switch {
	case a.Acked:
		p.Acked++
	case e.Kind == history.OK:
		p.Late++
	case a.Class == history.Refused:
		p.Refused++
	case a.Class == history.Malformed:
		p.Malformed++
	case e.Kind == history.Fail:
		p.Unreached++
	default:
		p.Silent++
	}
	if !a.Acked && p.Bad == "" {
		p.Bad = cmp.Or(e.Text, "an ack after "+a.Took.String())
	}
	if a.Class != history.None {
		p.took = append(p.took, a.Took)
	}
}

// Deliveries is the number of those that ended in the phase.
func (p *Phase) Deliveries() int64 { return p.Acked + p.NotAcked() }

// NotAcked is the number of those that were no ack.
func (p *Phase) NotAcked() int64 { return p.Late + p.Refused + p.Malformed + p.Silent + p.Unreached }

// Quantile of the answers' times; 1 is the worst. Only of a copy.
func (p *Phase) Quantile(q float64) time.Duration {
	if len(p.took) == 0 || !p.sorted {
		return 0
	}
	return p.took[min(int(q*float64(len(p.took))), len(p.took)-1)]
}

// Over counts answers that took at least d.
func (p *Phase) Over(d time.Duration) int {
	n := 0
	for _, t := range p.took {
		if t >= d {
			n++
		}
	}
	return n
}

// String is a line of a table.
func (p *Phase) String() string {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return fmt.Sprintf("%-34s %7d acked %5d refused %3d malformed %3d silent %3d unreached  p50 %6.1f ms  p99 %7.1f ms  worst %7.1f ms",
		p.Name, p.Acked, p.Refused, p.Malformed, p.Silent, p.Unreached, ms(p.Quantile(0.5)), ms(p.Quantile(0.99)), ms(p.Quantile(1)))
}
