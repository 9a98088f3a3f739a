package robot

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// later is a context that is made when somebody waits for its end. What bounds
// the work on a callback (a stop, the patience of its level, max_age) needs timers
// and entries in contexts that all callbacks share; most callbacks are over before
// anybody waits, and then none of it has been made.
//
// Until then Err tells of the parent's end and of cancel, and of no deadline: to
// look without waiting is not to be late.
type later struct {
	context.Context // the parent
	bound           func(parent context.Context) (context.Context, context.CancelFunc)
	until           time.Time // of the context to be made, where bound is nil

	made atomic.Pointer[bounded]
	mu   sync.Mutex
	over bool
}

type bounded struct {
	context.Context
	cancel context.CancelFunc
}

// whenAsked gives a context that bound makes of parent when it is needed. cancel
// must be called when the work is over.
func whenAsked(parent context.Context, bound func(parent context.Context) (context.Context, context.CancelFunc)) (ctx context.Context, cancel context.CancelFunc) {
	l := &later{Context: parent, bound: bound}
	return l, l.end
}

// errand is the context of the work on one callback, and carries its turn to
// wherever it has to wait. end must be called when the work is over.
type errand struct {
	later
	turn turn
}

// send makes e an errand of at most d from now.
func (e *errand) send(parent context.Context, d time.Duration, t turn) {
	e.Context, e.until, e.turn = parent, time.Now().Add(d), t
}

// Value knows the turn as well.
func (e *errand) Value(key any) any {
	if key == (turnKey{}) {
		return &e.turn
	}
	return e.later.Value(key)
}

func (l *later) make() *bounded {
	if b := l.made.Load(); b != nil {
		return b
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.made.Load(); b != nil {
		return b
	}
	var ctx context.Context
	var cancel context.CancelFunc
	if l.bound != nil {
		ctx, cancel = l.bound(l.Context)
	} else {
		ctx, cancel = context.WithDeadline(l.Context, l.until)
	}
	if l.over {
		cancel()
	}
	b := &bounded{ctx, cancel}
	l.made.Store(b)
	return b
}

func (l *later) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if b := l.made.Load(); b != nil {
		b.cancel()
	}
}

// Done makes the context, and Deadline does: who asks is about to wait.
func (l *later) Done() <-chan struct{} { return l.make().Done() }

// Deadline is part of context.Context.
func (l *later) Deadline() (time.Time, bool) { return l.make().Deadline() }

// Err makes nothing.
func (l *later) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.made.Load(); b != nil {
		return b.Err()
	}
	if err := l.Context.Err(); err != nil || !l.over {
		return err
	}
	return context.Canceled
}

// Value is the parent's, and of what was made the cause of its end.
func (l *later) Value(key any) any {
	if b := l.made.Load(); b != nil {
		return b.Value(key)
	}
	return l.Context.Value(key)
}
