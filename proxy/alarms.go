package proxy

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"tidegate/pkg/alarm"
)

// watchEvery is how often the door looks at itself.
const watchEvery = time.Second

// watch gathers what the door's alarms are decided from. Handlers count, and a
// loop of its own looks once a second; nobody waits for it.
type watch struct {
	board *alarm.Board
	now   func() time.Time
	judge *judge

	unchecked, checked atomic.Int64

	mu       sync.Mutex
	accounts map[string]*tally
}

// tally counts callbacks of one account, over all changes of its settings.
type tally struct {
	seen   atomic.Int64 // authentic callbacks
	failed atomic.Int64 // of those, answered with 503
}

func newWatch(b *alarm.Board, now func() time.Time) *watch {
	return &watch{board: b, now: now, judge: newJudge(), accounts: map[string]*tally{}}
}

// keep gives each account its tally, old ones as they are, and forgets those
// that are gone.
func (w *watch) keep(entries map[string]*entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, e := range entries {
		if w.accounts[name] == nil {
			w.accounts[name] = &tally{}
		}
		e.tally = w.accounts[name]
	}
	for name := range w.accounts {
		if entries[name] == nil {
			delete(w.accounts, name)
		}
	}
}

// asked notes whether a claim was checked.
func (w *watch) asked(unchecked bool) {
	if unchecked {
		w.unchecked.Add(1)
	} else {
		w.checked.Add(1)
	}
}

// look takes one sample and tells the board what follows from it.
func (w *watch) look(o *outlet) func(context.Context) {
	return func(context.Context) {
		for _, v := range w.judge.decide(w.sample(o)) {
			if v.firing {
				w.board.Fire(v.alarm)
			} else {
				w.board.Resolve(v.alarm.Name, v.alarm.Subject)
			}
		}
	}
}

func (w *watch) sample(o *outlet) sample {
	s := sample{at: w.now(), unchecked: w.unchecked.Load(), checked: w.checked.Load(), accounts: map[string]counts{}, broken: o.broken()}
	w.mu.Lock()
	for name, t := range w.accounts {
		s.accounts[name] = counts{t.seen.Load(), t.failed.Load()}
	}
	w.mu.Unlock()
	if o.spool != nil {
		d := o.spool.Depth()
		s.records, s.disk, s.limit, s.oldest = d.Records, d.Disk, d.Max, d.Oldest
		// Counted in the directory: a person removes the files while we run.
		s.aside = aside(o.dir)
	}
	return s
}

// aside counts what the spool has put aside. A directory that cannot be read is
// told by the spool itself, which writes there.
func aside(dir string) int {
	files, _ := os.ReadDir(dir)
	n := 0
	for _, f := range files {
		if filepath.Ext(f.Name()) == ".bad" {
			n++
		}
	}
	return n
}

// broken is how many topics' breakers are open.
func (o *outlet) broken() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.open)
}
