package queues

import (
	"cmp"
	"slices"
	"time"
)

// maxSteps bounds a timeline. A longer one is thinned out, which costs
// closeness and not correctness.
const maxSteps = 128

// step says that a log ended at this offset from first to last: the record with
// the offset was written after last.
type step struct {
	end         int64
	first, last time.Time
	exact       bool // the record with this offset was written at last
}

// timeline remembers when a log ended where, so that the time of a record can be
// told without reading it. It is the interpolation of the Kafka lag exporter,
// with two refinements: an idle log costs one step however long it is idle, and a
// timestamp that was read is a step too.
type timeline struct{ steps []step }

// saw notes where the log ends now.
func (t *timeline) saw(end int64, now time.Time) {
	if n := len(t.steps); n > 0 {
		switch last := &t.steps[n-1]; {
		case last.end == end:
			last.last = now
			return
		case last.end > end: // another log under the same name
			t.steps = t.steps[:0]
		}
	}
	t.steps = append(t.steps, step{end: end, first: now, last: now})
	if len(t.steps) > maxSteps {
		t.thin()
	}
}

// thin drops every second step of the older half.
func (t *timeline) thin() {
	kept := t.steps[:0]
	half := len(t.steps) / 2
	for i, s := range t.steps {
		if i == 0 || i > half || i%2 == 0 {
			kept = append(kept, s)
		}
	}
	t.steps = kept
}

// passed forgets what lies before a position.
func (t *timeline) passed(position int64) {
	drop := 0
	for drop+1 < len(t.steps) && t.steps[drop+1].end <= position {
		drop++
	}
	t.steps = slices.Delete(t.steps, 0, drop)
}

// read takes a record's own timestamp in. Another machine's clock wrote it: it
// is kept between its neighbours.
func (t *timeline) read(offset int64, at time.Time) {
	i, there := t.find(offset)
	switch {
	case i >= len(t.steps), there && i+1 == len(t.steps): // no such record
	case there:
		s := &t.steps[i]
		s.last, s.exact = between(s.last, at, t.steps[i+1].first), true
	default:
		from := at
		if i > 0 {
			from = t.steps[i-1].last
		}
		at = between(from, at, t.steps[i].first)
		t.steps = slices.Insert(t.steps, i, step{end: offset, first: at, last: at, exact: true})
		if len(t.steps) > maxSteps {
			t.thin()
		}
	}
}

// find gives the step at an offset, or the place where it would be.
func (t *timeline) find(offset int64) (int, bool) {
	return slices.BinarySearchFunc(t.steps, offset, func(s step, o int64) int { return cmp.Compare(s.end, o) })
}

func between(from, at, to time.Time) time.Time {
	if at.Before(from) {
		at = from
	}
	if at.After(to) {
		at = to
	}
	return at
}

// written tells when a record was written: interpolated over a time of the given
// width, or as it was read (width 0). ok is false for a record from before the
// timeline and for one that is not there yet.
func (t *timeline) written(offset int64) (at time.Time, width time.Duration, ok bool) {
	i, there := t.find(offset)
	if !there {
		i--
	}
	if i < 0 || i+1 >= len(t.steps) {
		return time.Time{}, 0, false
	}
	from, to := t.steps[i], t.steps[i+1]
	if from.exact && from.end == offset {
		return from.last, 0, true
	}
	width = max(0, to.first.Sub(from.last))
	share := float64(offset-from.end) / float64(to.end-from.end)
	return from.last.Add(time.Duration(share * float64(width))), width, true
}
