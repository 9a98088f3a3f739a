package kafka

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/zap"
)

// open takes a partition under management.
func (s *scheduler) open(base context.Context, sess sarama.ConsumerGroupSession, src sarama.ConsumerGroupClaim, pause, resume func()) *claim {
	c := &claim{
		topic: src.Topic(), partition: src.Partition(), session: sess, source: src,
		lanes: make(map[laneKey]*lane), low: max(src.InitialOffset(), -1), idle: make(chan struct{}),
		flow: flow{pause: pause, resume: resume}, processed: s.met.processed.WithLabelValues(s.met.group, src.Topic()),
	}
	c.ctx, c.cancel = context.WithCancel(base)
	c.open, c.shut = context.WithCancel(c.ctx)
	resume() // sarama remembers a pause over sessions
	s.mu.Lock()
	s.claims[c] = struct{}{}
	s.mu.Unlock()
	return c
}

// push takes one fetched record. It never blocks; the bound is kept by pausing
// the fetch.
func (s *scheduler) push(c *claim, r Record) {
	it := &item{rec: r, size: r.size(), at: time.Now()}
	s.mu.Lock()
	if c.low < 0 {
		c.low = r.Offset
	}
	c.pending.push(it)
	c.waiting++
	c.bytes += it.size
	s.admit(c)
	change := s.wantsPause(c) != c.paused
	s.mu.Unlock()
	if change {
		s.regulate(c)
	}
}

// cutOff ends, at once, the context of everything that runs in the partitions of
// these calls, or in all partitions for nil. Nothing new of them is begun.
func (s *scheduler) cutOff(calls []*call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.claims {
		if calls == nil || slices.ContainsFunc(calls, func(o *call) bool { return o.claim == c }) {
			c.cutOff = true
			c.cancel()
			s.stopBeginning(c)
		}
	}
}

// drain stops beginning records of a partition, but for those that close holes,
// and waits for what runs; after the time-out it ends their context, and after a
// grace gives up on them. Then everything that finished is marked.
func (s *scheduler) drain(c *claim, timeout time.Duration) {
	s.mu.Lock()
	if c.cutOff {
		timeout = 0
	}
	if timeout > 0 {
		s.closeHoles(c)
	} else {
		s.stopBeginning(c)
	}
	s.mu.Unlock()
	if timeout > 0 && !waitFor(c.idle, timeout/holesShare) {
		s.mu.Lock()
		s.stopBeginning(c)
		s.mu.Unlock()
	}
	if timeout > 0 && !waitFor(c.idle, timeout-timeout/holesShare) {
		s.log.Warn("handlers still run at the drain deadline, ending their context",
			zap.String("topic", c.topic), zap.Int32("partition", c.partition))
	}
	c.cancel()
	if !waitFor(c.idle, drainGrace) {
		s.abandon(c)
	}
	s.mu.Lock()
	c.gone = true
	s.met.held.Sub(float64(c.stuckLanes))
	delete(s.claims, c)
	s.mu.Unlock()
	c.flow.close()
	s.met.queue.DeleteLabelValues(s.met.group, c.topic, strconv.Itoa(int(c.partition)))
}

// stopBeginning is called with the lock.
func (s *scheduler) stopBeginning(c *claim) {
	c.shut()
	s.stopTimers(c)
	s.shorten(c, -1)
	c.rest()
}

func (s *scheduler) stopTimers(c *claim) {
	c.draining = true
	for _, l := range c.lanes {
		if l.timer != nil {
			l.timer.Stop()
		}
	}
}

func (s *scheduler) abandon(c *claim) {
	s.mu.Lock()
	n := c.inFlight
	s.mu.Unlock()
	s.met.stuck.WithLabelValues(s.met.group, c.topic).Add(float64(n))
	s.log.Error("handlers ignore the end of their context, giving the partition up without them",
		zap.String("topic", c.topic), zap.Int32("partition", c.partition), zap.Int("handlers", n))
}

// waitFor tells whether ch was closed within d.
func waitFor(ch <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ch:
		return true
	case <-t.C:
		select { // both were ready: being done counts
		case <-ch:
			return true
		default:
			return false
		}
	}
}

func (s *scheduler) stats() []PartitionStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]PartitionStats, 0, len(s.claims))
	for c := range s.claims {
		p := PartitionStats{
			Topic: c.topic, Partition: c.partition, Queued: c.waiting, InFlight: c.inFlight, HeldKeys: c.stuckLanes,
			LowWater: c.low, End: c.source.HighWaterMarkOffset(), Paused: c.paused,
		}
		if c.window.len() > 0 {
			p.Oldest = time.Since(c.window.front().at)
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b PartitionStats) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

// publishGauges refreshes the queue gauges; Run calls it every second.
func (s *scheduler) publishGauges() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.claims {
		s.met.queue.WithLabelValues(s.met.group, c.topic, strconv.Itoa(int(c.partition))).
			Set(float64(c.waiting + c.inFlight))
	}
}
