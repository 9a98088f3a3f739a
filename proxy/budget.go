package proxy

import (
	"context"
	"sync"
	"time"
)

// budget bounds one callback, whatever its client does: one that hangs up must
// not undo work that the queue has begun to take. Nearly every callback is
// answered before anybody looks at the bound, so its timer is made by whoever
// asks first.
type budget struct {
	context.Context
	end time.Time

	once   sync.Once
	real   context.Context
	cancel context.CancelFunc
}

func newBudget(r context.Context, d time.Duration) *budget {
	return &budget{Context: context.WithoutCancel(r), end: time.Now().Add(d)}
}

func (b *budget) bounded() context.Context {
	b.once.Do(func() { b.real, b.cancel = context.WithDeadline(b.Context, b.end) })
	return b.real
}

// release gives back what was made, and makes nothing.
func (b *budget) release() {
	b.once.Do(func() { b.real = over })
	if b.cancel != nil {
		b.cancel()
	}
}

// over is the context of a callback that has been answered.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Deadline and the rest are context.Context.
func (b *budget) Deadline() (time.Time, bool) { return b.end, true }
func (b *budget) Done() <-chan struct{}       { return b.bounded().Done() }
func (b *budget) Err() error                  { return b.bounded().Err() }
func (b *budget) Value(key any) any           { return b.bounded().Value(key) }
