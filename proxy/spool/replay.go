package spool

import (
	"context"

	"tidegate/pkg/fault"
)

// Publish hands a record to the queue. Nil means that the queue has it for
// good. An error of kind Invalid or Final means that it never will: the record
// is parked. Any other error is tried again later.
type Publish func(ctx context.Context, r Record) error

// Bounds of what is published at once: enough to fill the producer's batches.
const (
	windowRecords = 512
	windowBytes   = 4 << 20
	windowMarks   = 1 << 16
	windowLanes   = 64
)

// maxStrikes ends a pass in which nothing gets through: after so many windows
// without a success the queue is away, and reading on would be in vain.
const maxStrikes = 3

// Replay makes one pass over the spool, oldest first. Records of one key are
// published one after the other, of different keys at the same time. A record
// that fails holds its key and, for this pass, its topic; other topics go on, so
// that one account's missing topic does not stop the others. It returns nil when
// the end was reached and everything was taken, otherwise the first error.
func (s *Spool) Replay(ctx context.Context, publish Publish) error {
	s.replaying.Lock()
	defer s.replaying.Unlock()
	p := s.newPass()
	defer p.close()
	for strikes := 0; strikes < maxStrikes && ctx.Err() == nil; {
		if s.isClosed() {
			return errClosed()
		}
		if err := p.read(); err != nil {
			return fault.Wrap(fault.Unavailable, "read spool "+s.opt.Dir, err)
		}
		if len(p.marks) == 0 {
			p.finish()
			return p.err
		}
		switch good := p.publish(ctx, publish); {
		case good:
			strikes = 0
		case len(p.items) > 0:
			strikes++
		}
		p.settle()
	}
	if p.err == nil {
		p.err = ctx.Err()
	}
	return p.err
}

// finish corrects the books at the end of everything: a record that rotted
// since it was counted was parked as part of a range and would be missed for
// ever.
func (p *pass) finish() {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	atEnd := len(s.segs) == 0 || p.at.seg == s.segs[len(s.segs)-1] && p.at.off >= p.at.seg.size
	if atEnd && !p.stuck && s.pending == 0 {
		s.records, s.live = 0, 0
		clear(s.keys)
		clear(s.topics)
	}
}

func (s *Spool) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// settle moves the cursor over everything that is done without a hole, after
// the queue's acknowledgement (T28), and deletes what lies behind it.
func (p *pass) settle() {
	s := p.s
	s.mu.Lock()
	before := s.cursor
	for _, m := range p.marks {
		if it := m.it; it != nil && it.done {
			m.done = true
			s.records--
			s.live -= it.size
			if s.topics[it.rec.Topic]--; s.topics[it.rec.Topic] <= 0 {
				delete(s.topics, it.rec.Topic)
			}
			s.release(it.lane, it.rec.Key != nil)
		}
		p.stuck = p.stuck || !m.done
		switch {
		case !p.stuck:
			s.head = m.end
			if m.seq > 0 {
				s.cursor = max(s.cursor, m.seq+1)
				delete(s.ahead, m.seq)
			}
		case m.done && m.seq > 0:
			s.ahead[m.seq] = struct{}{}
		}
	}
	cursor := s.cursor
	s.mu.Unlock()
	if cursor != before {
		s.saveCursor(cursor)
	}
	s.compact(false)
}
