package queues

import (
	"time"

	"tidegate/pkg/kafka"
)

// partition is everything that is remembered about one partition of one queue.
type partition struct {
	seat
	history history
	ends    timeline

	lag kafka.Lag
	// unread is the oldest record that the group has not committed, kept while
	// Kafka has no committed offset of it: what the log then loses from there on
	// was skipped. It is known from the first look of this process on only; -1 is
	// not known.
	unread  int64
	lost    int64     // the last number of skipped records that was not 0
	seen    time.Time // when lag was measured
	in, out speed
	// able is how fast it is worked while there is something to do, which is what
	// a wait depends on: out is small at night because little comes.
	able speed
	// worked is for how long able was measured, in one piece, under a backlog.
	worked time.Duration
	age    time.Duration
	aged   bool // age is known
	holder holder
	owner  string

	old, expiring, skipped gate
}

// busyAge is the age of the head from which on a partition has a backlog. Below
// it, waiting records may be finished and only not committed yet: groups commit
// once a second.
const busyAge = 3 * time.Second

// take adds a measurement.
func (p *partition) take(l kafka.Lag, now time.Time) {
	l.Skipped = p.skippedOf(l)
	s := sample{at: now, committed: l.Committed, start: l.Start, end: l.End}
	if prev, ok := p.history.last(); ok && now.After(prev.at) {
		p.measure(prev, s)
	}
	p.history.add(s)
	p.ends.saw(l.End, now)
	p.ends.passed(s.position())
	p.lag, p.seen = l, now
}

// skippedOf counts the records that retention deleted unread, also those of a
// group that never committed: for Kafka it skipped nothing, but the first start
// that this process saw tells what was there. What was deleted before that look
// cannot be known.
func (p *partition) skippedOf(l kafka.Lag) int64 {
	prev, seen := p.history.last()
	switch {
	case l.Committed >= 0:
		p.unread = -1
		p.note(l.Skipped)
		return l.Skipped
	case seen && l.End < prev.end: // another log under the same name
		p.unread = l.Start
	case p.unread < 0 && seen && prev.committed >= 0: // its offsets were deleted or expired
		p.unread = prev.committed
	case p.unread < 0:
		p.unread = l.Start
	}
	skipped := max(0, l.Start-p.unread)
	p.note(skipped)
	return skipped
}

func (p *partition) note(skipped int64) {
	if skipped > 0 {
		p.lost = skipped
	}
}

func (p *partition) measure(prev, s sample) {
	took := s.at.Sub(prev.at)
	if n := s.end - prev.end; n >= 0 {
		p.in.add(n, took)
	}
	done := s.committed - max(prev.committed, prev.start)
	if s.committed < 0 || prev.committed >= 0 && s.committed < prev.committed {
		return // it went back: that is no speed
	}
	done = max(done, 0)
	p.out.add(done, took)
	p.learn(done, took, s.lag() == 0)
}

// learn takes in how fast the partition is worked. What a robot does that has
// little to do, or nothing, is not what it can do: able and worked begin anew
// where the position stands still, and worked with every idle moment.
func (p *partition) learn(done int64, took time.Duration, idle bool) {
	busy := p.age >= busyAge
	switch {
	case busy && done == 0 && !p.history.moving():
		p.able, p.worked = speed{}, 0
	case busy:
		p.able.add(done, took)
		p.worked += took
	default:
		p.able.raise(done, took)
	}
	if idle {
		p.worked = 0
	}
}

// sure tells that able is known well enough to tell a follower how long to wait:
// after half a window of work, at most three and at least two times the
// smoothing. Before, it still rises from what little was done, and the wait would
// be far too long.
func (p *partition) sure() bool {
	return p.worked >= max(min(p.history.window/2, 3*smoothing), 2*smoothing)
}

// judge settles status and age, once the times that were missing are found.
func (p *partition) judge(now time.Time, l Limits, retention time.Duration) {
	p.status = p.history.judge(p.holder)
	p.early = !p.history.stood()
	p.depth, p.moving = p.lag.Lag, p.history.moving()
	p.age, p.aged = p.headAge(now)
	age := p.age.Seconds()
	p.old.value(age, l.WarnAge.Seconds(), enterChecks, leaveChecks)
	p.expiring.value(age, retention.Seconds()/2, enterChecks, leaveChecks)
	p.skipped.step(p.lag.Skipped > 0, p.lag.Skipped == 0, 1, leaveChecks)
}

func (p *partition) headAge(now time.Time) (time.Duration, bool) {
	if p.lag.Lag == 0 {
		return 0, true
	}
	at, _, ok := p.ends.written(p.head())
	if !ok {
		return 0, false
	}
	return max(0, now.Sub(at)), true
}

func (p *partition) head() int64 { return max(p.lag.Committed, p.lag.Start) }

// vague tells that the age of the head is not known closely enough, so that the
// brokers should search it.
func (p *partition) vague(now time.Time, poll time.Duration) bool {
	if p.lag.Lag == 0 {
		return false
	}
	at, width, ok := p.ends.written(p.head())
	return !ok || width > max(5*time.Second, 3*poll, now.Sub(at)/10)
}

// drain is how long the partition takes with more records before its end; ok is
// false where nobody holds it, where nothing moves or nothing is known.
func (p *partition) drain(more int64) (time.Duration, bool) {
	n := p.lag.Lag + more
	if n > 0 && (p.holder == holderNone || p.history.stood()) {
		return 0, false
	}
	return p.able.drain(n)
}
