package receipts_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"tidegate/pkg/alarm"
	"tidegate/pkg/kafka"
)

// clock is the real one, moved by hand.
type clock struct {
	mu   sync.Mutex
	skew time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.skew)
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew += d
}

// told is a sink that remembers.
type told struct {
	mu   sync.Mutex
	list []alarm.Transition
}

func (a *told) Tell(t alarm.Transition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, t)
}

func (a *told) all() []alarm.Transition {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.list)
}

// gate is the producer with a door that can be shut.
type gate struct {
	*kafka.Producer
	mu      sync.Mutex
	refuse  func([]kafka.Record) error
	refused int
}

func (g *gate) PublishAll(ctx context.Context, rs []kafka.Record) error {
	g.mu.Lock()
	f := g.refuse
	g.mu.Unlock()
	if f != nil {
		if err := f(rs); err != nil {
			g.mu.Lock()
			g.refused++
			g.mu.Unlock()
			return err
		}
	}
	return g.Producer.PublishAll(ctx, rs)
}

func (g *gate) shut(f func([]kafka.Record) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse = f
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}
