package dedupe

import (
	"sync/atomic"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// question is one setting on its way, or two that leave with the same pipeline.
// Its owner may read the answers once answered has given its token.
type question struct {
	first, second redis.Setting
	both          bool
	answered      chan struct{}
	elsewhere     chan struct{} // where the token goes instead; or nil

	// onward is asked by the batcher once the answers are there. True says that
	// the question is dealt with: the owner need not wake up for it, and the
	// batcher does not touch it again. It must not block.
	onward func(*question) bool
	// stage decides between onward and an owner who has had enough.
	stage atomic.Int32

	// since, if set, is when a question without an owner was put: it is not sent
	// any more when its budget is over.
	since time.Time
}

// Stages of a question with an owner and onward.
const (
	asked int32 = iota
	passedOn
	givenUp
)

func (b *batcher) question(s redis.Setting) *question {
	q, _ := b.questions.Get().(*question)
	if q == nil {
		q = &question{answered: make(chan struct{}, 1)}
	}
	q.first = s
	return q
}

// again keeps a question for another time; nobody else may hold it any more.
func (b *batcher) again(q *question) {
	*q = question{answered: q.answered}
	b.questions.Put(q)
}

// appendTo adds what is to be sent.
func (q *question) appendTo(all []*redis.Setting, now time.Time, budget time.Duration) []*redis.Setting {
	if !q.since.IsZero() && now.Sub(q.since) > budget {
		q.first.Err = fault.Wrap(fault.Unavailable, "ask redis", errBudget)
		return all
	}
	all = append(all, &q.first)
	if q.both {
		all = append(all, &q.second)
	}
	return all
}

func (q *question) answer() {
	if q.onward != nil && q.onward(q) {
		return
	}
	to := q.answered
	if q.elsewhere != nil {
		to = q.elsewhere
	}
	to <- struct{}{} // has room: each question is answered once
}
