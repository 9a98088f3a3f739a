package ratelimit

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"tidegate/pkg/fault"
)

// desk decides what the first in a line may do. All is called with the line's lock.
type desk interface {
	turn() time.Duration // until the first may take; 0 is now, full if only a change can help
	take()               // the first takes; only when turn is 0
	back()               // a permit came back
}

// full is turn's answer when only a change can help.
const full = time.Duration(-1)

// line is the callers that wait at a desk. The first takes its permit itself,
// when it runs; see the package comment.
type line struct {
	desk desk

	mu       sync.Mutex
	arrivals uint64
	queue    waiters
	timer    *time.Timer // wakes the first in the queue; nil until somebody had to wait
	closed   bool
}

// waiter is one caller in the queue. look tells it that it may have a turn; the
// permit is taken by the caller itself.
type waiter struct {
	priority int
	arrival  uint64
	index    int // in the heap
	look     chan struct{}
}

var errClosed = errors.New("the permits were closed")

// Acquire waits for a permit. A lower priority number goes first; equal ones go
// in order of arrival. The caller must call release once its work is over; more
// calls do nothing. If ctx ends first the error is of kind fault.Limited when a
// deadline passed and fault.Unavailable when the caller gave up, no permit is
// used, and release is a function that does nothing.
func (l *line) Acquire(ctx context.Context, priority int) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return func() {}, ended(err)
	}
	l.mu.Lock()
	if len(l.queue) == 0 && !l.closed && l.desk.turn() == 0 { // nobody waits, nor does this one
		l.desk.take()
		l.arm()
		l.mu.Unlock()
		return l.releaser(), nil
	}
	w := &waiter{priority: priority, arrival: l.arrivals, look: make(chan struct{}, 1)}
	l.arrivals++
	heap.Push(&l.queue, w)
	for {
		if l.closed {
			heap.Remove(&l.queue, w.index)
			l.mu.Unlock()
			return func() {}, ended(errClosed)
		}
		if l.queue[0] == w && l.desk.turn() == 0 {
			heap.Pop(&l.queue)
			l.desk.take()
			l.arm()
			l.mu.Unlock()
			return l.releaser(), nil
		}
		l.arm()
		l.mu.Unlock()
		select {
		case <-w.look:
			l.mu.Lock()
		case <-ctx.Done():
			l.mu.Lock()
			heap.Remove(&l.queue, w.index)
			l.arm()
			l.mu.Unlock()
			return func() {}, ended(ctx.Err())
		}
	}
}

func ended(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.Wrap(fault.Limited, "wait for a permit", err)
	}
	return fault.Wrap(fault.Unavailable, "wait for a permit", err)
}

// arm makes sure that the first in the queue is woken when it can have its turn.
// Called with the lock after every change.
func (l *line) arm() {
	if len(l.queue) == 0 {
		if l.timer != nil {
			l.timer.Stop()
		}
		return
	}
	switch d := l.desk.turn(); {
	case d == full: // the next change calls arm
	case d == 0:
		l.queue[0].wake()
	case l.timer == nil:
		l.timer = time.AfterFunc(d, l.ring)
	default:
		l.timer.Reset(d)
	}
}

// ring is the timer's end: look again who is first and whether it is time.
func (l *line) ring() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arm()
}

func (w *waiter) wake() {
	select {
	case w.look <- struct{}{}:
	default:
	}
}

// TryTake takes a permit if one is free now and nobody waits for it.
func (l *line) TryTake() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 || l.closed || l.desk.turn() != 0 {
		return false
	}
	l.desk.take()
	return true
}

// Back gives a permit of TryTake back.
func (l *line) Back() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.desk.back()
	l.arm()
}

func (l *line) releaser() func() {
	var once sync.Once
	return func() { once.Do(l.Back) }
}

// shut sends everybody away; called with the lock.
func (l *line) shut() {
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	for _, w := range l.queue {
		w.wake()
	}
}
