package spool

import (
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tidegate/pkg/fault"
)

// Report is what lies in a directory.
type Report struct {
	InUse    bool // a process holds the directory; what it writes meanwhile is not in the report
	Segments int
	Disk     int64 // bytes of all files
	Cursor   uint64
	Waiting  int64 // records that were not replayed
	Bytes    int64 // of those
	Replayed int64 // records that were, whose segment is not deleted yet
	Oldest   time.Time
	Newest   time.Time
	Topics   []TopicReport // by name
	Keys     []KeyReport   // the ones with the most records, at most 10
	Bad      []BadReport   // ranges in segments that cannot be read
	Parked   []ParkedReport
}

// TopicReport counts the waiting records of a topic.
type TopicReport struct {
	Topic         string
	Records, Keys int64
}

// KeyReport counts the waiting records of a key. The key is an openid: show it
// only as a keyed hash.
type KeyReport struct {
	Topic, Key string
	Records    int64
}

// BadReport is a range of a segment without a good record. At the end of the
// last segment it is a record that was never finished.
type BadReport struct {
	File       string
	From, To   int64
	Unfinished bool
}

// ParkedReport is a file of something that was put aside.
type ParkedReport struct {
	File  string
	Bytes int64
	Topic string // of the record in it; empty if it cannot be read
}

// ours tells that a file is one that a spool makes. The first of them is there
// from the first start on.
func ours(e os.DirEntry) bool {
	_, segment := segmentName(e.Name())
	return !e.IsDir() && (segment || e.Name() == "LOCK" || e.Name() == "cursor" || filepath.Ext(e.Name()) == ".bad")
}

// Inspect reads a directory and changes nothing, also while a process uses it.
func Inspect(dir string) (Report, error) {
	op := "inspect spool " + dir
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Report{}, fault.Wrap(fault.NotFound, op, err)
	}
	if !slices.ContainsFunc(entries, ours) {
		return Report{}, fault.New(fault.Invalid, op, "this is no spool: it has no LOCK, no cursor and no *.seg; give the directory of proxy.spool.dir")
	}
	i := inspector{keys: map[KeyReport]int64{}}
	i.r.InUse = inUse(filepath.Join(dir, "LOCK"))
	if line, err := readSmall(disk{}, filepath.Join(dir, "cursor")); err == nil {
		i.r.Cursor, _ = parseCursor(line)
	}
	var segments []string // in order, since names are
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if st, err := e.Info(); err == nil {
			i.r.Disk += st.Size()
		}
		if _, ok := segmentName(e.Name()); ok {
			segments = append(segments, path)
		}
		if filepath.Ext(path) == ".bad" {
			err = i.parked(path)
		}
		if err != nil {
			return i.r, fault.Wrap(fault.Unavailable, op, err)
		}
	}
	i.r.Segments = len(segments)
	for n, path := range segments {
		err := i.segment(path, n == len(segments)-1)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // deleted meanwhile
			return i.r, fault.Wrap(fault.Unavailable, op, err)
		}
	}
	i.sum()
	return i.r, nil
}

func inUse(lock string) bool {
	f, err := os.OpenFile(lock, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return tryLock(f) != nil
}

type inspector struct {
	r    Report
	keys map[KeyReport]int64 // Records is 0 in the key
	last uint64
}

func (i *inspector) segment(path string, isLast bool) error {
	f, size, err := openRead(path)
	if err != nil {
		return err
	}
	defer f.Close()
	first, _ := segmentName(filepath.Base(path))
	sc := &scanner{r: f, end: size, last: max(i.last, first-1)}
	for {
		fr, g, err := sc.next()
		if errors.Is(err, io.EOF) {
			i.last = sc.last
			return nil
		}
		if err != nil {
			return err
		}
		if g != nil {
			i.r.Bad = append(i.r.Bad, BadReport{File: filepath.Base(path), From: g.from, To: g.to, Unfinished: isLast && g.tail})
			continue
		}
		if fr.seq < i.r.Cursor {
			i.r.Replayed++
			continue
		}
		rec, err := decode(fr.payload)
		if err != nil {
			i.r.Bad = append(i.r.Bad, BadReport{File: filepath.Base(path), From: fr.off, To: fr.off + fr.size})
			continue
		}
		i.waiting(rec, fr.size)
	}
}

func (i *inspector) waiting(rec Record, size int64) {
	if i.r.Waiting == 0 || rec.At.Before(i.r.Oldest) {
		i.r.Oldest = rec.At
	}
	if rec.At.After(i.r.Newest) {
		i.r.Newest = rec.At
	}
	i.r.Waiting++
	i.r.Bytes += size
	i.keys[KeyReport{Topic: rec.Topic, Key: string(rec.Key)}]++
}

func (i *inspector) parked(path string) error {
	f, size, err := openRead(path)
	if err != nil {
		return err
	}
	defer f.Close()
	p := ParkedReport{File: filepath.Base(path), Bytes: size}
	sc := &scanner{r: f, end: size}
	if fr, g, err := sc.next(); err == nil && g == nil {
		if rec, err := decode(fr.payload); err == nil {
			p.Topic = rec.Topic
		}
	}
	i.r.Parked = append(i.r.Parked, p)
	return nil
}

// sum turns the counts into lists.
func (i *inspector) sum() {
	topics := map[string]*TopicReport{}
	for k, n := range i.keys {
		t := topics[k.Topic]
		if t == nil {
			t = &TopicReport{Topic: k.Topic}
			topics[k.Topic] = t
		}
		t.Records += n
		if k.Key != "" {
			t.Keys++
			k.Records = n
			i.r.Keys = append(i.r.Keys, k)
		}
	}
	for _, t := range topics {
		i.r.Topics = append(i.r.Topics, *t)
	}
	slices.SortFunc(i.r.Topics, func(a, b TopicReport) int { return cmp.Compare(a.Topic, b.Topic) })
	slices.SortFunc(i.r.Keys, func(a, b KeyReport) int {
		return cmp.Or(cmp.Compare(b.Records, a.Records), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Key, b.Key))
	})
	i.r.Keys = i.r.Keys[:min(len(i.r.Keys), 10)]
}

func openRead(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, st.Size(), nil
}
