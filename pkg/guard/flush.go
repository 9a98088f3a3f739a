package guard

import (
	"context"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
	"tidegate/pkg/slice"
)

// flushEvery bounds how old the news of the other nodes is.
const flushEvery = 50 * time.Millisecond

// pump flushes at once when something came after a pause, and every flushEvery
// while something comes. It ends with ctx.
func (g *Guard) pump(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.kick:
		}
		g.flush(ctx)
		pause.Reset(flushEvery)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		case <-g.urgent:
		}
		if g.owing() > 0 {
			g.soon(g.kick)
		}
	}
}

// flush tells the cluster what was counted here, and hears from it. While Redis
// is away it is the flush that tries it, so no caller pays for that.
func (g *Guard) flush(ctx context.Context) {
	if ok, _ := g.away.allow(); !ok {
		g.mode.lost(g.mode.take())
		g.gate.setLimit(g.mode.gateShare(time.Now()))
		return
	}
	if !g.pay(ctx) || !g.tidy(ctx) {
		return
	}
	r := g.mode.take()
	sum, err := g.count(ctx, r.demand)
	if err != nil {
		g.mode.lost(r)
		g.asked(ctx, err)
		return
	}
	raise, renew := g.mode.counted(time.Now(), sum)
	if s := g.gate.stats(); s.in >= s.limit || s.waiting > 0 {
		renew = true
	}
	used := g.takeUsed()
	p, err := g.store.beat(ctx, g.node, raise || r.raise, renew, used)
	if err != nil {
		g.mode.lost(report{raise: r.raise})
		g.asked(ctx, err)
		return
	}
	g.asked(ctx, nil)
	g.hear(p)
	g.write(ctx)
}

func (g *Guard) count(ctx context.Context, n int64) (sum int64, err error) {
	limited, cancel := context.WithTimeout(ctx, g.cfg.Budget)
	defer cancel()
	v, err := g.counters.Take(limited, g.store.tag(), n, slice.Level{Scope: "demand", Rule: g.cfg.window()})
	if err != nil {
		return 0, err
	}
	return v.Used[0], nil
}

func (g *Guard) hear(p pulse) {
	now := time.Now()
	began, ended := g.mode.hear(now, p)
	g.mu.Lock()
	g.last, g.lastAt = p, now
	g.mu.Unlock()
	g.gate.setLimit(g.mode.gateShare(now))
	if began {
		g.stats.protections.Inc()
		g.log.Info("protection begins: values are shared for a while", zap.String("why", "another node saw it"))
	}
	if ended {
		g.log.Info("protection ends: every caller gets fresh data")
	}
}

// waitsUntil is the server's time until which an answer is waited for: what the
// last beat told, the time since, the budget, and a second for clocks that do not
// run alike. 0 if nothing is known.
func (g *Guard) waitsUntil() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last.at == 0 {
		return 0
	}
	return g.last.at + (time.Since(g.lastAt) + g.cfg.Budget + time.Second).Microseconds()
}

// maxUsed bounds the resources that one flush reports; the rest come with the
// next use.
const maxUsed = 1000

// use notes that the cluster holds something of a place.
func (g *Guard) use(p place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.used) < maxUsed {
		g.used[p.id()] = struct{}{}
	}
}

func (g *Guard) takeUsed() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]string, 0, len(g.used))
	for id := range g.used {
		all = append(all, id)
	}
	clear(g.used)
	return all
}

// full reports that no further resource may come in.
func (g *Guard) full() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last.resources >= g.cfg.MaxResources
}

// Invalidate says that the resource of key (with all variants) has changed: no
// value that was fetched before this call is given to a caller that comes after
// it, on any node. While Redis is away that is true of this node; the others hear
// of it when it is back, and values end by their lives. The error is one of the key.
func (g *Guard) Invalidate(ctx context.Context, key string) error {
	return g.invalidate(ctx, key, 0)
}

// InvalidateValue is Invalidate only if the value is still the one with this
// Result.Fence: a late complaint about an old value then does not void a good one.
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
	for _, p := range places {
		if fence == 0 {
			g.void(p)
		}
		if g.store.redis == nil {
			continue
		}
		if g.away.open() {
			g.owe(p, fence)
			continue
		}
		_, err := g.store.invalidate(ctx, p, fence)
		g.asked(ctx, err)
		if err != nil {
			g.owe(p, fence)
		}
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

// listen wakes flights when something about their resource was announced.
func (g *Guard) listen(ctx context.Context) {
	for ctx.Err() == nil {
		err := g.store.redis.Subscribe(ctx, g.heard, g.store.channel())
		if err == nil {
			return
		}
		pause := time.NewTimer(time.Second) // polling covers for it
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

func (g *Guard) heard(m redis.Message) {
	g.mu.Lock()
	f := g.flights[m.Payload]
	g.mu.Unlock()
	if f != nil {
		g.soon(f.woken)
	}
}
