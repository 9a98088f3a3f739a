package spool

import (
	"errors"
	"fmt"
	"path/filepath"

	"go.uber.org/zap"

	"tidegate/pkg/crash"
	"tidegate/pkg/fault"
)

// A batch is what gathered while the one before was being synced. These bounds
// keep its buffer small.
const (
	maxBatch      = 4096
	maxBatchBytes = 4 << 20
)

// write is the one goroutine that touches the active segment. It ends when the
// spool is closed and the queue is empty.
func (s *Spool) write() {
	defer close(s.stopped)
	var buf []byte
	for {
		batch := s.take()
		if batch == nil {
			return
		}
		buf = buf[:0]
		for _, e := range batch {
			buf = appendFrame(buf, e.seq, e.payload)
		}
		s.settle(batch, s.commit(buf))
	}
}

func (s *Spool) take() []*entry {
	for {
		s.mu.Lock()
		n, size := 0, int64(0)
		for n < len(s.queue) && n < maxBatch && size < maxBatchBytes {
			size += s.queue[n].size()
			n++
		}
		batch := s.queue[:n:n]
		s.queue = s.queue[n:]
		s.queued -= size
		if len(s.queue) == 0 {
			s.queue = nil
		}
		closed := s.closed
		s.mu.Unlock()
		if n > 0 {
			return batch
		}
		if closed {
			return nil
		}
		<-s.wake
	}
}

// commit makes the frames durable at the end of the active segment.
func (s *Spool) commit(frames []byte) error {
	s.io.Lock()
	defer s.io.Unlock()
	fresh := s.handle == nil
	if fresh {
		if err := s.create(frames); err != nil {
			return err
		}
	}
	seg := s.active
	crash.With("CP6", func() { _, _ = s.handle.WriteAt(frames[:halfOf(frames)], seg.size) })
	_, err := s.handle.WriteAt(frames, seg.size) // only this goroutine changes size
	if err == nil {
		s.stats.syncs.Add(1)
		err = s.handle.Sync()
	}
	if err != nil {
		return errors.Join(err, s.giveUp(fresh))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seg.size += int64(len(frames))
	seg.disk = seg.size
	if fresh {
		s.segs = append(s.segs, seg)
	}
	if seg.size >= s.opt.SegmentBytes {
		err = s.handle.Close() // everything in it is synced, so an error changes nothing
		if err != nil {
			s.log.Warn("a full segment of the spool did not close", zap.Error(err))
		}
		s.active, s.handle = nil, nil
	}
	return nil
}

// halfOf is the middle of the first frame, for crash point CP6.
func halfOf(frames []byte) int64 {
	f, _, err := (&scanner{r: bytesAt(frames), end: int64(len(frames))}).at(0)
	if err != nil || f == nil {
		return 0
	}
	return f.size / 2
}

// create makes the next segment, named by the first sequence that goes into it.
func (s *Spool) create(frames []byte) error {
	f, _, err := (&scanner{r: bytesAt(frames), end: int64(len(frames))}).at(0)
	if err != nil || f == nil {
		return fmt.Errorf("name a segment: the batch begins with no frame (%w)", err)
	}
	seg := &segment{first: f.seq, path: segmentPath(s.opt.Dir, f.seq)}
	h, err := s.fs.Create(seg.path)
	if err != nil {
		return err
	}
	if err := s.fs.SyncDir(s.opt.Dir); err != nil {
		return errors.Join(err, h.Close(), s.fs.Remove(seg.path))
	}
	s.active, s.handle = seg, h
	return nil
}

func segmentPath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d.seg", first))
}

// giveUp ends the active segment at its last good byte after a write or a sync
// failed: after a failed sync the kernel may call pages clean that never
// reached the disk, so nothing is added behind them. What was good before is
// on the disk and stays.
func (s *Spool) giveUp(fresh bool) error {
	seg, h := s.active, s.handle
	s.active, s.handle = nil, nil
	if fresh {
		return errors.Join(h.Close(), s.fs.Remove(seg.path))
	}
	err := h.Truncate(seg.size)
	if err == nil {
		err = h.Sync()
	}
	if size, e := h.Size(); e == nil && size > seg.size {
		s.mu.Lock()
		s.used += size - seg.disk
		seg.disk = size
		s.mu.Unlock()
	}
	return errors.Join(err, h.Close())
}

// settle tells everybody in the batch and keeps the books.
func (s *Spool) settle(batch []*entry, err error) {
	s.mu.Lock()
	first := err != nil && s.failure == nil
	recovered := err == nil && s.failure != nil
	s.failure = err
	s.pending -= len(batch)
	for _, e := range batch {
		if err == nil {
			s.records++
			s.live += e.size()
			s.topics[e.topic]++
			continue
		}
		s.used -= e.size()
		s.release(e.lane, e.keyed)
	}
	s.mu.Unlock()
	switch {
	case first: // once per outage: a log that floods would fill the same disk (T61)
		s.log.Error("the spool cannot be written: callbacks are refused while the queue is away; free space or replace the disk",
			zap.String("dir", s.opt.Dir), zap.Error(err))
	case recovered:
		s.log.Info("the spool can be written again", zap.String("dir", s.opt.Dir))
	}
	if err != nil {
		s.stats.refused.Add(uint64(len(batch)))
		err = fault.Wrap(fault.Unavailable, "append to spool "+s.opt.Dir, err)
	} else {
		s.stats.appended.Add(uint64(len(batch)))
		signal(s.more)
	}
	for _, e := range batch {
		e.done <- err
	}
}

// release takes one record of a lane off the books. mu is held.
func (s *Spool) release(l uint64, keyed bool) {
	if !keyed {
		return
	}
	if n := s.keys[l]; n > 1 {
		s.keys[l] = n - 1
	} else {
		delete(s.keys, l)
	}
}
