package guard

import (
	"context"
	"time"
)

// approach asks for a place in the gate, since a lease is taken only by who can
// use it at once.
func (f *flight) approach(ctx context.Context, cut []*ticket) time.Duration {
	if f.queued != nil {
		return pollEvery()
	}
	if err := f.g.open(); err != nil {
		f.standIn(ctx, cut, Shed, err)
		return 0
	}
	if f.g.gate.try() {
		f.admitted = true
		return 0
	}
	queue, cancel := context.WithCancel(ctx)
	f.queued, f.unqueue = make(chan error, 1), cancel
	out := f.queued
	f.g.wg.Go(func() {
		ok, crowded := f.g.gate.acquire(queue)
		switch {
		case ok && queue.Err() != nil:
			f.g.gate.release() // the flight has ended meanwhile and does not read this
			out <- queue.Err()
		case ok:
			out <- nil
		case crowded:
			out <- f.g.busy("too many callers wait", time.Second)
		default:
			out <- queue.Err()
		}
	})
	f.waited = true
	return pollEvery()
}

func (f *flight) fromQueue(err error) {
	f.unqueue() // frees the context
	f.queued, f.unqueue = nil, nil
	if err != nil {
		f.give(f.seal(), outcome{result: Result{How: Shed}, err: err})
		return
	}
	f.admitted = true
}

// leaveGate gives back what is held of the gate and not used.
func (f *flight) leaveGate() {
	if f.admitted {
		f.admitted = false
		f.g.gate.release()
	}
	if f.queued == nil {
		return
	}
	f.unqueue()
	if err := <-f.queued; err == nil {
		f.g.gate.release()
	}
	f.queued, f.unqueue = nil, nil
}
