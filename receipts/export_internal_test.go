package receipts

import (
	"context"
	"time"
)

// LookAtBands looks once, as the room does again and again.
func (r *Room) LookAtBands(ctx context.Context) {
	if err := r.bands.look(ctx); err != nil {
		panic(err)
	}
}

// ReportBefore makes and delivers the report of the day before a slot, as the job
// does.
func (r *Room) ReportBefore(ctx context.Context, slot time.Time) error {
	rep, err := r.reportBefore(ctx, slot)
	if err != nil {
		return err
	}
	return r.deliver(ctx, rep)
}
