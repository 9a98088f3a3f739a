package dedupe

import (
	"context"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// Onward is what shall happen at once when a claim is Fresh. Whoever waits for a
// claim only to publish, and then for the publishing, would wake up in between
// for nothing; under load that costs more than the claim itself.
type Onward struct {
	// Start is called by the goroutine that talks to Redis, so it must not block.
	Start func()
	// Ended gets a token, for which it must have room, once what Start began has
	// ended, also if it could not begin. If Start is never called, ClaimThen uses
	// the channel for the answer: waiting at one place is cheaper than at two.
	Ended chan struct{}
}

// Claimed is how a claim went.
type Claimed struct {
	Verdict Verdict
	Claim   *Claim // never nil
	Nonce   NonceVerdict
	// Started tells that Start was called; then the verdict is Fresh. Ended tells
	// that its token was taken; otherwise it is still to come.
	Started, Ended bool
}

// ClaimThen is Claim, or with n ClaimWithNonce, which goes on by itself when the
// claim is Fresh and the nonce not reused, and then returns when both are over.
// It returns without the end of the second if that takes longer than the budget
// of a question. Anything else than a clean Fresh is the caller's to handle:
// Started is false, and nothing was begun.
func (s *Store) ClaimThen(ctx context.Context, identityKey string, n *Nonce, on Onward) Claimed {
	known := NonceFirst
	if n != nil {
		if known = s.nonces.note(*n, time.Now()); known == NonceReused {
			return s.forged()
		}
	}
	c := s.newClaim(identityKey)
	if !s.gate.allow() {
		err := fault.Wrap(fault.Unavailable, "dedupe", errOpen)
		return s.conclude(ctx, c, n, known, redis.Setting{Err: err}, redis.Setting{Err: err})
	}
	q := s.batch.question(c.setting())
	if n != nil {
		q.second, q.both = n.setting(), true
	}
	q.elsewhere = on.Ended
	q.onward = func(q *question) bool {
		clean := won(q.first, c.mark) && (n == nil || won(q.second, n.mark()))
		if !clean || !q.stage.CompareAndSwap(asked, passedOn) {
			return false
		}
		on.Start()
		return true
	}
	budget := s.batch.timer()
	defer s.batch.rest(budget)
	s.batch.put(q)
	select {
	case <-on.Ended:
		started, mark, used := q.stage.Load() == passedOn, q.first, q.second
		s.batch.again(q)
		if started {
			return s.begun(ctx, c, known, true)
		}
		return s.unstarted(ctx, c, n, known, mark, used)
	case <-budget.C:
	}
	if !q.stage.CompareAndSwap(asked, givenUp) {
		return s.begun(ctx, c, known, false)
	}
	s.batch.forget(q)
	late := redis.Setting{Err: fault.Wrap(fault.Unavailable, "ask redis", errBudget)}
	return s.unstarted(ctx, c, n, known, late, late)
}

// won tells that a setting is there with our value, whoever wrote it first.
func won(got redis.Setting, value string) bool {
	return got.Err == nil && (got.Set || got.Prev == value)
}

func (s *Store) begun(ctx context.Context, c *Claim, nonce NonceVerdict, ended bool) Claimed {
	c.own = true
	_ = s.heard(ctx, nil)
	s.stats.verdict[Fresh].Inc()
	return Claimed{Verdict: Fresh, Claim: c, Nonce: nonce, Started: true, Ended: ended}
}

// unstarted goes the long way with what was answered, after one more try where
// the connection broke.
func (s *Store) unstarted(ctx context.Context, c *Claim, n *Nonce, known NonceVerdict, mark, used redis.Setting) Claimed {
	switch {
	case n == nil && again(ctx, mark.Err):
		mark, mark.Err = s.set(ctx, c.setting(), false)
	case n != nil && (again(ctx, mark.Err) || again(ctx, used.Err)):
		mark, used = s.setBoth(ctx, c.setting(), n.setting())
	default:
		err := mark.Err
		if err == nil {
			err = used.Err
		}
		_ = s.heard(ctx, err)
	}
	return s.conclude(ctx, c, n, known, mark, used)
}

// conclude makes the verdicts of the answers.
func (s *Store) conclude(ctx context.Context, c *Claim, n *Nonce, known NonceVerdict, mark, used redis.Setting) Claimed {
	if n != nil {
		if known = s.judge(*n, known, used, used.Err); known == NonceReused {
			if won(mark, c.mark) || mark.Err != nil {
				c.own = true
				s.stats.lost("nonce_release", c.Release(ctx))
			}
			return s.forged()
		}
	}
	v := c.settle(ctx, mark.Prev, mark.Set, mark.Err)
	s.stats.verdict[v].Inc()
	return Claimed{Verdict: v, Claim: c, Nonce: known}
}

// forged has a claim that does nothing.
func (s *Store) forged() Claimed {
	return Claimed{Verdict: Unchecked, Claim: &Claim{s: s, durable: true}, Nonce: NonceReused}
}
