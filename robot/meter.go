package robot

import (
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
	meterSlice  = 500 * time.Millisecond
	meterSlices = 10
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
// Whoever is less urgent does not wait for less time than who is more so. ok is
// false while the measurement is too short to tell. Where no permit was given, one
// is assumed: it is known that it takes at least that long.
func (m *meter) wait(now time.Duration, waiting perLevel, level engine.Level) (d time.Duration, ok bool) {
	if m.since == 0 || now-m.since < settled {
		return 0, false
	}
	m.advance(now)
	var given perLevel
	all := 0
	for _, t := range m.taken {
		for l, n := range t {
			given[l] += n
			all += n
		}
	}
	oldest := time.Duration(m.slot-meterSlices+1) * meterSlice
	span := float64(now - max(m.since, oldest))
	before, left := 0, all
	for l, n := range waiting[:level+1] {
		if n > 0 || before > 0 {
			wait := span * (float64(before)/float64(max(all, 1)) + float64(n)/float64(max(left, 1)))
			d = max(d, time.Duration(wait))
		}
		before += n
		left -= given[l]
	}
	return d, true
}
