package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tidegate/pkg/fault"
)

// PublishInTurn publishes records one after the other: each is handed over when
// the one before it is durable, and while the handler that ctx belongs to still
// owns its partition (Owned). It returns when the last one is durable or one was
// not published, with the number of those that are durable; the error is about the
// next one, and nothing behind that was handed over or will be. limit bounds the
// whole: its end is fault.Ambiguous, as is that of ctx.
//
// Beside a Publish for each, the caller sleeps and wakes once, and needs no timers
// and channels of his own. Each record waits in the producer's line for room in
// sarama and for a connection, for MaxBlock and while ctx lives.
func (p *Producer) PublishInTurn(ctx context.Context, rs []Record, limit time.Duration) (done int, err error) {
	if len(rs) == 0 {
		return 0, nil
	}
	if err := Owned(ctx); err != nil {
		return 0, err
	}
	t := p.turns(ctx, rs)
	if err := t.next(); err != nil {
		return 0, err
	}
	select {
	case <-t.over:
		done, err = t.leave(nil)
		p.idle.Put(t.bare()) // no result is under way that could still come here
		return done, err
	case <-ctx.Done():
		t.clock.stop()
		return t.leave(underWay(ctx, rs[0].Topic))
	case <-t.clock.after(limit):
		return t.leave(fault.New(fault.Ambiguous, "publish to "+rs[0].Topic, "no result within %s", limit))
	}
}

// turns is one call.
type turns struct {
	p     *Producer
	ctx   context.Context
	rs    []Record
	tell  func(Record, error) // result
	over  chan struct{}       // has a token when nothing is under way any more
	clock clock

	mu   sync.Mutex
	done int   // records that are durable
	err  error // of the next one
	left bool  // nobody waits: nothing more is handed over
}

// turns gives one that was used before, if there is one.
func (p *Producer) turns(ctx context.Context, rs []Record) *turns {
	t, ok := p.idle.Get().(*turns)
	if !ok {
		t = &turns{p: p, over: make(chan struct{}, 1)}
		t.tell = t.result
	}
	t.ctx, t.rs = ctx, rs
	return t
}

// bare makes it ready for the next call.
func (t *turns) bare() *turns {
	t.clock.stop()
	t.mu.Lock() // whoever told the last result may still hold it
	defer t.mu.Unlock()
	t.ctx, t.rs, t.done, t.err, t.left = nil, nil, 0, nil, false
	return t
}

// next hands the next record over.
func (t *turns) next() error {
	pe := newPending(t.rs[t.done], t.tell)
	pe.of = t.ctx
	return t.p.lineUp(pe)
}

// result takes that of one record and hands the next one over. It runs on the
// producer's goroutine and never waits.
func (t *turns) result(_ Record, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.done++
	}
	if err == nil && !t.left && t.done < len(t.rs) {
		if err = Owned(t.ctx); err == nil {
			err = t.next()
		}
		if err == nil {
			return
		}
	}
	t.err = err
	t.over <- struct{}{} // has room: this comes once
}

// leave ends the call. why is the reason for not waiting any longer.
func (t *turns) leave(why error) (done int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = true
	if t.err != nil {
		why = t.err
	}
	if t.done == len(t.rs) {
		return t.done, nil
	}
	if t.done > 0 && why != nil {
		why = fmt.Errorf("after %d of %d records: %w", t.done, len(t.rs), why)
	}
	return t.done, why
}
