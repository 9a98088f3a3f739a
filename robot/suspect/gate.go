package suspect

import (
	"context"
	"sync"
	"time"
)

// gate lets records be worked in company, or one suspect at a time alone. A
// suspect waits until nothing else is in hand, and meanwhile nothing new is let
// in. Suspects that wait together go one after the other; after turn, company
// has its own time again.
type gate struct {
	turn time.Duration

	mu      sync.Mutex
	company int   // in hand together
	alone   *pass // in hand alone
	waiting int   // suspects
	closed  bool  // company has to wait
	// began is when the first suspect went in since the gate was closed, zero
	// before that; open is until when it is not closed again.
	began, open time.Time
	change      chan struct{}
}

// pass is one record's place behind the gate.
type pass struct {
	gate  *gate
	alone bool
	timer *time.Timer
}

func newGate(turn time.Duration) *gate { return &gate{turn: turn, change: make(chan struct{})} }

// try lets a record in if it need not wait.
func (g *gate) try(p *pass) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.admit(p)
}

func (g *gate) admit(p *pass) bool {
	if g.closed {
		return false
	}
	g.company++
	p.gate = g
	return true
}

// shut tells whether company has to wait.
func (g *gate) shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// enter lets a record in for company.
func (g *gate) enter(ctx context.Context, p *pass) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.admit(p) {
		if err := g.wait(ctx, 0); err != nil {
			return err
		}
	}
	return nil
}

// enterAlone lets a suspect in when nobody else is in hand.
func (g *gate) enterAlone(ctx context.Context, p *pass) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting++
	defer func() { g.waiting--; g.settle() }()
	for !g.admitAlone(p) {
		var open time.Duration
		if !g.closed {
			open = max(time.Until(g.open), time.Nanosecond)
		}
		if err := g.wait(ctx, open); err != nil {
			return err
		}
	}
	return nil
}

func (g *gate) admitAlone(p *pass) bool {
	now := time.Now()
	if !g.closed && !now.Before(g.open) {
		g.closed, g.began = true, time.Time{}
	}
	if !g.closed || g.company > 0 || g.alone != nil {
		return false
	}
	if g.began.IsZero() {
		g.began = now
	}
	g.alone, p.gate, p.alone = p, g, true
	p.timer = time.AfterFunc(g.turn, func() { g.join(p) })
	return true
}

// join ends being alone for one that takes long: it goes on in company.
func (g *gate) join(p *pass) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alone != p {
		return
	}
	g.alone, p.alone = nil, false
	g.company++
	g.settle()
}

// leave may be called twice, and for a record that was never let in.
func (p *pass) leave() {
	g := p.gate
	if g == nil {
		return
	}
	p.gate = nil
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.alone {
		p.timer.Stop()
		g.alone = nil
	} else {
		g.company--
	}
	g.settle()
}

// settle lets company in when the suspects are through or have had their turn,
// and tells everybody who waits. Without waiters it costs nothing. It is called
// with the lock.
func (g *gate) settle() {
	if !g.closed && g.waiting == 0 {
		return
	}
	now := time.Now()
	var had time.Duration
	if !g.began.IsZero() {
		had = min(now.Sub(g.began), g.turn)
	}
	if g.closed && g.alone == nil && (g.waiting == 0 || had >= g.turn) {
		g.closed, g.open = false, now.Add(had)
	}
	close(g.change)
	g.change = make(chan struct{})
}

// wait releases the lock until something changes, or for so long if that is not
// zero.
func (g *gate) wait(ctx context.Context, limit time.Duration) error {
	change := g.change
	g.mu.Unlock()
	defer g.mu.Lock()
	var over <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-change:
	case <-over:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
