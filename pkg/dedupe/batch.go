package dedupe

import (
	"context"
	"sync"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// maxBatch bounds one pipeline, so that no question waits for thousands of others.
const maxBatch = 1024

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
}

// question is one setting on its way. Its owner may read the answer once
// answered is closed.
type question struct {
	redis.Setting
	answered chan struct{}
}

// ask sends s with the next pipeline and waits for its answer or the end of ctx.
// A question that is given up before it has left is never sent: its owner has
// gone on, and nobody would release its claim.
func (b *batcher) ask(ctx context.Context, s redis.Setting) (redis.Setting, error) {
	q := &question{Setting: s, answered: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, q)
	idle := !b.out
	b.out = true
	b.mu.Unlock()
	if idle {
		go b.work() //nolint:gosec // it serves other callers too, so no caller may end it
	}
	select {
	case <-q.answered:
		return q.Setting, q.Err
	case <-ctx.Done():
		b.forget(q)
		return s, fault.Wrap(fault.Unavailable, "ask redis", context.Cause(ctx))
	}
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
	for batch := b.take(); len(batch) > 0; batch = b.take() {
		settings := make([]*redis.Setting, len(batch))
		for i, q := range batch {
			settings[i] = &q.Setting
		}
		// The callers' own budgets end earlier or at the same time.
		ctx, cancel := context.WithTimeout(context.Background(), b.budget)
		b.redis.SetAll(ctx, settings)
		cancel()
		for _, q := range batch {
			close(q.answered)
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
