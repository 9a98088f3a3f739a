//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// settleTime is what answers that are under way at the end may take.
const settleTime = 10 * time.Second

// load is one run of the generator against one address.
type load struct {
	addr  string
	conns int
	reqs  [][]byte
	wrap  bool    // begin anew after the last request (bare does not look at ids)
	rate  float64 // open loop: arrivals per second; 0 is the closed loop
	warm  time.Duration
	span  time.Duration

	begin time.Time
	next  atomic.Int64
	ended chan struct{} // closed when a closed loop has no more requests
	once  sync.Once
	plan  []time.Duration // open loop: intended times after begin
}

// sample is one acknowledgement: how long it took, and the moment by which it
// belongs to the time that counts or not. In the open loop that is when it was
// due: counting by the answer would leave out the slowest ones.
type sample struct {
	at, took time.Duration
}

// outcome is what a run saw, warm-up included.
type outcome struct {
	samples  []sample
	accepted int // acknowledgements
	refused  int // other answers
	broken   int // no answer: nobody knows what became of it
	firstErr error
}

func (o *outcome) add(other outcome) {
	o.samples = append(o.samples, other.samples...)
	o.accepted += other.accepted
	o.refused += other.refused
	o.broken += other.broken
	if o.firstErr == nil {
		o.firstErr = other.firstErr
	}
}

// run opens the connections and applies the load. mark is called at the
// beginning and at the end of the time that counts.
func (l *load) run(ctx context.Context, mark func()) (outcome, error) {
	l.ended = make(chan struct{})
	until := time.Now().Add(10*time.Second + l.warm + l.span + settleTime)
	conns := make([]*conn, 0, l.conns)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range l.conns {
		c, err := dial(ctx, l.addr, until)
		if err != nil {
			return outcome{}, fmt.Errorf("connect to %s: %w", l.addr, err)
		}
		conns = append(conns, c)
	}
	due := l.schedule()
	l.begin = time.Now()
	var wg sync.WaitGroup
	parts := make([]outcome, len(conns))
	for i, c := range conns {
		wg.Go(func() {
			if l.rate > 0 {
				parts[i] = l.open(c, due)
				return
			}
			parts[i] = l.closed(c)
		})
	}
	if l.rate > 0 {
		wg.Go(func() { l.dispatch(ctx, due) })
	}
	l.pause(ctx, l.warm)
	mark()
	l.pause(ctx, l.warm+l.span)
	mark()
	wg.Wait()
	var all outcome
	for _, p := range parts {
		all.add(p)
	}
	return all, context.Cause(ctx)
}

// pause waits until d after the beginning, or until the requests are used up.
func (l *load) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(time.Until(l.begin.Add(d)))
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.ended:
	case <-ctx.Done():
	}
}

// closed sends the next request as soon as the last is answered.
func (l *load) closed(c *conn) (o outcome) {
	end := l.warm + l.span
	for time.Since(l.begin) < end {
		i := int(l.next.Add(1) - 1)
		if i >= len(l.reqs) {
			if !l.wrap {
				l.once.Do(func() { close(l.ended) })
				return o
			}
			i %= len(l.reqs)
		}
		if !o.post(c, l, i, time.Since(l.begin)) {
			return o
		}
	}
	return o
}

// open sends each request when it is due, or as soon after that as a connection
// is free; the time counts from when it was due.
func (l *load) open(c *conn, due <-chan int) (o outcome) {
	alive := true
	for i := range due {
		if !alive {
			o.broken++
			continue
		}
		alive = o.post(c, l, i%len(l.reqs), l.plan[i])
	}
	return o
}

func (o *outcome) post(c *conn, l *load, i int, since time.Duration) bool {
	acked, err := c.post(l.reqs[i])
	at := time.Since(l.begin)
	switch {
	case err != nil:
		o.broken++
		o.firstErr = errors.Join(o.firstErr, err)
		return false
	case acked:
		o.accepted++
		took := at - since
		if l.rate > 0 {
			at = since
		}
		o.samples = append(o.samples, sample{at: at, took: took})
	default:
		o.refused++
	}
	return true
}

// schedule draws the arrivals of a Poisson process. The channel holds them all,
// so the dispatcher never waits for a connection.
func (l *load) schedule() chan int {
	if l.rate == 0 {
		return nil
	}
	end := l.warm + l.span
	for at := time.Duration(0); ; {
		at += time.Duration(rand.ExpFloat64() / l.rate * float64(time.Second))
		if at >= end || !l.wrap && len(l.plan) == len(l.reqs) {
			break
		}
		l.plan = append(l.plan, at)
	}
	return make(chan int, len(l.plan))
}

// dispatch hands out arrivals when they are due.
func (l *load) dispatch(ctx context.Context, due chan<- int) {
	defer close(due)
	t := time.NewTimer(0)
	defer t.Stop()
	for i, at := range l.plan {
		if wait := at - time.Since(l.begin); wait > 0 {
			t.Reset(wait)
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
		}
		due <- i
	}
}

// within gives the sorted times of the acknowledgements that belong to from..to
// after the beginning.
func (o *outcome) within(from, to time.Duration) []time.Duration {
	var out []time.Duration
	for _, s := range o.samples {
		if s.at >= from && s.at < to {
			out = append(out, s.took)
		}
	}
	slices.Sort(out)
	return out
}

// quantile of sorted times, in milliseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := min(int(q*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[i]) / float64(time.Millisecond)
}
