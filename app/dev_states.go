package app

import (
	"context"
	"math"
	"slices"
	"time"

	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

// stateCounts is what the receipts room's rows say.
type stateCounts struct {
	pushes             map[wire.State]int64
	possibleDuplicates int64
}

// statesByRank lists the states, most advanced first.
func statesByRank() []wire.State {
	all := wire.States()
	slices.SortStableFunc(all, func(a, b wire.StateInfo) int { return b.Rank - a.Rank })
	out := make([]wire.State, len(all))
	for i, s := range all {
		out[i] = s.State
	}
	return out
}

// states reads the counts of pushes by state, and how many messages are
// flagged as possibly seen twice.
func (w *devWorld) states(ctx context.Context) (stateCounts, error) {
	c := stateCounts{pushes: map[wire.State]int64{}}
	tallies, err := w.parts[RoleReceipts].store.Tallies(ctx, time.Time{}, time.Time{})
	if err != nil {
		return c, err
	}
	for _, t := range tallies {
		if t.Kind == wire.KindPush {
			c.pushes[t.State] += t.N
		}
	}
	n, err := w.parts[RoleReceipts].store.Count(ctx, store.Filter{Duplicate: true}, math.MaxInt32)
	c.possibleDuplicates = int64(n)
	return c, err
}

// waitForReceipts waits until every accepted push has its receipt joined, or
// ctx ends. The store learns of them through the queue, a moment after the
// simulator has sent them.
func (w *devWorld) waitForReceipts(ctx context.Context) error {
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		c, err := w.states(ctx)
		if err != nil {
			return err
		}
		if c.joined() >= w.sim.Verdict(time.Minute).Receipts.Delivered {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}
