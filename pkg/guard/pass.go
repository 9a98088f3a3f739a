package guard

import (
	"context"
	"sync"
	"time"
)

// pass is the way below the threshold: each caller fetches for itself. What it
// gets is written to Redis a little later, so that it is at hand when protection
// begins. A full gate begins protection.
func (g *Guard) pass(ctx context.Context, p place, fetch Fetch) (Result, error) {
	if err := g.open(); err != nil {
		return Result{How: Shed}, err
	}
	if !g.gate.try() {
		g.began(g.mode.gateFull(time.Now()), "gate")
		return g.guarded(ctx, p, fetch)
	}
	defer g.gate.release()
	before, epoch, voids := g.pulseTime(), g.local.now(), g.voids.Load()
	begin := time.Now()
	body, err := g.call(direct(ctx), fetch)
	switch now := time.Now(); {
	case err != nil || len(body) > g.cfg.MaxValue || now.Sub(begin) >= g.cfg.TokenTimeout:
	case before != 0:
		g.passed.put(passedValue{place: p, body: body, fence: before, read: now})
	case !g.shared() && g.voids.Load() == voids:
		g.local.put(localEntry{place: p, body: body, has: true, read: now}, epoch)
	}
	return answered(Pass, body, err)
}

// apart fetches for one caller within the gate, and shares nothing.
func (g *Guard) apart(ctx context.Context, fetch Fetch) (Result, error) {
	queue, cancel := context.WithTimeout(ctx, g.cfg.WaitMax)
	err := g.placeFor(queue)
	cancel()
	if err != nil {
		return Result{How: Shed}, err
	}
	defer g.gate.release()
	body, err := g.call(direct(ctx), fetch)
	return answered(Pass, body, err)
}

// pulseTime is a time of the server before now, 0 if none is known: a fence for
// what is fetched from now on.
func (g *Guard) pulseTime() int64 {
	if !g.shared() {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last.at
}

// passedValue is a value that passed through.
type passedValue struct {
	place place
	body  []byte
	fence int64
	read  time.Time
}

// The bounds of what waits to be written; what does not fit is left out, since
// the next access brings it again.
const (
	maxPassed      = 1024
	maxPassedBytes = 8 << 20
)

// passed holds the newest value of each place until the next flush.
type passed struct {
	mu    sync.Mutex
	bytes int
	byID  map[string]passedValue
}

func newPassed() *passed { return &passed{byID: map[string]passedValue{}} }

func (q *passed) put(v passedValue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	id := v.place.id()
	old, known := q.byID[id]
	if !known && len(q.byID) >= maxPassed || q.bytes-len(old.body)+len(v.body) > maxPassedBytes || known && old.fence > v.fence {
		return
	}
	q.bytes += len(v.body) - len(old.body)
	q.byID[id] = v
}

func (q *passed) take() map[string]passedValue {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.byID) == 0 {
		return nil
	}
	all := q.byID
	q.byID, q.bytes = map[string]passedValue{}, 0
	return all
}

// write gives Redis what passed through.
func (g *Guard) write(ctx context.Context) {
	for _, v := range g.passed.take() {
		if ctx.Err() != nil || !g.shared() {
			return // no loss: the next access brings it again
		}
		if v.place.person != "" && !g.keepFor(ctx, v) {
			continue
		}
		body := g.seal(v.place, v.body)
		fresh, err := g.store.publish(ctx, v.place, "", v.fence, body, time.Since(v.read), g.full())
		g.asked(ctx, err)
		if err == nil && fresh {
			g.use(v.place)
		}
	}
}

// keepFor writes the place of a person's value down, and reports whether the value
// may be published: it may not if the person was erased since it was fetched.
func (g *Guard) keepFor(ctx context.Context, v passedValue) bool {
	k, err := g.store.keepPlace(ctx, v.place, v.fence)
	g.asked(ctx, err)
	if err == nil && k == keptFull {
		g.stats.uncached("full")
	}
	return err == nil && k != keptErased && k != keptFull
}
