package kafka

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Why a session is ended by the member itself.
var (
	errFrozen  = errors.New("the process stood still for so long that the group may have gone on without it")
	errStalled = errors.New("handlers show no sign of life")
)

// looks is in how many looks in a row a handler must have been silent beyond
// what it asked for. Looks are counted, and not only the clock read, so that a
// process that stood still is not taken for one whose handlers hang.
const looks = 10

// watch looks after one member while it runs, for two kinds of trouble that the
// coordinator does not see, because heartbeats have a goroutine of their own.
//
// Frozen: its ticks show when the whole process stood still for as long as a
// session lasts. Then nothing is owned any more until the member has joined
// again.
//
// Stalled: a running handler that has been silent for StallAfter beyond what it
// said it might be (Alive). The partition's offset cannot pass it, whatever the
// others do, so the member gives its partitions to the rest of the group.
type watch struct {
	epoch  time.Time
	limit  int64        // a gap between two beats that is doubt
	last   atomic.Int64 // the newest beat
	frozen func(gap time.Duration)

	running []atomic.Pointer[call] // by worker
	seen    []sight                // by worker; of the looking goroutine only
}

// sight is what the last look saw of a worker.
type sight struct {
	call   *call
	quiet  int64
	silent int // looks in a row
}

// newWatch makes a watch for so many workers. The broker counts the silence of
// a member from its last heartbeat, which may be one interval before a gap.
func newWatch(workers int, session, heartbeat time.Duration, frozen func(gap time.Duration)) *watch {
	return &watch{
		epoch: time.Now(), limit: int64(session - heartbeat), frozen: frozen,
		running: make([]atomic.Pointer[call], workers), seen: make([]sight, workers),
	}
}

func (w *watch) now() int64 { return int64(time.Since(w.epoch)) }

// beat notes that the process runs. Whoever comes first after a gap, the ticker
// or a handler that asks what it owns, reports it before anything else happens.
func (w *watch) beat() {
	now := w.now()
	last := w.last.Load()
	if now-last > w.limit {
		w.frozen(time.Duration(now - last))
	}
	if now > last {
		w.last.CompareAndSwap(last, now)
	}
}

// look gives the calls that have been silent for too long.
func (w *watch) look() (stalled []*call) {
	now := w.now()
	for i := range w.running {
		c, s := w.running[i].Load(), &w.seen[i]
		if c == nil {
			*s = sight{}
			continue
		}
		quiet := c.quiet.Load()
		switch {
		case c != s.call || quiet != s.quiet:
			*s = sight{call: c, quiet: quiet}
		case now > quiet:
			s.silent++
		}
		if s.silent >= looks {
			stalled = append(stalled, c)
		}
	}
	return stalled
}

// calls gives what runs.
func (w *watch) calls() (out []*call) {
	for i := range w.running {
		if c := w.running[i].Load(); c != nil {
			out = append(out, c)
		}
	}
	return out
}

// run beats, and looks if stallAfter is set, until the returned function is
// called.
func (w *watch) run(every, stallAfter time.Duration, stalled func([]*call)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	w.last.Store(w.now())
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				w.beat()
			case <-ctx.Done():
				return
			}
		}
	})
	if stallAfter > 0 {
		wg.Go(func() {
			tick := time.NewTicker(stallAfter / looks)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					if calls := w.look(); len(calls) > 0 {
						stalled(calls)
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}
