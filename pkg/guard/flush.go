package guard

import (
	"context"
	"time"

	"go.uber.org/zap"

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
