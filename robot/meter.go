package robot

import (
	"math"
	"time"

	"tidegate/robot/engine"
)

// perLevel is a number for each level.
type perLevel [engine.Levels]int

// meter measures what a line's permits let through while somebody waits for them
// without a break. Only then is the rate of permits that of the back end, and not
// that of the callers; so a new wait begins a new measurement.
//
// It is not safe for concurrent use and has no clock of its own.
type meter struct {
	since time.Duration // begin of the wait; 0 while nobody waits
	slot  int64         // of the newest slice
	taken [meterSlices]perLevel
}

const (
	meterSlice = 500 * time.Millisecond
	// The span is longer than most calls take: when a few long calls hold all
	// permits, they come back in waves.
	meterSlices = 30
	// settled is how long somebody has to wait, without a break, before the
	// measurement says anything: a burst that is over sooner is no overload.
	settled = time.Second
)

func slotOf(now time.Duration) int64 { return int64(now / meterSlice) }

// begin says that somebody waits, after nobody did.
func (m *meter) begin(now time.Duration) { *m = meter{since: now, slot: slotOf(now)} }

// end says that nobody waits any more.
func (m *meter) end() { m.since = 0 }

// permit counts one that was given to somebody of a level who waited.
func (m *meter) permit(now time.Duration, l engine.Level) {
	m.advance(now)
	m.taken[m.slot%meterSlices][l]++
}

func (m *meter) advance(now time.Duration) {
	for to := slotOf(now); m.slot < to; {
		m.slot = max(m.slot, to-meterSlices) + 1
		m.taken[m.slot%meterSlices] = perLevel{}
	}
}

// wait is how long somebody of a level will wait who comes behind those who wait
// now. Those of more urgent levels go first at the rate of all permits; those of
// its own level get what is left over by the more urgent ones that keep coming.
// Whoever is less urgent does not wait for less time than who is more so. Where
// permits were given and none to a level or one below, one is assumed: it is known
// that it takes at least that long.
//
// Long calls give their permits back in waves. So neither a present gap counts nor
// the slices in which a wave may be under way: of the measurements up to the last
// slice and up to the one before it the kinder one holds. ok is false while
// nothing can be told. Who waits for too long all the same leaves by himself.
func (m *meter) wait(now time.Duration, waiting perLevel, level engine.Level) (d time.Duration, ok bool) {
	if m.since == 0 || now-m.since < settled {
		return 0, false
	}
	m.advance(now)
	d = math.MaxInt64
	for back := range int64(2) {
		given, all, span := m.count(m.slot - 1 - back)
		if all == 0 {
			return 0, false
		}
		d = min(d, behind(waiting[:level+1], given, all, span))
	}
	return d, true
}

// behind is how long the last of those who wait will wait, by the permits of a span.
func behind(waiting []int, given perLevel, all int, span time.Duration) (d time.Duration) {
	before, left := 0, all
	for l, n := range waiting {
		if n > 0 || before > 0 {
			wait := float64(span) * (float64(before)/float64(all) + float64(n)/float64(max(left, 1)))
			d = max(d, time.Duration(wait))
		}
		before += n
		left -= given[l]
	}
	return d
}

// count sums the permits of the slices up to one, and gives the span that they
// were given in.
func (m *meter) count(upTo int64) (given perLevel, all int, span time.Duration) {
	last := int64(-1)
	for s := max(m.slot-meterSlices+1, slotOf(m.since)); s <= upTo; s++ {
		for l, n := range m.taken[s%meterSlices] {
			if n > 0 {
				given[l] += n
				all += n
				last = s
			}
		}
	}
	from := max(m.since, time.Duration(m.slot-meterSlices+1)*meterSlice)
	return given, all, max(time.Duration(last+1)*meterSlice-from, meterSlice)
}
