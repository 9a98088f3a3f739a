package guard

import (
	"context"
	"errors"
	"time"

	"tidegate/pkg/fault"
)

// ErrOwed says that an invalidation holds on this node and not yet on the others.
var ErrOwed = errors.New("redis does not answer: other nodes may use the value of before until it ends or redis is back")

// Invalidate says that the resource of key (with all variants) has changed: no
// value that was fetched before this call is given to a caller that comes after
// it, on any node. If Redis does not answer, that is true of this node alone, and
// the error is ErrOwed, of kind Unavailable: this node tells the others when Redis
// is back (unless it ends before), and values end by their lives. To call it again
// is safe. Any other error is one of the key.
func (g *Guard) Invalidate(ctx context.Context, key string) error {
	return g.invalidate(ctx, key, 0)
}

// InvalidateValue is Invalidate only if the value is still the one with this
// Result.Fence: a late complaint about an old value then does not void a good one.
// If Redis does not answer nothing is voided and nothing owed: that is no error.
func (g *Guard) InvalidateValue(ctx context.Context, key string, fence int64) error {
	if fence == 0 {
		return nil
	}
	return g.invalidate(ctx, key, fence)
}

func (g *Guard) invalidate(ctx context.Context, key string, fence int64) error {
	if key == "" || len(key) > MaxKey {
		return fault.New(fault.Invalid, "invalidate of "+g.cfg.Backend, "a key of %d bytes: use 1 to %d", len(key), MaxKey)
	}
	places := []place{g.store.placeOf(key, false)}
	if g.box != nil {
		places = append(places, g.store.placeOf(key, true))
	}
	owed := false
	for _, p := range places {
		if fence == 0 {
			g.void(p)
		}
		if g.store.redis == nil {
			continue
		}
		if g.away.open() {
			g.owe(p, fence)
			owed = true
			continue
		}
		_, err := g.store.invalidate(ctx, p, fence)
		g.asked(ctx, err)
		if err != nil {
			g.owe(p, fence)
			owed = true
		}
	}
	if owed && fence == 0 {
		return fault.Wrap(fault.Unavailable, "invalidate of "+g.cfg.Backend, ErrOwed)
	}
	return nil
}

// void forgets what this node has or fetches of a resource.
func (g *Guard) void(p place) {
	g.voids.Add(1)
	g.mu.Lock()
	for _, f := range g.flights {
		if f.place.resource == p.resource {
			f.voided++
		}
	}
	g.mu.Unlock()
	g.local.drop(p.resource)
}

// owe remembers an invalidation that Redis has to hear of. Until then this node
// does not ask Redis for the resource. When there are too many to remember, it
// asks for none until whatever was there has ended.
func (g *Guard) owe(p place, fence int64) {
	if fence != 0 {
		return // the value may be good: it ends by its life
	}
	g.mu.Lock()
	if len(g.owed) >= g.cfg.MaxResources {
		g.alone = time.Now().Add(g.cfg.keep())
		clear(g.owed)
	} else {
		g.owed[p.resource] = p
	}
	g.mu.Unlock()
	g.soon(g.kick)
}

func (g *Guard) owing() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.owed) + len(g.orphans)
}

// orphan is a lease that could not be given up.
type orphan struct {
	place place
	owner string
	fence int64
}

// orphaned remembers a lease to give up when Redis is back: others would wait for
// its end. Beyond maxUsed they do.
func (g *Guard) orphaned(f *flight, fence int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.orphans) < maxUsed {
		g.orphans = append(g.orphans, orphan{f.place, f.owner, fence})
	}
	f.owner = token() // the flight's next lease is another one
	g.soon(g.kick)
}

// tidy gives up the leases that could not be given up before.
func (g *Guard) tidy(ctx context.Context) bool {
	g.mu.Lock()
	all := g.orphans
	g.orphans = nil
	g.mu.Unlock()
	for i, o := range all {
		if err := g.store.settle(ctx, o.place, o.owner, o.fence, noMark, 0); err != nil {
			g.asked(ctx, err)
			g.mu.Lock()
			g.orphans = append(g.orphans, all[i:]...)
			g.mu.Unlock()
			return false
		}
	}
	return true
}

// pay tells Redis the invalidations that it missed, before this node believes
// it again.
func (g *Guard) pay(ctx context.Context) bool {
	g.mu.Lock()
	places := make([]place, 0, len(g.owed))
	for _, p := range g.owed {
		places = append(places, p)
	}
	g.mu.Unlock()
	for _, p := range places {
		if _, err := g.store.invalidate(ctx, p, 0); err != nil {
			g.asked(ctx, err)
			return false
		}
		g.mu.Lock()
		delete(g.owed, p.resource)
		g.mu.Unlock()
	}
	return true
}

// together reports whether the nodes' value of a resource may be used.
func (g *Guard) together(resource string) bool {
	if !g.shared() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_, owed := g.owed[resource]
	return !owed
}
