package guard

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"tidegate/pkg/fault"
)

// fetching is a fetch under way for a flight.
type fetching struct {
	leader *ticket
	fence  int64 // of the lease; 0 if the fetch is this node's alone
	until  time.Time
	voided int    // the flight's invalidations when it began
	epoch  uint64 // of the local cache then
	out    chan landed
	left   atomic.Bool // the flight does not wait any more
}

// landed is what a fetch brought.
type landed struct {
	body []byte
	err  error
	at   time.Time
}

// result is the channel of the fetch under way; nil, which blocks, without one.
func (f *flight) result() <-chan landed {
	if f.fetching == nil {
		return nil
	}
	return f.fetching.out
}

// fetch begins a fetch in the place that is held. It runs with the context of
// the first caller, without that one's end: the value is for all.
func (f *flight) fetch(ctx context.Context, cut []*ticket, fence int64, begin time.Time) {
	f.start(ctx, f.begin(cut, fence, begin))
}

func (f *flight) begin(cut []*ticket, fence int64, begin time.Time) *fetching {
	r := &fetching{leader: cut[0], fence: fence, until: begin.Add(f.g.cfg.TokenTimeout), epoch: f.g.local.now(), out: make(chan landed, 1)}
	f.g.mu.Lock()
	r.voided, f.leased = f.voided, fence != 0
	f.g.mu.Unlock()
	f.waited = true
	f.fetching, f.admitted = r, false // the place is the fetch's now
	return r
}

func (f *flight) start(ctx context.Context, r *fetching) {
	limited, cancel := context.WithDeadline(context.WithoutCancel(r.leader.ctx), r.until)
	stop := context.AfterFunc(ctx, cancel) // Close ends it
	f.g.wg.Go(func() {
		defer cancel()
		defer stop()
		body, err := f.g.callSafely(limited, r.leader.fetch)
		at := time.Now()
		f.g.gate.release()
		r.out <- landed{body, err, at}
		if r.left.Load() && err == nil && r.fence != 0 && len(body) <= f.g.cfg.MaxValue && f.place.person == "" {
			// Too late for those who waited; good for others if nothing newer is there. A
			// person's place may be written down no more.
			_, err := f.g.store.publish(ctx, f.place, f.owner, r.fence, f.g.seal(f.place, body), time.Since(at), false)
			f.g.asked(ctx, err)
		}
	})
}

// callSafely is call for a goroutine of the guard: a panic of fetch must not end
// the process. Its value is left out, since it may quote what was fetched.
func (g *Guard) callSafely(ctx context.Context, fetch Fetch) (body []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			g.backend.note(false)
			err = fault.New(fault.Internal, "guard "+g.cfg.Backend, "the fetch panicked: %s", where(debug.Stack()))
		}
	}()
	return g.call(ctx, fetch)
}

// where cuts a stack to what an error can carry.
func where(stack []byte) string {
	const most = 2000
	return fmt.Sprintf("%.*s", most, stack)
}

// abandon stops waiting for a fetch that does not end. Its place stays taken
// until it does, since the back end still works for it.
func (f *flight) abandon() {
	f.fetching.left.Store(true)
	f.grounded()
	f.owner = token() // the lease of before has ended by itself
}

func (f *flight) grounded() {
	f.g.mu.Lock()
	f.leased = false
	f.g.mu.Unlock()
	f.fetching = nil
}

// land acts on what the fetch brought: publishes it, and answers those who were
// there before.
func (f *flight) land(ctx context.Context, l landed) {
	r := f.fetching
	f.grounded()
	cut := f.seal()
	tooLarge := errors.Is(l.err, ErrTooLarge) || l.err == nil && len(l.body) > f.g.cfg.MaxValue
	switch {
	case tooLarge:
		f.g.stats.uncached("size")
		f.end(ctx, r, l, aloneMark, f.g.cfg.TTL)
		if l.err == nil { // whoever waited for it may have it
			f.answer(r, f.entitled(r, cut), l, Lease)
		}
		f.give(cut, outcome{apart: true})
	case errors.Is(l.err, ErrNoStore):
		f.g.stats.uncached("private")
		f.end(ctx, r, l, aloneMark, f.g.cfg.TTL)
		f.answer(r, []*ticket{r.leader}, l, Pass)
		f.give(cut, outcome{apart: true})
	case errors.Is(l.err, ErrNotAsked): // the leader's own affair: the others ask themselves
		f.end(ctx, r, l, noMark, 0)
		f.give([]*ticket{r.leader}, outcome{result: Result{How: Lease}, err: l.err})
		f.give(cut, outcome{apart: true})
	case failed(l.err):
		f.end(ctx, r, l, failedMark, f.g.cfg.FailTTL)
		f.standIn(ctx, []*ticket{r.leader}, Lease, l.err) // the others find the mark
	case l.err != nil:
		f.end(ctx, r, l, noMark, 0)
		f.give(f.entitled(r, cut), outcome{result: Result{How: Lease}, err: l.err})
	default:
		f.publish(ctx, r, l, cut)
	}
}

// publish shares a value and gives it to those who came before that. If the
// publication is refused nobody gets it: the next look finds what is newer.
func (f *flight) publish(ctx context.Context, r *fetching, l landed, cut []*ticket) {
	if r.fence != 0 {
		fresh, err := f.g.store.publish(ctx, f.place, f.owner, r.fence, f.g.seal(f.place, l.body), time.Since(l.at), false)
		f.g.asked(ctx, err)
		switch {
		case err == nil && !fresh:
			f.g.stats.refused.Inc()
			return
		case err == nil:
			f.answer(r, cut, l, Lease)
			return
		}
		f.g.orphaned(f, r.fence)
	}
	cut = f.entitled(r, cut)
	if r.fence == 0 && f.unvoided(r) {
		f.g.local.put(localEntry{place: f.place, body: l.body, has: true, read: l.at}, r.epoch)
	}
	f.answer(r, cut, l, Local)
}

// answer gives the value to the leader as its own and to the others as waited for.
func (f *flight) answer(r *fetching, cut []*ticket, l landed, how How) {
	res := Result{Value: l.body, How: how, Age: time.Since(l.at), Fence: r.fence}
	f.give([]*ticket{r.leader}, outcome{result: res})
	if how == Lease {
		res.How = Waited
	}
	f.waited = false
	f.give(cut, outcome{result: res})
}

// end gives up the lease and leaves a mark, in Redis or here.
func (f *flight) end(ctx context.Context, r *fetching, l landed, mark string, life time.Duration) {
	if r.fence != 0 {
		err := f.g.store.settle(ctx, f.place, f.owner, r.fence, mark, life)
		f.g.asked(ctx, err)
		if err != nil {
			f.g.orphaned(f, r.fence)
		}
		return
	}
	if mark == noMark {
		return
	}
	e, _ := f.g.local.get(f.place) // what is there may still stand in
	e.place = f.place
	if mark == failedMark {
		e.failed = l.at.Add(life)
	} else {
		e = localEntry{place: f.place, alone: l.at.Add(life)}
	}
	f.g.local.put(e, r.epoch)
}

// entitled are those who came before any invalidation on this node that the
// fetch does not know of.
func (f *flight) entitled(r *fetching, cut []*ticket) []*ticket {
	var out []*ticket
	for _, t := range cut {
		if t.voided <= r.voided {
			out = append(out, t)
		}
	}
	return out
}

func (f *flight) unvoided(r *fetching) bool {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	return f.voided == r.voided
}

// lookHere is look without the other nodes.
func (f *flight) lookHere(ctx context.Context, cut []*ticket) time.Duration {
	now := time.Now()
	e, end := f.here()
	switch {
	case e.has && now.Before(end):
		f.leaveGate()
		f.serve(cut, Result{Value: e.body, How: Local, Age: now.Sub(e.read)})
	case now.Before(e.failed):
		f.leaveGate()
		f.standIn(ctx, cut, Shed, f.g.busyFailed(e.failed.Sub(now)))
	case now.Before(e.alone):
		f.leaveGate()
		f.give(cut, outcome{apart: true})
	case f.admitted:
		f.start(ctx, f.begin(cut, 0, now))
		return f.g.cfg.TokenTimeout
	default:
		return f.approach(ctx, cut)
	}
	return 0
}

// here is what this node holds of the place by itself, and the end of its life.
func (f *flight) here() (localEntry, time.Time) {
	e, _ := f.g.local.get(f.place)
	end := e.read.Add(f.g.cfg.TTL)
	if _, began := f.g.mode.activation(); f.g.cfg.TTLStart == StartActivation && e.read.Before(began) {
		if later := began.Add(f.g.lifeAt(f.place)); later.After(end) {
			end = later
		}
	}
	return e, end
}

// expire answers those who have waited long enough, with a stale value if there is one.
func (f *flight) expire(ctx context.Context) {
	now := time.Now()
	var due []*ticket
	for _, t := range f.seal() {
		if !t.done && !now.Before(t.deadline) {
			due = append(due, t)
		}
	}
	if len(due) > 0 {
		f.standIn(ctx, due, Shed, f.g.busy("no value in time", time.Second))
	}
}

// standIn answers with a stale value, or with why there is none better.
func (f *flight) standIn(ctx context.Context, cut []*ticket, how How, why error) {
	a := answer{}
	switch {
	case f.g.cfg.StaleGrace == 0:
	case f.g.together(f.place.resource):
		if found, err := f.ask(ctx, "peek"); err == nil {
			a = found
		}
	default:
		if e, end := f.here(); e.has && time.Now().Before(end.Add(f.g.cfg.StaleGrace)) {
			a = answer{what: "STALE", body: e.body, has: true, age: time.Since(e.read)}
		}
	}
	f.refuse(cut, a, how, why)
}

// refuse answers with what a look brought along, or with why there is nothing.
func (f *flight) refuse(cut []*ticket, a answer, how How, why error) {
	switch {
	case a.has && a.what == "HIT": // it came at the last moment
		f.serve(cut, Result{Value: a.body, How: Waited, Age: a.age, Fence: a.fence})
	case a.has:
		f.serve(cut, Result{Value: a.body, How: Stale, Age: a.age, Fence: a.fence})
	default:
		f.give(cut, outcome{result: Result{How: how}, err: why})
	}
}

func (g *Guard) busyFailed(again time.Duration) error {
	return fault.New(fault.Unavailable, "guard "+g.cfg.Backend, "the back end failed a moment ago: try again").WithRetryAfter(again)
}
