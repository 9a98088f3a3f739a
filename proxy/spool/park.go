package spool

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"go.uber.org/zap"
)

// park keeps a range of a segment as a file of its own: a bad record in the
// middle, or one that the queue will never take. The name says where it came
// from, so the same range is parked once, however often it is met. False means
// that it is not safe yet.
func (s *Spool) park(seg *segment, r io.ReaderAt, from, to int64) bool {
	path := filepath.Join(s.opt.Dir, fmt.Sprintf("%020d-%d.bad", seg.first, from))
	s.mu.Lock()
	_, already := s.bad[path]
	s.mu.Unlock()
	if already {
		return true
	}
	content := make([]byte, to-from) // at most a segment
	n, err := r.ReadAt(content, from)
	if err == nil || errors.Is(err, io.EOF) {
		err = writeWhole(s.fs, path, content[:n])
	}
	if err != nil {
		s.log.Error("a record of the spool has to be put aside, and that failed; it is tried again", zap.String("file", path), zap.Error(err))
		return false
	}
	s.mu.Lock()
	s.bad[path] = int64(n)
	s.used += int64(n)
	s.mu.Unlock()
	s.stats.bad.Add(1)
	s.log.Error("a record of the spool was put aside: look at it with 'tidegate spool inspect' and remove the file afterwards",
		zap.String("file", path), zap.Int64("bytes", to-from))
	return true
}

func (s *Spool) countBad(path string) error {
	f, err := s.fs.Open(path)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.bad[path] = size
	s.used += size
	return f.Close()
}
