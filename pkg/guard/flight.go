package guard

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"tidegate/pkg/fault"
)

// ticket is one caller that waits for a flight.
type ticket struct {
	ctx      context.Context
	fetch    Fetch
	deadline time.Time
	voided   int         // the flight's invalidations when it came
	gone     atomic.Bool // its caller went away
	done     bool        // answered
	out      chan outcome
}

// outcome is a ticket's answer. apart tells the caller to fetch for itself.
type outcome struct {
	result Result
	err    error
	apart  bool
}

// flight is all the callers of one node that want one value. Its goroutine is the
// only one that looks, contends for the lease and fetches for them.
//
// Each answer is sealed before it is asked for: it goes to the tickets that were
// there then, so that nobody is answered with what he came too late to be allowed.
type flight struct {
	g     *Guard
	place place
	owner string // of leases

	// Guarded by g.mu.
	tickets []*ticket
	voided  int  // invalidations on this node so far
	leased  bool // it fetches with a lease

	woken chan struct{} // something about the resource was announced

	// Of the goroutine alone.
	queued   chan error // a place in the gate is waited for
	unqueue  context.CancelFunc
	admitted bool // a place is held
	fetching *fetching
	waited   bool // it has looked and found that it must wait
}

// guarded is the way in protection.
func (g *Guard) guarded(ctx context.Context, p place, fetch Fetch) (Result, error) {
	t, err := g.join(ctx, p, fetch)
	if err != nil {
		return Result{How: Shed}, err
	}
	defer g.left()
	select {
	case o := <-t.out:
		if o.apart {
			return g.apart(ctx, fetch)
		}
		return o.result, o.err
	case <-ctx.Done():
		t.gone.Store(true)
		return Result{How: Shed}, fault.Wrap(fault.Unavailable, "guard "+g.cfg.Backend, ctx.Err())
	}
}

// join takes part in the flight for a place, or begins it.
func (g *Guard) join(ctx context.Context, p place, fetch Fetch) (*ticket, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return nil, fault.Wrap(fault.Unavailable, "guard "+g.cfg.Backend, errClosed)
	case g.waiting >= g.cfg.MaxWaiting:
		return nil, g.busy("too many callers wait", time.Second)
	}
	g.waiting++
	t := &ticket{ctx: ctx, fetch: fetch, deadline: time.Now().Add(g.cfg.WaitMax), out: make(chan outcome, 1)}
	f := g.flights[p.id()]
	if f == nil {
		f = &flight{g: g, place: p, owner: token(), woken: make(chan struct{}, 1)}
		g.flights[p.id()] = f
		g.wg.Go(func() { f.run(g.ctx) })
	}
	t.voided = f.voided
	f.tickets = append(f.tickets, t)
	return t, nil
}

func (g *Guard) left() {
	g.mu.Lock()
	g.waiting--
	g.mu.Unlock()
}

// run serves the flight until nobody waits for it and nothing is under way.
func (f *flight) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer f.leaveGate()
	for f.alive() {
		select {
		case <-timer.C:
		case <-f.woken:
		case err := <-f.queued:
			f.fromQueue(err)
		case r := <-f.result():
			f.land(ctx, r)
		case <-ctx.Done():
			f.give(f.seal(), outcome{result: Result{How: Shed}, err: fault.Wrap(fault.Unavailable, "guard "+f.g.cfg.Backend, errClosed)})
			if f.fetching != nil {
				<-f.fetching.out // its context has ended with ours
			}
			continue
		}
		timer.Reset(f.step(ctx))
	}
}

// alive reports whether there is anything to do, and ends the flight otherwise.
func (f *flight) alive() bool {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	keep := f.tickets[:0]
	for _, t := range f.tickets {
		if !t.done && !t.gone.Load() {
			keep = append(keep, t)
		}
	}
	clear(f.tickets[len(keep):])
	f.tickets = keep
	if len(keep) > 0 || f.fetching != nil && f.g.ctx.Err() == nil {
		return true
	}
	delete(f.g.flights, f.place.id())
	return false
}

// step does what can be done now and says when to come again.
func (f *flight) step(ctx context.Context) time.Duration {
	f.expire(ctx)
	cut := f.seal()
	switch {
	case f.fetching != nil:
		if left := time.Until(f.fetching.until); left > 0 {
			return f.untilDue(cut, left)
		}
		f.abandon() // it does not end with its context: others must be able to go on
	case len(cut) == 0:
		return 0
	}
	if !f.g.together(f.place.resource) {
		return f.untilDue(cut, f.lookHere(ctx, cut))
	}
	return f.untilDue(cut, f.look(ctx, cut))
}

// pollEvery is how often a flight looks although nothing was announced:
// announcements may be lost. With jitter, so that nodes do not march in step.
func pollEvery() time.Duration { return 50*time.Millisecond + rand.N(50*time.Millisecond) }

// soonAgain is when Redis is asked again that did not answer.
func soonAgain() time.Duration { return 10*time.Millisecond + rand.N(10*time.Millisecond) }

// untilDue is d, or the time to the first deadline if that comes earlier.
func (f *flight) untilDue(cut []*ticket, d time.Duration) time.Duration {
	for _, t := range cut {
		if !t.done {
			return max(min(d, time.Until(t.deadline)), 0)
		}
	}
	return d
}

// seal gives the tickets that are there now and wait for an answer.
func (f *flight) seal() []*ticket {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	cut := make([]*ticket, 0, len(f.tickets))
	for _, t := range f.tickets {
		if !t.done && !t.gone.Load() {
			cut = append(cut, t)
		}
	}
	return cut
}

// give answers tickets that have no answer yet.
func (f *flight) give(cut []*ticket, o outcome) {
	for _, t := range cut {
		if !t.done {
			t.done = true
			t.out <- o
		}
	}
}

// serve answers with a value that was there, or that this flight waited for.
func (f *flight) serve(cut []*ticket, r Result) {
	if f.waited && r.How == Hit {
		r.How = Waited
	}
	f.waited = false
	f.give(cut, outcome{result: r})
}

// look asks Redis and acts on the answer. It returns when to look again.
func (f *flight) look(ctx context.Context, cut []*ticket) time.Duration {
	what := "look"
	if f.admitted {
		what = "take"
		if f.place.person != "" { // before the fetch: see person.go
			k, err := f.g.store.keepPlace(ctx, f.place, 0)
			f.g.asked(ctx, err)
			switch {
			case err != nil:
				return soonAgain()
			case k == keptFull:
				f.leaveGate()
				f.g.stats.uncached("full")
				f.give(cut, outcome{apart: true})
				return 0
			}
		}
	}
	sent := time.Now()
	a, err := f.ask(ctx, what)
	switch {
	case errors.Is(err, errSealed):
		f.leaveGate()
		f.give(cut, outcome{apart: true})
		return 0
	case err != nil: // again, with the same owner, until Redis counts as away
		return soonAgain()
	}
	switch a.what {
	case "LEASE":
		f.g.use(f.place)
		f.fetch(ctx, cut, a.fence, sent)
		return f.g.cfg.TokenTimeout
	case "FREE":
		return f.approach(ctx, cut)
	}
	f.leaveGate()
	switch a.what {
	case "HIT":
		f.serve(cut, Result{Value: a.body, How: Hit, Age: a.age, Fence: a.fence})
	case "FAIL":
		f.refuse(cut, a, Shed, f.g.busyFailed(a.left))
	case "ALONE":
		f.give(cut, outcome{apart: true})
	case "FULL":
		f.g.stats.uncached("full")
		f.give(cut, outcome{apart: true})
	default: // WAIT
		f.waited = true
		return min(pollEvery(), a.left+rand.N(5*time.Millisecond)+time.Millisecond)
	}
	return 0
}

// ask is one look, with the body readable.
func (f *flight) ask(ctx context.Context, what string) (answer, error) {
	q := question{owner: f.owner, what: what, full: f.g.full(), waits: f.g.waitsUntil()}
	if f.g.cfg.TTLStart == StartActivation {
		q.started, _ = f.g.mode.activation()
		q.life = f.g.lifeAt(f.place)
	}
	a, err := f.g.store.look(ctx, f.place, q)
	f.g.asked(ctx, err)
	if err == nil && a.has {
		a.body, err = f.g.unseal(f.place, a.body)
	}
	return a, err
}

// lifeAt is the life of a value from the begin of protection: the same for a
// resource on all nodes, and different by up to a tenth between resources, so
// that not all of them end in one moment.
func (g *Guard) lifeAt(p place) time.Duration {
	spread := 0.0
	for _, c := range []byte(p.resource) {
		spread = spread*0.37 + float64(c%64)/64
	}
	spread -= float64(int(spread)) // 0 to 1
	return time.Duration(float64(g.cfg.TTL) * (0.9 + 0.2*spread))
}
