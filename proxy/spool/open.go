package spool

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
)

// Open takes the directory, reads what is in it and repairs its tail. It
// refuses a directory that cannot be written or that another process uses.
func Open(o Options) (*Spool, error) { return openOn(disk{}, o) }

func openOn(fs fileSystem, o Options) (*Spool, error) {
	o = o.withDefaults()
	if o.Dir == "" {
		return nil, fault.New(fault.Invalid, "open spool", "no directory is named")
	}
	op := "open spool " + o.Dir
	if err := fs.Prepare(o.Dir); err != nil {
		return nil, fault.New(fault.Invalid, op, "give a directory that this user can write: %w", err)
	}
	lock, err := fs.Lock(filepath.Join(o.Dir, "LOCK"))
	if err != nil {
		return nil, fault.New(fault.Invalid, op, "give a directory that this user can write and nobody else uses: %w", err)
	}
	s := &Spool{
		opt: o, fs: fs, log: o.Log, lock: lock, seed: maphash.MakeSeed(),
		bad: map[string]int64{}, keys: map[uint64]int32{}, topics: map[string]int64{}, ahead: map[uint64]struct{}{},
		wake: make(chan struct{}, 1), more: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	err = s.restore()
	if err == nil {
		err = s.tryFirst()
	}
	if err != nil {
		return nil, errors.Join(fault.Wrap(fault.Unavailable, op, err), lock.Close())
	}
	if len(s.segs) > 0 {
		signal(s.more)
	}
	if s.records > 0 {
		s.log.Info("the spool holds records of an earlier run", zap.Int64("records", s.records), zap.Int64("bytes", s.live))
	}
	go s.write()
	return s, nil
}

// restore reads the directory. Nobody else has the spool yet, so it needs no
// lock.
func (s *Spool) restore() error {
	firsts, err := s.list()
	if err != nil {
		return err
	}
	s.cursor = s.loadCursor()
	s.next = max(s.cursor, 1)
	for len(firsts) > 1 && firsts[1] <= s.cursor { // wholly replayed; the crash came before its end
		if err := s.fs.Remove(segmentPath(s.opt.Dir, firsts[0])); err != nil {
			return err
		}
		firsts = firsts[1:]
	}
	last := uint64(0)
	for i, first := range firsts {
		if last, err = s.load(&segment{first: first, path: segmentPath(s.opt.Dir, first)}, last, i == len(firsts)-1); err != nil {
			return fmt.Errorf("read segment %d: %w", first, err)
		}
	}
	s.next = max(s.next, last+1)
	if s.cursor == 0 {
		s.cursor = 1
	}
	return nil
}

// tryFirst refuses a directory that cannot be written. A disk that is full is
// no reason not to start: replaying what is there makes room.
func (s *Spool) tryFirst() error {
	err := s.try()
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		s.failure = err
		s.log.Error("the disk of the spool is full: callbacks are refused while the queue is away; free space", zap.String("dir", s.opt.Dir))
		return nil
	}
	return err
}

// list finds the segments and what was parked, and removes what a crash left
// half written.
func (s *Spool) list() ([]uint64, error) {
	names, err := s.fs.List(s.opt.Dir)
	if err != nil {
		return nil, err
	}
	var firsts []uint64
	for _, name := range names {
		path := filepath.Join(s.opt.Dir, name)
		if first, ok := segmentName(name); ok {
			firsts = append(firsts, first)
			continue
		}
		switch {
		case name == "try", filepath.Ext(name) == ".tmp":
			err = s.fs.Remove(path)
		case filepath.Ext(name) == ".bad":
			err = s.countBad(path)
		}
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(firsts)
	return firsts, nil
}

func segmentName(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ".seg")
	if !ok || len(digits) != 20 {
		return 0, false
	}
	first, err := strconv.ParseUint(digits, 10, 64)
	return first, err == nil && first > 0
}

// load reads one segment and gives the last sequence in it.
func (s *Spool) load(seg *segment, last uint64, isLast bool) (uint64, error) {
	f, err := s.fs.Open(seg.path)
	if err != nil {
		return last, err
	}
	defer f.Close()
	if seg.size, err = f.Size(); err != nil {
		return last, err
	}
	sc := &scanner{r: f, end: seg.size, last: max(last, seg.first-1)}
	good := false
	for {
		fr, g, err := sc.next()
		switch {
		case errors.Is(err, io.EOF):
			seg.disk = seg.size
			last = max(sc.last, seg.first) // the name is used up too
			if !good {
				return last, s.fs.Remove(seg.path)
			}
			s.segs = append(s.segs, seg)
			s.used += seg.disk
			return last, nil
		case err != nil:
			return last, err
		case g != nil && isLast && g.tail:
			if err := s.cut(seg, f, *g); err != nil {
				return last, err
			}
			sc.end = min(sc.end, seg.size)
		case g != nil:
			s.park(seg, f, g.from, g.to)
			good = true // its bytes stay until the cursor has passed them
		default:
			good = true
			s.count(seg, f, fr)
		}
	}
}

// cut takes a torn tail off. A tail that claims to be whole may be a record
// that has rotted: it is kept aside first, and left in place if that fails.
func (s *Spool) cut(seg *segment, f file, g gap) error {
	if g.whole && !s.park(seg, f, g.from, g.to) {
		return nil
	}
	s.log.Warn("the spool ends with an unfinished record, which was never acknowledged; it is cut off",
		zap.String("segment", filepath.Base(seg.path)), zap.Int64("offset", g.from), zap.Int64("bytes", g.to-g.from))
	if err := f.Truncate(g.from); err != nil {
		return err
	}
	seg.size = g.from
	return f.Sync()
}

// count takes a good frame into the books if it was not replayed yet.
func (s *Spool) count(seg *segment, f file, fr frame) {
	if fr.seq < s.cursor {
		return
	}
	r, err := decode(fr.payload)
	if err != nil {
		s.park(seg, f, fr.off, fr.off+fr.size)
		return
	}
	if s.records == 0 {
		s.head = position{seg, fr.off}
	}
	s.records++
	s.live += fr.size
	s.topics[r.Topic]++
	if r.Key != nil {
		s.keys[lane(s.seed, r.Topic, r.Key)]++
	}
}

// bytesAt reads from memory.
func bytesAt(b []byte) io.ReaderAt { return bytes.NewReader(b) }
