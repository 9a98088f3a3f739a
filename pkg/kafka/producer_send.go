package kafka

import (
	"context"
	"time"

	"github.com/IBM/sarama"

	"tidegate/pkg/fault"
)

// send reserves room, waits for the connection and hands the record over, all
// within patience. When it returns nil, the record's result is told exactly once.
func (p *Producer) send(ctx context.Context, pe *pending, patience time.Duration) error {
	err := p.reserve(pe)
	if err != nil {
		p.failed(pe.rec.Topic, err)
		return err
	}
	var c clock
	defer c.stop()
	if err := p.handOver(ctx, pe, patience, &c); err != nil {
		p.release(pe)
		p.failed(pe.rec.Topic, err)
		return err
	}
	return nil
}

func (p *Producer) reserve(pe *pending) error {
	topic := pe.rec.Topic
	if !validTopic(topic) {
		return fault.New(fault.Invalid, "publish", "%q is not a topic name: use letters, digits, '.', '_' and '-'", topic)
	}
	if pe.size > int64(p.opt.MaxRecordBytes) {
		return fault.New(fault.Invalid, "publish to "+topic, "the record has %d bytes, the limit is %d", pe.size, p.opt.MaxRecordBytes)
	}
	p.pend.Lock()
	defer p.pend.Unlock()
	if p.pend.n >= p.opt.MaxInFlight || p.pend.bytes+pe.size > p.opt.MaxInFlightBytes {
		return fault.New(fault.Unavailable, "publish to "+topic, "producer buffer full: %d records, %d bytes wait for the cluster", p.pend.n, p.pend.bytes)
	}
	pe.since = time.Now()
	p.pend.add(pe)
	p.met.inFlight.Inc()
	return nil
}

// release takes a record out of the bounds; false when somebody else did.
func (p *Producer) release(pe *pending) bool {
	p.pend.Lock()
	defer p.pend.Unlock()
	if !pe.listed {
		return false
	}
	p.pend.remove(pe)
	p.met.inFlight.Dec()
	return true
}

// handOver puts the record into sarama's input. An error means that it was not
// put there, so nothing can have been written.
func (p *Producer) handOver(ctx context.Context, pe *pending, patience time.Duration, c *clock) error {
	var over <-chan time.Time
	m := pe.message()
	for {
		p.mu.RLock()
		l, up, cause, closed := p.link, p.up, p.linkErr, p.closed
		switch {
		case closed:
			p.mu.RUnlock()
			return fault.New(fault.Unavailable, "publish to "+pe.rec.Topic, "the producer is closed")
		case l != nil && l.tryPut(m):
			p.mu.RUnlock()
			return nil
		}
		if over == nil {
			over = c.after(patience)
		}
		op := "publish to " + pe.rec.Topic
		if l != nil {
			err := l.put(ctx, op, m, over)
			p.mu.RUnlock()
			return err
		}
		p.mu.RUnlock()
		if cause != nil { // known to be away: refuse at once, the caller has a spool
			return fault.New(fault.Unavailable, op, "no connection to the cluster: %w", cause)
		}
		select {
		case <-up:
		case <-ctx.Done():
			return fault.New(fault.Unavailable, op, "not connected yet: %w", context.Cause(ctx))
		case <-over:
			return fault.New(fault.Unavailable, op, "not connected yet, after %s", p.opt.MaxBlock)
		case <-p.stop:
		}
	}
}

// clock is a timer that is made when somebody has to wait, and then used again.
type clock struct{ timer *time.Timer }

func (c *clock) after(d time.Duration) <-chan time.Time {
	if c.timer == nil {
		c.timer = time.NewTimer(d)
	} else {
		c.timer.Reset(d)
	}
	return c.timer.C
}

func (c *clock) stop() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

func (l *link) tryPut(m *sarama.ProducerMessage) bool {
	select {
	case <-l.quit:
		return false
	default:
	}
	select {
	case l.prod.Input() <- m:
		return true
	default:
		return false
	}
}

func (l *link) put(ctx context.Context, op string, m *sarama.ProducerMessage, patience <-chan time.Time) error {
	select {
	case l.prod.Input() <- m:
		return nil
	case <-l.quit:
		return fault.New(fault.Unavailable, op, "the connection to the cluster is being renewed")
	case <-ctx.Done():
		return fault.New(fault.Unavailable, op, "the producer was busy: %w", context.Cause(ctx))
	case <-patience:
		return fault.New(fault.Unavailable, op, "the producer is busy: it took no record for too long")
	}
}

// settle gives a record its result, once.
func (p *Producer) settle(m *sarama.ProducerMessage, err error, published counters) {
	pe, ok := m.Metadata.(*pending)
	if !ok || !p.release(pe) {
		return
	}
	rec := pe.rec
	p.met.latency.Observe(time.Since(pe.since).Seconds())
	if err != nil {
		err = produceFault(rec.Topic, err)
		p.failed(rec.Topic, err)
		pe.finish(rec, err)
		return
	}
	rec.Partition, rec.Offset = m.Partition, m.Offset
	if rec.Timestamp.IsZero() {
		rec.Timestamp = m.Timestamp
	}
	published.inc(p.met.published, p.conf.ClientID, rec.Topic)
	pe.finish(rec, nil)
}

func (p *Producer) failed(topic string, err error) {
	if !validTopic(topic) {
		topic = "invalid" // a label must not carry what somebody made up
	}
	p.met.failed.WithLabelValues(p.conf.ClientID, topic, fault.KindOf(err).String()).Inc()
}
