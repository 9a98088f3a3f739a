package spool

import (
	"slices"

	"tidegate/pkg/fault"
)

// item is a record to be published in this window.
type item struct {
	seq  uint64
	rec  Record
	lane uint64
	seg  *segment
	off  int64
	size int64
	done bool
	err  error
}

// mark is a step of the reader: what lies before end is settled once done.
type mark struct {
	seq  uint64 // 0 if it is no record
	end  position
	it   *item
	done bool
}

// pass is one way through the spool.
type pass struct {
	s      *Spool
	at     position // of the reader
	sc     *scanner
	f      file
	items  []*item
	marks  []mark
	failed map[string]bool // topics
	err    error
	// stuck: something that is not settled lies behind, so the cursor stays.
	stuck bool
}

func (s *Spool) newPass() *pass {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pass{s: s, at: s.start(), failed: map[string]bool{}}
}

func (p *pass) close() {
	if p.f != nil {
		_ = p.f.Close() // it was only read
	}
}

// read takes the next window.
func (p *pass) read() error {
	p.items, p.marks = p.items[:0], p.marks[:0]
	size := int64(0)
	for len(p.items) < p.s.opt.window && size < windowBytes && len(p.marks) < windowMarks {
		more, err := p.advance()
		if err != nil || !more {
			return err
		}
		fr, g, err := p.sc.next()
		if err != nil {
			return err
		}
		p.at.off = p.sc.pos
		if g != nil {
			p.marks = append(p.marks, mark{end: p.at, done: p.park(g.from, g.to)})
			continue
		}
		if p.take(fr) {
			size += fr.size
		}
	}
	return nil
}

// advance makes sure that the scanner has something to read; false is the end
// of what is durable.
func (p *pass) advance() (bool, error) {
	for {
		p.s.mu.Lock()
		if p.at.seg == nil {
			p.at = p.s.start()
		}
		seg := p.at.seg
		if seg == nil {
			p.s.mu.Unlock()
			return false, nil
		}
		end := seg.size
		var next *segment
		i := slices.Index(p.s.segs, seg)
		if i >= 0 && i+1 < len(p.s.segs) {
			next = p.s.segs[i+1]
		}
		p.s.mu.Unlock()
		if i < 0 { // all of it was replayed, and it is deleted
			p.leave(position{})
			continue
		}
		if p.sc == nil {
			f, err := p.s.fs.Open(seg.path)
			if err != nil {
				return false, err
			}
			p.f, p.sc = f, &scanner{r: f, pos: p.at.off, last: seg.first - 1}
		}
		if p.sc.end = end; p.sc.pos < end {
			return true, nil
		}
		if next == nil {
			return false, nil
		}
		p.leave(position{seg: next})
		p.marks = append(p.marks, mark{end: p.at, done: true})
	}
}

func (p *pass) leave(to position) {
	p.close()
	p.f, p.sc, p.at = nil, nil, to
}

// take turns a frame into an item, or into a mark alone if there is nothing to
// do with it now.
func (p *pass) take(fr frame) bool {
	m := mark{seq: fr.seq, end: p.at, done: p.s.isDone(fr.seq)}
	if !m.done {
		r, err := decode(fr.payload)
		switch {
		case err != nil:
			m.done = p.park(fr.off, fr.off+fr.size)
		case !p.failed[r.Topic]:
			m.it = &item{seq: fr.seq, rec: r, seg: p.at.seg, off: fr.off, size: fr.size}
			if r.Key != nil {
				m.it.lane = lane(p.s.seed, r.Topic, r.Key)
			}
			p.items = append(p.items, m.it)
		}
	}
	p.marks = append(p.marks, m)
	return m.it != nil
}

// park puts a range aside that holds no record of ours.
func (p *pass) park(from, to int64) bool {
	if p.s.park(p.at.seg, p.f, from, to) {
		return true
	}
	if p.err == nil {
		p.err = fault.New(fault.Unavailable, "read spool "+p.s.opt.Dir, "a bad record cannot be put aside, so what lies behind it is not deleted")
	}
	return false
}

func (s *Spool) isDone(seq uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ahead := s.ahead[seq]
	return ahead || seq < s.cursor
}
