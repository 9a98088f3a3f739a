package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
)

// session is what sarama calls: it only pumps. One lives per Consume call.
type session struct {
	g    *Group
	cg   sarama.ConsumerGroup
	base context.Context // for handlers: the values of Run's context, not its end
}

// Setup runs once per session; with cooperative balancing that is once per
// Consume call, not once per generation.
func (h *session) Setup(s sarama.ConsumerGroupSession) error {
	h.g.inSession.Store(true)
	h.g.noteGeneration(s.GenerationID())
	h.g.resumed()
	return nil
}

// Cleanup runs when every claim has returned, before the last commit.
func (h *session) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim pumps one partition into the scheduler and never works or sleeps
// itself: a slow claim would throttle its whole broker (libraries.md 8.1). When
// it returns, sarama commits what was marked.
func (h *session) ConsumeClaim(s sarama.ConsumerGroupSession, src sarama.ConsumerGroupClaim) error {
	g := h.g
	g.noteGeneration(s.GenerationID())
	tp := map[string][]int32{src.Topic(): {src.Partition()}}
	c := g.sched.open(h.base, s, src, func() { h.cg.Pause(tp) }, func() { h.cg.Resume(tp) })
	if g.opt.OnAssign != nil {
		g.opt.OnAssign(src.Topic(), src.Partition(), c.low)
	}
	h.pump(s, src, c)
	g.sched.drain(c, g.drainFor(context.Cause(s.Context())))
	if g.opt.OnRevoke != nil {
		g.opt.OnRevoke(src.Topic(), src.Partition())
	}
	return nil
}

// pump ends when the partition is taken away: eager balancing ends the session,
// cooperative balancing closes Messages only.
func (h *session) pump(s sarama.ConsumerGroupSession, src sarama.ConsumerGroupClaim, c *claim) {
	ended, known := s.Context().Done(), names{}
	for {
		select {
		case m, ok := <-src.Messages():
			if !ok {
				return
			}
			h.g.sched.push(c, recordOf(m, known))
		case <-ended:
			return
		}
	}
}

// drainFor is how long running handlers may go on. After an orderly revoke: the
// configured time. When this member is out, or cannot know whether it is,
// somebody else may be at work already: nothing. When the heartbeat broke, others
// take over no sooner than the session time-out: a moment. So also when it leaves
// because some of its handlers hang: users wait for that.
func (g *Group) drainFor(cause error) time.Duration {
	switch {
	case isAny(cause, sarama.ErrUnknownMemberId, sarama.ErrIllegalGeneration, sarama.ErrFencedInstancedId, errFrozen):
		return 0
	case cause == nil, errors.Is(cause, context.Canceled), errors.Is(cause, sarama.ErrRebalanceInProgress),
		errors.Is(cause, sarama.ErrSessionPartitionCountChanged), errors.Is(cause, sarama.ErrSessionConsumeClaimExited):
		return g.opt.DrainTimeout
	}
	return min(g.opt.DrainTimeout, g.opt.SessionTimeout/3)
}

func (g *Group) noteGeneration(id int32) {
	if g.generation.Swap(id) != id {
		g.met.rebalances.Inc()
	}
}
