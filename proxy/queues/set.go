package queues

import (
	"slices"
	"time"

	"tidegate/pkg/kafka"
)

// set is one queue with its partitions.
type set struct {
	queue      Queue
	limits     Limits
	window     time.Duration
	partitions []*partition // by number
	bench      bench
	err        error // why the last survey could not measure it
}

func newSet(q Queue, c Config) *set {
	s := &set{queue: q, limits: c.Limits, window: c.Window}
	if q.Bulk {
		s.limits = c.Bulk
	}
	return s
}

// take adds what a survey has measured. A partition that is missing in it keeps
// what was known.
func (s *set) take(st kafka.Standing, now time.Time) {
	s.err = st.Err
	for _, l := range st.Lags {
		if l.Topic == s.queue.Topic {
			s.partition(l.Partition, now).take(l, now)
		}
	}
}

func (s *set) partition(n int32, now time.Time) *partition {
	i, there := slices.BinarySearchFunc(s.partitions, n, func(p *partition, n int32) int { return int(p.lag.Partition - n) })
	if there {
		return s.partitions[i]
	}
	p := &partition{history: history{window: s.window}, unread: -1}
	p.verdict, p.since, p.status, p.lag.Partition = Fine, now, Unknown, n
	s.partitions = slices.Insert(s.partitions, i, p)
	s.bench.seats = slices.Insert(s.bench.seats, i, &p.seat)
	return p
}

// hold notes who holds what; ok is false where nobody could tell.
func (s *set) hold(o kafka.Owners, ok bool) {
	for _, p := range s.partitions {
		p.owner = o[s.queue.Topic][p.lag.Partition]
		switch {
		case !ok:
			p.holder = holderUnknown
		case p.owner == "":
			p.holder = holderNone
		default:
			p.holder = holderSomebody
		}
	}
}

// judge settles everything after a survey.
func (s *set) judge(c Config, topic kafka.TopicInfo, now time.Time) {
	s.drop(topic, now)
	if s.err != nil {
		return
	}
	for _, p := range s.partitions {
		p.unseen = now.Sub(p.seen) >= s.window
		if p.seen.Equal(now) {
			p.judge(now, s.limits, topic.Retention)
		}
	}
	s.bench.check(s.limits, c.DepthMode, now)
}

// drop forgets partitions that the topic has not any more: it was deleted, or
// made anew with fewer of them. The window is for brokers that have not heard of
// a change yet. A partition that is there and cannot be measured has no leader:
// what waits in it still waits, so its alarms stay.
func (s *set) drop(topic kafka.TopicInfo, now time.Time) {
	for i := len(s.partitions) - 1; i >= 0; i-- {
		p := s.partitions[i]
		there := topic.Exists && p.lag.Partition < topic.Partitions
		if !there && now.Sub(p.seen) >= s.window {
			s.partitions = slices.Delete(s.partitions, i, i+1)
			s.bench.seats = slices.Delete(s.bench.seats, i, i+1)
		}
	}
}

// totals of a queue.
type totals struct {
	lag     int64
	age     time.Duration
	aged    bool
	in, out float64
	able    float64
	drain   time.Duration // of the partition that takes longest
	drained bool          // drain is known
}

func (s *set) totals() totals {
	t := totals{aged: true, drained: true}
	for _, p := range s.partitions {
		t.lag += p.lag.Lag
		t.in += p.in.perSecond
		t.out += p.out.perSecond
		t.able += p.able.perSecond
		if !p.aged {
			t.aged = false
		}
		t.age = max(t.age, p.age)
		d, ok := p.drain(0)
		if !ok {
			t.drained = false
		}
		t.drain = max(t.drain, d)
	}
	return t
}
