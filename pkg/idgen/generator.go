package idgen

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	workerBits   = 10
	sequenceBits = 12
	maxSequence  = 1<<sequenceBits - 1

	// Workers is how many generators can run at once.
	Workers = 1 << workerBits
)

// epoch is 2025-01-01T00:00:00Z in Unix milliseconds.
const epoch = 1735689600000

// Limits for a clock that steps back (flow.md 5.3): up to waitBack the
// generator waits; up to borrowBack it goes on from its last time; beyond
// that it refuses.
const (
	waitBack   = 5 * time.Millisecond
	borrowBack = 2 * time.Second
)

// Numbers gives the worker number of this process. until is when the right
// to it ends; past that the generator asks again and refuses if it gets none.
type Numbers interface {
	Number(ctx context.Context) (n int, until time.Time, err error)
}

// Fixed is a worker number that an operator assigned by hand.
type Fixed int

// Number implements Numbers.
func (f Fixed) Number(context.Context) (int, time.Time, error) {
	return int(f), time.Now().Add(24 * time.Hour), nil
}

// Errors of the generator.
var (
	ErrClockBack = errors.New("the clock stepped back by more than 2 s: ids could repeat; check time synchronisation")
	ErrNoNumber  = errors.New("no worker number is in force")
)

// Generator makes ids that rise in time on one worker. It is safe for
// concurrent use.
type Generator struct {
	numbers Numbers
	now     func() time.Time

	mu     sync.Mutex
	worker int
	until  time.Time
	last   int64 // milliseconds since epoch of the last id
	seq    int64
}

// NewGenerator makes a generator. now may be nil for the real clock.
func NewGenerator(n Numbers, now func() time.Time) *Generator {
	if now == nil {
		now = time.Now
	}
	return &Generator{numbers: n, now: now}
}

// New makes one id for a follower. It waits for at most a few milliseconds
// when the clock stepped back a little or 4,096 ids were made within one
// millisecond.
func (g *Generator) New(ctx context.Context, u UID) (string, error) {
	low, err := g.next(ctx)
	if err != nil {
		return "", fmt.Errorf("make message id: %w", err)
	}
	return string(Generated) + u.Digits() + fmt.Sprintf("%019d", low), nil
}

func (g *Generator) next(ctx context.Context) (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		now := g.now()
		if err := g.hold(ctx, now); err != nil {
			return 0, err
		}
		ms := now.UnixMilli() - epoch
		back := time.Duration(g.last-ms) * time.Millisecond
		switch {
		case back > borrowBack:
			return 0, ErrClockBack
		case back > waitBack:
			ms = g.last // go on from the last time with what is left of its sequence
		case back > 0:
			if err := pause(ctx, back); err != nil {
				return 0, err
			}
			continue
		}
		if ms > g.last {
			g.last, g.seq = ms, 0
			return g.compose(), nil
		}
		if g.seq < maxSequence {
			g.seq++
			return g.compose(), nil
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return 0, err
		}
	}
}

func (g *Generator) compose() uint64 {
	return uint64(g.last)<<(workerBits+sequenceBits) | uint64(g.worker)<<sequenceBits | uint64(g.seq)
}

// hold makes sure that a worker number is in force.
func (g *Generator) hold(ctx context.Context, now time.Time) error {
	if now.Before(g.until) {
		return nil
	}
	n, until, err := g.numbers.Number(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoNumber, err)
	}
	if n < 0 || n >= Workers || !now.Before(until) {
		return fmt.Errorf("%w: got %d until %s", ErrNoNumber, n, until.Format(time.RFC3339))
	}
	g.worker, g.until = n, until
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
