package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// pending is one record whose result is not known, with everything that sarama
// wants of it: one block of memory instead of ten. It is never used again, since
// after a deadline sarama still holds it.
type pending struct {
	rec   Record
	size  int64
	since time.Time
	of    context.Context // while it stands in line: the work that it is a part of, or nil

	prev, next *pending // guarded by the list's lock
	listed     bool

	// The result goes to done, or into rec and err before got has its token.
	done func(Record, error)
	err  error
	got  chan struct{}

	msg        sarama.ProducerMessage
	key, value sarama.ByteEncoder
	headers    [4]sarama.RecordHeader
}

// newPending without done is for a caller who waits for got.
func newPending(r Record, done func(Record, error)) *pending {
	pe := &pending{rec: r, size: r.size(), done: done}
	if done == nil {
		pe.got = make(chan struct{}, 1)
	}
	return pe
}

func (pe *pending) finish(r Record, err error) {
	if pe.done != nil {
		pe.done(r, err)
		return
	}
	pe.rec, pe.err = r, err
	pe.got <- struct{}{} // has room: a result comes once
}

// message is the record in sarama's words. Made once more for another try, it is
// the same again.
func (pe *pending) message() *sarama.ProducerMessage {
	r := &pe.rec
	pe.msg = sarama.ProducerMessage{Topic: r.Topic, Timestamp: r.Timestamp, Metadata: pe}
	if r.Key != nil {
		pe.key = r.Key
		pe.msg.Key = &pe.key
	}
	if r.Value != nil {
		pe.value = r.Value
		pe.msg.Value = &pe.value
	}
	if len(r.Headers) == 0 {
		return &pe.msg
	}
	size := 0
	for _, h := range r.Headers {
		size += len(h.Key)
	}
	names := make([]byte, 0, size)
	headers := pe.headers[:0]
	for _, h := range r.Headers {
		n := len(names)
		names = append(names, h.Key...)
		headers = append(headers, sarama.RecordHeader{Key: names[n:len(names):len(names)], Value: h.Value})
	}
	pe.msg.Headers = headers
	return &pe.msg
}

// pendings are all of a producer, oldest first.
type pendings struct {
	sync.Mutex
	first, last *pending
	n           int
	bytes       int64
}

func (l *pendings) add(pe *pending) {
	pe.listed, pe.prev = true, l.last
	if l.last == nil {
		l.first = pe
	} else {
		l.last.next = pe
	}
	l.last = pe
	l.n++
	l.bytes += pe.size
}

func (l *pendings) remove(pe *pending) {
	if pe.prev == nil {
		l.first = pe.next
	} else {
		pe.prev.next = pe.next
	}
	if pe.next == nil {
		l.last = pe.prev
	} else {
		pe.next.prev = pe.prev
	}
	pe.prev, pe.next, pe.listed = nil, nil, false
	l.n--
	l.bytes -= pe.size
}
