package spool

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
)

// Options say where the spool lies and how large it may grow.
type Options struct {
	// Dir is a directory of this process alone, on a local disk.
	Dir string
	// MaxBytes bounds what lies in it. Default 1 GiB.
	MaxBytes int64
	// SegmentBytes is the size at which a segment is closed; it is deleted once
	// all of it was replayed. Default 64 MiB, at most an eighth of MaxBytes.
	SegmentBytes int64
	Log          *zap.Logger
	Now          func() time.Time // nil is the real clock

	window int // records that Replay publishes at once
}

func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 1 << 30
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = 64 << 20
	}
	o.SegmentBytes = min(o.SegmentBytes, max(o.MaxBytes/8, 1))
	if o.window <= 0 {
		o.window = windowRecords
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// maxQueued bounds the bytes that wait in memory for the disk: a disk that
// hangs must not become a process that grows.
const maxQueued = 16 << 20

// segment is one file. Its fields are guarded by Spool.mu.
type segment struct {
	first uint64 // sequence in its name; none in it is smaller
	path  string
	size  int64 // good bytes
	disk  int64 // bytes that it takes: more than size after a failed write
}

// position is a place in front of a frame; a nil segment is the beginning of
// whatever comes first.
type position struct {
	seg *segment
	off int64
}

// Spool is an open directory. It is safe for concurrent use.
type Spool struct {
	opt  Options
	fs   fileSystem
	log  *zap.Logger
	lock io.Closer
	seed maphash.Seed

	mu      sync.Mutex
	closed  bool
	queue   []*entry
	queued  int64 // bytes in queue
	pending int   // records appended, whose result is not known
	next    uint64
	segs    []*segment // oldest first
	used    int64      // bytes on disk or promised to a pending record
	bad     map[string]int64
	records int64            // durable and not replayed
	live    int64            // bytes of those
	keys    map[uint64]int32 // records per lane, the pending ones too
	topics  map[string]int64 // records per topic
	failure error            // why the last batch was not written; nil after a good one

	// cursor is the next sequence to replay and head a place at or before it.
	// Those above it that were replayed are in ahead.
	cursor uint64
	head   position
	ahead  map[uint64]struct{}
	oldest struct { // when the record at a cursor was appended
		at  time.Time
		seq uint64
	}

	// io is held while the active segment is written, closed or given up.
	// It is taken before mu.
	io     sync.Mutex
	active *segment
	handle file

	// replaying is held by the one Replay.
	replaying sync.Mutex

	stats   counters
	wake    chan struct{} // one token: the writer has something to look at
	more    chan struct{} // one token: there is something to replay
	stopped chan struct{} // closed when the writer has ended
}

// entry is a record on its way to the disk.
type entry struct {
	payload []byte
	topic   string
	lane    uint64
	keyed   bool
	seq     uint64
	done    chan error // buffered
}

func (e *entry) size() int64 { return frameHeader + int64(len(e.payload)) }

// Append returns nil once the record is durable. Its error is of kind Invalid
// (this record can never be taken), Unavailable (it was not taken: the spool or
// the disk is full, or the disk fails), or Ambiguous (ctx ended while it was
// being written).
func (s *Spool) Append(ctx context.Context, r Record) error {
	r.At = s.opt.Now()
	payload, err := r.encode()
	if err != nil {
		s.stats.refused.Add(1)
		return err
	}
	e := &entry{payload: payload, topic: r.Topic, keyed: r.Key != nil, done: make(chan error, 1)}
	if e.keyed {
		e.lane = lane(s.seed, r.Topic, r.Key)
	}
	if err := s.enqueue(e); err != nil {
		s.stats.refused.Add(1)
		return err
	}
	select {
	case err := <-e.done:
		return err
	case <-ctx.Done():
		return fault.New(fault.Ambiguous, "append to spool", "the record is being written and has no result yet: %w", context.Cause(ctx))
	}
}

// enqueue gives the record its place in the order.
func (s *Spool) enqueue(e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch size := e.size(); {
	case s.closed:
		return errClosed()
	case s.used+size > s.opt.MaxBytes:
		return s.full()
	case s.queued+size > maxQueued:
		return fault.New(fault.Unavailable, "append to spool", "the disk does not keep up: %d bytes wait for it", s.queued)
	default:
		s.used += size
		s.queued += size
	}
	e.seq = s.next
	s.next++
	s.pending++
	if e.keyed {
		s.keys[e.lane]++
	}
	s.queue = append(s.queue, e)
	signal(s.wake)
	return nil
}

func (s *Spool) full() error {
	return fault.New(fault.Unavailable, "append to spool", "spool full: %d of %d bytes in %s", s.used, s.opt.MaxBytes, s.opt.Dir)
}

func errClosed() error { return fault.New(fault.Unavailable, "spool", "it is closed") }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Holds tells that a record of this key is in the spool or on its way into it:
// a newer one must follow it there. It may say so of a key that is not, when two
// keys share a hash. A nil key is never held.
func (s *Spool) Holds(topic string, key []byte) bool {
	if key == nil {
		return false
	}
	l := lane(s.seed, topic, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[l] > 0
}

// More receives a token after records were appended, and one at the start if
// there are any: the time for Replay.
func (s *Spool) More() <-chan struct{} { return s.more }

// Ready tells whether the next Append can be expected to succeed. After a
// failure it tries the disk with a small file.
func (s *Spool) Ready() error {
	s.mu.Lock()
	closed, failure, room := s.closed, s.failure, s.opt.MaxBytes-s.used
	err := s.full()
	s.mu.Unlock()
	switch {
	case closed:
		return errClosed()
	case room < maxPayload && room < s.opt.MaxBytes/10:
		return err
	case failure == nil:
		return nil
	}
	return s.try()
}

// try writes and removes a small file.
func (s *Spool) try() error {
	path := filepath.Join(s.opt.Dir, "try")
	if err := writeWhole(s.fs, path, make([]byte, 4096)); err != nil {
		return fault.Wrap(fault.Unavailable, "write into spool "+s.opt.Dir, err)
	}
	return s.fs.Remove(path)
}

// Close refuses new records, waits for the writer and for a Replay under way –
// whose context the caller should have ended – and frees the directory. What is
// in the spool stays for the next Open. It may be called twice.
func (s *Spool) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	signal(s.wake)
	<-s.stopped
	if again {
		return nil
	}
	s.replaying.Lock()
	defer s.replaying.Unlock()
	err := s.seal()
	s.compact(true)
	return errors.Join(err, s.lock.Close())
}

// seal closes the active segment's file; everything in it is synced.
func (s *Spool) seal() error {
	s.io.Lock()
	defer s.io.Unlock()
	if s.handle == nil {
		return nil
	}
	err := s.handle.Close()
	s.active, s.handle = nil, nil
	if err != nil {
		return fmt.Errorf("close segment of spool: %w", err)
	}
	return nil
}
