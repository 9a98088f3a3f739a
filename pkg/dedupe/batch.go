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

	// Every callback asks; questions and timers are used again.
	questions sync.Pool
	timers    sync.Pool
}

// ask sends s with the next pipeline and waits for its answer, the end of ctx or
// over. A question that is given up before it has left is never sent: its owner
// has gone on, and nobody would release its claim.
func (b *batcher) ask(ctx context.Context, over <-chan time.Time, s redis.Setting) (redis.Setting, error) {
	q := b.question(s)
	b.put(q)
	if err := b.await(ctx, over, q); err != nil {
		return redis.Setting{}, err
	}
	s = q.first
	b.again(q)
	return s, s.Err
}

// askBoth is ask for two questions that leave with the same pipeline. Each
// answer carries its own error.
func (b *batcher) askBoth(ctx context.Context, over <-chan time.Time, s, t redis.Setting) (redis.Setting, redis.Setting) {
	q := b.question(s)
	q.second, q.both = t, true
	b.put(q)
	if err := b.await(ctx, over, q); err != nil {
		return redis.Setting{Err: err}, redis.Setting{Err: err}
	}
	s, t = q.first, q.second
	b.again(q)
	return s, t
}

// put lets a question leave with the next pipeline.
func (b *batcher) put(q *question) {
	b.mu.Lock()
	b.waiting = append(b.waiting, q)
	idle := !b.out
	b.out = true
	b.mu.Unlock()
	if idle {
		go b.work() // it serves other callers too, so no caller may end it
	}
}

// await waits for the answers to a question that was put. After an error the
// question is not used again: it may be out, and be answered later.
func (b *batcher) await(ctx context.Context, over <-chan time.Time, q *question) error {
	cause := errBudget
	select {
	case <-q.answered:
		return nil
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-over:
	}
	b.forget(q)
	return fault.Wrap(fault.Unavailable, "ask redis", cause)
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
	var settings []*redis.Setting
	for {
		// Whoever can run asks first: fuller pipelines, without a pause.
		runtime.Gosched()
		batch := b.take()
		if len(batch) == 0 {
			return
		}
		settings = settings[:0]
		now := time.Now()
		for _, q := range batch {
			settings = q.appendTo(settings, now, b.budget)
		}
		if len(settings) > 0 {
			// The callers' own budgets end earlier or at the same time.
			ctx, cancel := context.WithTimeout(context.Background(), b.budget)
			b.redis.SetAll(ctx, settings)
			cancel()
		}
		for _, q := range batch {
			q.answer()
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
