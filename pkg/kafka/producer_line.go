package kafka

import (
	"context"
	"sync"
	"time"

	"tidegate/pkg/fault"
)

// line holds the records of those who must not wait, since sarama's input has no
// room of its own: its sender waits for sarama's receiver each time. There is
// place for as many records as may be in flight.
type line struct {
	mu     sync.RWMutex // whoever puts holds the read side
	closed bool
	in     chan *pending
	empty  chan struct{} // closed: nothing is left, and nothing comes any more
}

func newLine(n int) *line {
	return &line{in: make(chan *pending, n), empty: make(chan struct{})}
}

func (l *line) put(pe *pending) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return false
	}
	select {
	case l.in <- pe:
		return true
	default:
		return false
	}
}

// close lets nothing in any more. It may be called twice.
func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.in)
	}
}

// lineUp takes a record in without waiting.
func (p *Producer) lineUp(pe *pending) error {
	err := p.reserve(pe)
	if err == nil && !p.line.put(pe) {
		p.release(pe)
		err = fault.New(fault.Unavailable, "publish to "+pe.rec.Topic, "the producer is closed, or its line is full")
	}
	if err != nil {
		p.failed(pe.rec.Topic, err)
	}
	return err
}

// handLine hands one record over, unless the work that it belongs to has ended.
func (p *Producer) handLine(pe *pending, c *clock) error {
	ctx := pe.of
	if ctx == nil {
		ctx = context.Background()
	} else if ctx.Err() != nil {
		return fault.New(fault.Unavailable, "publish to "+pe.rec.Topic, "not handed over in time: %w", context.Cause(ctx))
	}
	return p.handOver(ctx, pe, p.opt.MaxBlock-time.Since(pe.since), c)
}

// serveLine hands the records over in their order until the line is closed and
// empty. A record's patience begins when it was taken: while there is no
// connection, those at the end of a long line are not told later than the first.
func (p *Producer) serveLine() {
	defer close(p.line.empty)
	var c clock
	defer c.stop()
	for pe := range p.line.in {
		if err := p.handLine(pe, &c); err != nil && p.release(pe) {
			p.failed(pe.rec.Topic, err)
			pe.finish(pe.rec, err)
		}
	}
}
