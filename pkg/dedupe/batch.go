package dedupe

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// maxBatch bounds one pipeline, so that no question waits for thousands of others.
const maxBatch = 1024

// errBudget ends a question that Redis did not answer in time.
var errBudget = errors.New("no answer within the budget")

// batcher lets concurrent questions share round trips. While a pipeline is out,
// questions gather; when it is back, they all leave with the next one. It never
// waits for company, so a lone question costs what it did before.
//
// There is no goroutine while nothing is asked: the first question starts one,
// and it ends when nobody waits, at the latest one budget after the last
// question.
type batcher struct {
	redis  *redis.Client
	budget time.Duration

	mu      sync.Mutex
	waiting []*question
	out     bool // a goroutine is at work

	// Every callback asks twice; questions and timers are used again.
	questions sync.Pool
	timers    sync.Pool
}

// question is one setting on its way. Its owner may read the answer once
// answered has given its token.
type question struct {
	redis.Setting
	answered chan struct{}
}

// ask sends s with the next pipeline and waits for its answer, the end of ctx or
// over. A question that is given up before it has left is never sent: its owner
// has gone on, and nobody would release its claim.
func (b *batcher) ask(ctx context.Context, over <-chan time.Time, s redis.Setting) (redis.Setting, error) {
	q := b.question(s)
	b.put(q)
	s, _, err := b.await(ctx, over, q)
	return s, err
}

// askBoth is ask for two questions that leave with the same pipeline. Each
// answer carries its own error.
func (b *batcher) askBoth(ctx context.Context, over <-chan time.Time, s, t redis.Setting) (redis.Setting, redis.Setting) {
	p, q := b.question(s), b.question(t)
	b.put(p, q)
	s, ended, err := b.await(ctx, over, p)
	s.Err = err
	if ended {
		// over gives its word once; the second has no more time than the first.
		past := make(chan time.Time)
		close(past)
		over = past
	}
	t, _, err = b.await(ctx, over, q)
	t.Err = err
	return s, t
}

func (b *batcher) question(s redis.Setting) *question {
	q, _ := b.questions.Get().(*question)
	if q == nil {
		q = &question{answered: make(chan struct{}, 1)}
	}
	q.Setting = s
	return q
}

// put lets questions leave with the next pipeline.
func (b *batcher) put(qs ...*question) {
	b.mu.Lock()
	b.waiting = append(b.waiting, qs...)
	idle := !b.out
	b.out = true
	b.mu.Unlock()
	if idle {
		go b.work() //nolint:gosec // it serves other callers too, so no caller may end it
	}
}

// await waits for the answer to a question that was put. ended reports that
// there is none, since time was up.
func (b *batcher) await(ctx context.Context, over <-chan time.Time, q *question) (s redis.Setting, ended bool, err error) {
	cause := errBudget
	select {
	case <-q.answered:
		s = q.Setting
		b.questions.Put(q)
		return s, false, s.Err
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-over:
	}
	b.forget(q) // not used again: it may be out, and be answered later
	return redis.Setting{}, true, fault.Wrap(fault.Unavailable, "ask redis", cause)
}

// timer gives a running timer of one budget; give it back with rest.
func (b *batcher) timer() *time.Timer {
	t, _ := b.timers.Get().(*time.Timer)
	if t == nil {
		return time.NewTimer(b.budget)
	}
	t.Reset(b.budget)
	return t
}

func (b *batcher) rest(t *time.Timer) {
	t.Stop() // since Go 1.23 nothing stale is left in its channel
	b.timers.Put(t)
}

func (b *batcher) forget(q *question) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, w := range b.waiting {
		if w == q {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			return
		}
	}
}

// work sends pipeline after pipeline until nobody waits.
func (b *batcher) work() {
	for {
		// Whoever can run asks first: fuller pipelines, without a pause.
		runtime.Gosched()
		batch := b.take()
		if len(batch) == 0 {
			return
		}
		settings := make([]*redis.Setting, len(batch))
		for i, q := range batch {
			settings[i] = &q.Setting
		}
		// The callers' own budgets end earlier or at the same time.
		ctx, cancel := context.WithTimeout(context.Background(), b.budget)
		b.redis.SetAll(ctx, settings)
		cancel()
		for _, q := range batch {
			q.answered <- struct{}{} // has room: each question is answered once
		}
	}
}

// take gives the questions of the next pipeline. With none it also says, under
// the same lock, that the next question must start a goroutine.
func (b *batcher) take() []*question {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch := b.waiting
	if len(batch) > maxBatch {
		b.waiting = batch[maxBatch:]
		return batch[:maxBatch:maxBatch]
	}
	b.waiting = nil
	b.out = len(batch) > 0
	return batch
}
