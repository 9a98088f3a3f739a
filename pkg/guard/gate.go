package guard

import (
	"container/list"
	"context"
	"sync"
)

// gate bounds how many fetches run on this node. Places are given in the order
// in which they were asked for.
type gate struct {
	mu     sync.Mutex
	limit  int
	in     int
	queue  list.List // of chan struct{}, closed when its owner has a place
	most   int       // in the queue
	peaked int       // the largest in so far
}

func newGate(limit, most int) *gate { return &gate{limit: limit, most: most} }

// try takes a place if one is free and nobody waits for it.
func (g *gate) try() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.in >= g.limit || g.queue.Len() > 0 {
		return false
	}
	g.enter()
	return true
}

func (g *gate) enter() {
	g.in++
	g.peaked = max(g.peaked, g.in)
}

// acquire waits for a place until ctx ends. crowded reports that so many wait
// that this caller was refused at once.
func (g *gate) acquire(ctx context.Context) (ok, crowded bool) {
	g.mu.Lock()
	switch {
	case g.in < g.limit && g.queue.Len() == 0:
		g.enter()
		g.mu.Unlock()
		return true, false
	case g.queue.Len() >= g.most:
		g.mu.Unlock()
		return false, true
	}
	given := make(chan struct{})
	e := g.queue.PushBack(given)
	g.mu.Unlock()
	select {
	case <-given:
		return true, false
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-given: // at the same moment: pass the place on
		g.in--
		g.admit()
	default:
		g.queue.Remove(e)
	}
	return false, false
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.in--
	g.admit()
}

// admit gives free places to those that wait.
func (g *gate) admit() {
	for g.in < g.limit && g.queue.Len() > 0 {
		g.enter()
		given, _ := g.queue.Remove(g.queue.Front()).(chan struct{})
		close(given)
	}
}

// setLimit changes the number of places. Those that are taken stay taken.
func (g *gate) setLimit(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = n
	g.admit()
}

type gateStats struct{ limit, in, waiting, peak int }

func (g *gate) stats() gateStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return gateStats{g.limit, g.in, g.queue.Len(), g.peaked}
}
