package wechatsim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Journal is the bounded record of everything that happened. Appending gives an
// entry its number and its time under one lock, so numbers and times agree.
type Journal struct {
	clock Clock
	judge *Judge
	start time.Time
	base  int64

	mu      sync.Mutex
	next    uint64
	ring    []Entry
	limit   int
	dropped uint64
	file    *journalFile
	changed chan struct{}
}

func newJournal(cfg JournalConfig, clock Clock) (*Journal, []Entry, error) {
	j := &Journal{
		clock: clock, judge: NewJudge(cfg.Stimuli), start: time.Now(),
		base:  1, // no time is 0, which means "not yet" to the judge
		limit: cfg.Entries, changed: make(chan struct{}),
	}
	if cfg.File == "" {
		return j, nil, nil
	}
	old, file, err := openJournalFile(cfg.File, cfg.FileBytes)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range old {
		if e.Seq != j.next+1 {
			return nil, nil, errors.Join(fmt.Errorf("read journal file %s: entry %d follows entry %d: the file is damaged, start a new one",
				cfg.File, e.Seq, j.next), file.close())
		}
		j.judge.Add(e)
		j.keep(e)
		j.base, j.next = max(j.base, e.At+1), e.Seq
	}
	j.file = file
	for _, e := range j.judge.unsettled() { // deliveries that the end of the last run cut off
		e.Error = "the simulator ended meanwhile"
		j.append(e)
	}
	return j, old, nil
}

// Now is monotonic time on the journal's own scale.
func (j *Journal) Now() int64 { return j.base + int64(time.Since(j.start)) }

// append records e and returns it with its number and time.
func (j *Journal) append(e Entry) Entry {
	wall := j.clock.Now().UnixMilli()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.next++
	e.Seq, e.At = j.next, j.Now()
	if e.Wall == 0 {
		e.Wall = wall
	}
	j.keep(e)
	if j.file != nil {
		j.file.write(e)
	}
	j.judge.Add(e)
	close(j.changed)
	j.changed = make(chan struct{})
	return e
}

// keep stores e in the ring.
func (j *Journal) keep(e Entry) {
	if len(j.ring) < j.limit {
		j.ring = append(j.ring, e)
		return
	}
	j.ring[(e.Seq-1)%uint64(j.limit)] = e
	j.dropped++
}

// Read returns up to limit entries after number seq that keep accepts (nil
// accepts all), and the number to go on from. Entries that were dropped from
// memory are skipped.
func (j *Journal) Read(seq uint64, limit int, keep func(*Entry) bool) ([]Entry, uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.next == 0 {
		return nil, seq
	}
	first := j.next - uint64(len(j.ring)) + 1
	at := max(seq+1, first)
	var out []Entry
	for ; at <= j.next && len(out) < limit; at++ {
		e := &j.ring[(at-1)%uint64(j.limit)]
		if keep == nil || keep(e) {
			out = append(out, *e)
		}
	}
	return out, at - 1
}

// Wait returns when an entry after number seq exists, or with ctx's error.
func (j *Journal) Wait(ctx context.Context, seq uint64) error {
	for {
		j.mu.Lock()
		changed, ready := j.changed, j.next > seq
		j.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Len is the number of the newest entry and how many left memory.
func (j *Journal) Len() (newest, dropped uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.next, j.dropped
}

// verdict is the judge's opinion now, with what the journal itself knows.
func (j *Journal) verdict(grace time.Duration) Verdict {
	v := j.judge.Verdict(j.Now(), grace)
	j.mu.Lock()
	defer j.mu.Unlock()
	v.Journal.Entries, v.Journal.Dropped = j.next, j.dropped
	if j.file != nil && j.file.err != nil {
		v.Complete, v.Journal.FileError = false, j.file.err.Error()
	}
	return v
}

func (j *Journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	return j.file.close()
}
