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
// Beside a Publish for each, the caller sleeps and wakes once, and nobody makes
// contexts with deadlines. Only the first record waits for room or a connection.
func (p *Producer) PublishInTurn(ctx context.Context, rs []Record, limit time.Duration) (done int, err error) {
	if len(rs) == 0 {
		return 0, nil
	}
	if err := Owned(ctx); err != nil {
		return 0, err
	}
	t := &turns{p: p, ctx: ctx, rs: rs, over: make(chan struct{}, 1)}
	if err := p.send(ctx, newPending(rs[0], t.result), min(limit, p.opt.MaxBlock)); err != nil {
		return 0, err
	}
	clock := time.NewTimer(limit)
	defer clock.Stop()
	select {
	case <-t.over:
		return t.leave(nil)
	case <-ctx.Done():
		return t.leave(underWay(ctx, rs[0].Topic))
	case <-clock.C:
		return t.leave(fault.New(fault.Ambiguous, "publish to "+rs[0].Topic, "no result within %s", limit))
	}
}

// turns is one call.
type turns struct {
	p    *Producer
	ctx  context.Context
	rs   []Record
	over chan struct{} // has a token when nothing is under way any more

	mu   sync.Mutex
	done int   // records that are durable
	err  error // of the next one
	left bool  // nobody waits: nothing more is handed over
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
			err = t.p.TryPublish(t.rs[t.done], t.result)
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
