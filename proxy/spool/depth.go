package spool

import (
	"maps"
	"sync/atomic"
	"time"
)

// Depth is how much waits for the queue.
type Depth struct {
	Records int64
	Bytes   int64     // of those records
	Oldest  time.Time // when the first of them was appended; zero if there is none
	Disk    int64     // bytes that the directory takes, with what is parked and what is not deleted yet
	Max     int64     // Disk never exceeds it
}

// Stats count since Open.
type Stats struct {
	Appended uint64 // records made durable
	Refused  uint64 // records not taken
	Replayed uint64 // records that publish has taken
	Parked   uint64 // records that publish will never take, put aside
	Bad      uint64 // ranges put aside, the parked records among them
	Syncs    uint64 // of segments: Appended ÷ Syncs records shared one
}

type counters struct {
	appended, refused, replayed, parked, bad, syncs atomic.Uint64
}

// Stats gives the counts so far.
func (s *Spool) Stats() Stats {
	c := &s.stats
	return Stats{
		Appended: c.appended.Load(), Refused: c.refused.Load(), Replayed: c.replayed.Load(),
		Parked: c.parked.Load(), Bad: c.bad.Load(), Syncs: c.syncs.Load(),
	}
}

// Depth tells how much waits.
func (s *Spool) Depth() Depth {
	s.mu.Lock()
	d := Depth{Records: s.records, Bytes: s.live, Disk: s.used, Max: s.opt.MaxBytes}
	at, cursor := s.start(), s.cursor
	known := s.oldest
	s.mu.Unlock()
	if d.Records == 0 {
		return d
	}
	if known.seq == cursor {
		d.Oldest = known.at
		return d
	}
	seq, when, ok := s.firstFrom(at, cursor)
	if !ok { // it was replayed in this moment
		d.Oldest = known.at
		return d
	}
	s.mu.Lock()
	if s.cursor == cursor && seq >= cursor {
		s.oldest.at, s.oldest.seq = when, cursor
	}
	s.mu.Unlock()
	d.Oldest = when
	return d
}

// Waiting tells how many records of each topic wait for the queue; a topic
// without any is missing.
func (s *Spool) Waiting() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.topics)
}

// firstFrom finds when the first record from the cursor on was appended.
func (s *Spool) firstFrom(at position, cursor uint64) (uint64, time.Time, bool) {
	if at.seg == nil {
		return 0, time.Time{}, false
	}
	f, err := s.fs.Open(at.seg.path)
	if err != nil {
		return 0, time.Time{}, false
	}
	defer f.Close()
	s.mu.Lock()
	end := at.seg.size
	s.mu.Unlock()
	sc := &scanner{r: f, pos: at.off, end: end, last: at.seg.first - 1}
	for {
		fr, g, err := sc.next()
		if err != nil {
			return 0, time.Time{}, false
		}
		if g != nil || fr.seq < cursor {
			continue
		}
		if r, err := decode(fr.payload); err == nil {
			return fr.seq, r.At, true
		}
	}
}

// start is where reading begins. mu is held.
func (s *Spool) start() position {
	if s.head.seg != nil || len(s.segs) == 0 {
		return s.head
	}
	return position{seg: s.segs[0]}
}
