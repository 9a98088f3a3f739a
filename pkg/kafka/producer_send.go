package kafka

import (
	"context"
	"time"

	"github.com/IBM/sarama"

	"tidegate/pkg/fault"
)

// send reserves room, waits for the connection and hands the record over, all
// within patience. When it returns nil, done is called exactly once.
func (p *Producer) send(ctx context.Context, r Record, patience time.Duration, done func(Record, error)) error {
	pe, err := p.reserve(r, done)
	if err != nil {
		p.failed(r.Topic, err)
		return err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	if err := p.handOver(ctx, pe, timer.C); err != nil {
		p.release(pe)
		p.failed(r.Topic, err)
		return err
	}
	return nil
}

func (p *Producer) reserve(r Record, done func(Record, error)) (*pending, error) {
	op := "publish to " + r.Topic
	if !validTopic(r.Topic) {
		return nil, fault.New(fault.Invalid, "publish", "%q is not a topic name: use letters, digits, '.', '_' and '-'", r.Topic)
	}
	size := r.size()
	if size > int64(p.opt.MaxRecordBytes) {
		return nil, fault.New(fault.Invalid, op, "the record has %d bytes, the limit is %d", size, p.opt.MaxRecordBytes)
	}
	p.pend.Lock()
	defer p.pend.Unlock()
	if p.pend.list.Len() >= p.opt.MaxInFlight || p.pend.bytes+size > p.opt.MaxInFlightBytes {
		return nil, fault.New(fault.Unavailable, op, "producer buffer full: %d records, %d bytes wait for the cluster",
			p.pend.list.Len(), p.pend.bytes)
	}
	pe := &pending{rec: r, size: size, since: time.Now(), done: done}
	pe.elem = p.pend.list.PushBack(pe)
	p.pend.bytes += size
	p.met.inFlight.Inc()
	return pe, nil
}

// release takes a record out of the bounds; false when somebody else did.
func (p *Producer) release(pe *pending) bool {
	p.pend.Lock()
	defer p.pend.Unlock()
	if pe.elem == nil {
		return false
	}
	p.pend.list.Remove(pe.elem)
	pe.elem = nil
	p.pend.bytes -= pe.size
	p.met.inFlight.Dec()
	return true
}

// handOver puts the record into sarama's input. An error means that it was not
// put there, so nothing can have been written.
func (p *Producer) handOver(ctx context.Context, pe *pending, patience <-chan time.Time) error {
	op := "publish to " + pe.rec.Topic
	for {
		p.mu.RLock()
		l, up, cause, closed := p.link, p.up, p.linkErr, p.closed
		switch {
		case closed:
			p.mu.RUnlock()
			return fault.New(fault.Unavailable, op, "the producer is closed")
		case l != nil:
			err := l.put(ctx, op, pe, patience)
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
		case <-patience:
			return fault.New(fault.Unavailable, op, "not connected yet, after %s", p.opt.MaxBlock)
		case <-p.stop:
		}
	}
}

func (l *link) put(ctx context.Context, op string, pe *pending, patience <-chan time.Time) error {
	select {
	case l.prod.Input() <- pe.rec.message(pe):
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
func (p *Producer) settle(m *sarama.ProducerMessage, err error) {
	pe, ok := m.Metadata.(*pending)
	if !ok || !p.release(pe) {
		return
	}
	rec := pe.rec
	p.met.latency.Observe(time.Since(pe.since).Seconds())
	if err != nil {
		err = produceFault(rec.Topic, err)
		p.failed(rec.Topic, err)
		pe.done(rec, err)
		return
	}
	rec.Partition, rec.Offset = m.Partition, m.Offset
	if rec.Timestamp.IsZero() {
		rec.Timestamp = m.Timestamp
	}
	p.met.published.WithLabelValues(p.conf.ClientID, rec.Topic).Inc()
	pe.done(rec, nil)
}

func (p *Producer) failed(topic string, err error) {
	if !validTopic(topic) {
		topic = "invalid" // a label must not carry what somebody made up
	}
	p.met.failed.WithLabelValues(p.conf.ClientID, topic, fault.KindOf(err).String()).Inc()
}
