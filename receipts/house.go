package receipts

import (
	"context"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/run"
	"tidegate/pkg/wire"
)

// keepHouse does what time demands, in small transactions, until ctx ends. It
// may run on every node: all of it is harmless when done twice.
func (r *Room) keepHouse(ctx context.Context) error {
	run.Every(ctx, r.cfg.HousekeepingEvery, func(ctx context.Context) {
		if err := r.round(ctx); err != nil && ctx.Err() == nil {
			r.met.kept.WithLabelValues("failed").Inc()
			r.d.Log.Warn("housekeeping of receipts did not finish; it is tried again", zap.Error(err))
		}
	})
	return nil
}

// lateAfter is how long an event waits before its message is looked for among
// those of all days: its row may only be a moment behind.
const lateAfter = time.Minute

// round settles what never got a receipt, disowns events that nobody claimed,
// deletes what is old, and shows the counts.
func (r *Room) round(ctx context.Context) error {
	now := r.d.Now()
	if err := r.store.MakeParts(ctx); err != nil {
		return err
	}
	jobs := []struct {
		what string
		do   func() (int, error)
	}{
		{"no_receipt", func() (int, error) { return r.store.TimeOut(ctx, now.Add(-r.cfg.NoReceiptAfter)) }},
		{"joined_late", func() (int, error) { return r.store.JoinLate(ctx, now.Add(-lateAfter)) }},
		{"foreign", func() (int, error) { return r.store.Disown(ctx, now.Add(-r.cfg.ParkFor)) }},
		{"purged", func() (int, error) {
			return r.store.Purge(ctx, []wire.Kind{wire.KindPush, wire.KindReply}, now.Add(-r.cfg.Retention))
		}},
		{"purged", func() (int, error) {
			return r.store.Purge(ctx, []wire.Kind{wire.KindCallback}, now.Add(-r.cfg.CallbackRetention))
		}},
		{"purged_events", func() (int, error) { return r.store.PurgeParked(ctx, now.Add(-r.cfg.Retention)) }},
		{"webhooks", func() (int, error) { return 0, r.keepWebhooks(ctx) }},
	}
	for _, j := range jobs {
		n, err := j.do()
		r.met.kept.WithLabelValues(j.what).Add(float64(n))
		if err != nil {
			return err
		}
	}
	return r.show(ctx)
}

func (r *Room) show(ctx context.Context) error {
	ts, err := r.store.Tallies(ctx, time.Time{}, time.Time{})
	if err != nil {
		return err
	}
	r.met.rows(ts)
	r.showConservation(ctx)
	waiting, foreign, err := r.store.Parking(ctx)
	if err != nil {
		return err
	}
	r.met.parked.WithLabelValues("waiting").Set(float64(waiting))
	r.met.parked.WithLabelValues("foreign").Set(float64(foreign))
	return nil
}
