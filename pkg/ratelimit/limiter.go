package ratelimit

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"tidegate/pkg/fault"
)

// Limiter hands out permits. It is safe for concurrent use.
type Limiter struct {
	now func() int64 // nanoseconds since New, by the monotonic clock

	mu       sync.Mutex
	limit    Limit
	pace     gcra
	inFlight int
	granted  uint64
	arrivals uint64
	queue    waiters
	timer    *time.Timer // wakes the first in the queue; nil until somebody had to wait
}

// waiter is one caller in the queue. look tells it that it may have a turn; the
// permit is taken by the caller itself.
type waiter struct {
	priority int
	arrival  uint64
	index    int // in the heap
	look     chan struct{}
}

// New makes a limiter. The limit must be valid (Limit.Validate); values out of
// range are replaced by the nearest that is allowed.
func New(l Limit) *Limiter {
	l = l.clamp()
	begin := time.Now()
	return &Limiter{
		now:   func() int64 { return int64(time.Since(begin)) },
		limit: l, pace: newGCRA(l, 0),
	}
}

// Acquire waits for a permit. A lower priority number goes first; equal ones go
// in order of arrival. The caller must call release once its work is over; more
// calls do nothing. If ctx ends first the error is of kind fault.Limited when a
// deadline passed and fault.Unavailable when the caller gave up, no permit is
// used, and release is a function that does nothing.
func (l *Limiter) Acquire(ctx context.Context, priority int) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return func() {}, ended(err)
	}
	l.mu.Lock()
	w := &waiter{priority: priority, arrival: l.arrivals, look: make(chan struct{}, 1)}
	l.arrivals++
	heap.Push(&l.queue, w)
	for {
		if l.queue[0] == w && l.turn() == 0 {
			heap.Pop(&l.queue)
			l.take()
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

// TryAcquire takes a permit if one is free now and nobody waits for it.
func (l *Limiter) TryAcquire() (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 || l.turn() != 0 {
		return func() {}, false
	}
	l.take()
	return l.releaser(), true
}

// full is turn's answer when only a release can help.
const full = time.Duration(-1)

// turn says how long the first in the queue has to wait; 0 means not at all.
func (l *Limiter) turn() time.Duration {
	if l.limit.Concurrency > 0 && l.inFlight >= l.limit.Concurrency {
		return full
	}
	return l.pace.wait(l.now())
}

func (l *Limiter) take() {
	l.pace.take(l.now())
	l.inFlight++
	l.granted++
}

// arm makes sure that the first in the queue is woken when it can have its turn.
// Called with the lock after every change.
func (l *Limiter) arm() {
	if len(l.queue) == 0 {
		if l.timer != nil {
			l.timer.Stop()
		}
		return
	}
	switch d := l.turn(); {
	case d == full: // the next release calls arm
	case d == 0:
		l.queue[0].wake()
	case l.timer == nil:
		l.timer = time.AfterFunc(d, l.ring)
	default:
		l.timer.Reset(d)
	}
}

// ring is the timer's end: look again who is first and whether it is time.
func (l *Limiter) ring() {
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

func (l *Limiter) releaser() func() {
	var once sync.Once
	return func() {
		once.Do(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.inFlight--
			l.arm()
		})
	}
}

// SetLimit changes the limit for all who wait and all who come. Permits that are
// out stay out: a lower Concurrency is reached as they come back. StartFull is
// not looked at.
func (l *Limiter) SetLimit(n Limit) {
	n = n.clamp()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pace = l.pace.change(n, l.now())
	l.limit = n
	l.arm()
}

// Limit is the limit in force.
func (l *Limiter) Limit() Limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit
}

// Stats is a limiter's state at one moment.
type Stats struct {
	Waiting  int    // callers in the queue
	InFlight int    // permits out
	Granted  uint64 // permits taken since the start
}

// Stats tells the state now.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Waiting: len(l.queue), InFlight: l.inFlight, Granted: l.granted}
}
