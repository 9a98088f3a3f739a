package spool

import (
	"slices"

	"go.uber.org/zap"
)

// keepBytes is how large a wholly replayed active segment may be before it is
// replaced: a new file for every few records would cost more than it frees.
const keepBytes = 1 << 20

// compact deletes the segments that lie wholly behind the cursor; all includes
// a small one at the end. Nothing in them is needed: the queue has
// acknowledged it, so a cursor that was not saved only costs duplicates.
func (s *Spool) compact(all bool) {
	s.io.Lock()
	s.mu.Lock()
	n := max(slices.Index(s.segs, s.head.seg), 0)
	if n == len(s.segs)-1 && n >= 0 && s.head.seg == s.segs[n] && s.head.off >= s.head.seg.size &&
		(all || s.head.seg.size >= min(keepBytes, s.opt.SegmentBytes)) {
		n++
	}
	gone := slices.Clone(s.segs[:n])
	s.segs = slices.Delete(s.segs, 0, n)
	var h file
	for _, seg := range gone {
		s.used -= seg.disk
		if seg == s.active {
			h, s.active, s.handle = s.handle, nil, nil
		}
		if seg == s.head.seg {
			s.head = position{}
		}
	}
	s.mu.Unlock()
	s.io.Unlock()
	if h != nil {
		_ = h.Close() // what was in it is with the queue
	}
	for _, seg := range gone {
		if err := s.fs.Remove(seg.path); err != nil {
			s.log.Warn("a replayed segment of the spool was not deleted; it is skipped at the next start", zap.String("file", seg.path), zap.Error(err))
		}
	}
}
