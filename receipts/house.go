package receipts

import (
	"context"
	"time"

	"github.com/robfig/cron/v3"
	"go.uber.org/zap"

	"tidegate/pkg/run"
	"tidegate/pkg/wire"
	"tidegate/receipts/report"
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

// round settles what never got a receipt, disowns events that nobody claimed,
// deletes what is old, and shows the counts.
func (r *Room) round(ctx context.Context) error {
	now := r.d.Now()
	jobs := []struct {
		what string
		do   func() (int, error)
	}{
		{"no_receipt", func() (int, error) { return r.store.TimeOut(ctx, now.Add(-r.cfg.NoReceiptAfter)) }},
		{"foreign", func() (int, error) { return r.store.Disown(ctx, now.Add(-r.cfg.ParkFor)) }},
		{"purged", func() (int, error) {
			return r.store.Purge(ctx, []wire.Kind{wire.KindPush, wire.KindReply}, now.Add(-r.cfg.Retention))
		}},
		{"purged", func() (int, error) {
			return r.store.Purge(ctx, []wire.Kind{wire.KindCallback}, now.Add(-r.cfg.CallbackRetention))
		}},
		{"purged_events", func() (int, error) { return r.store.PurgeParked(ctx, now.Add(-r.cfg.Retention)) }},
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
	waiting, foreign, err := r.store.Parking(ctx)
	if err != nil {
		return err
	}
	r.met.parked.WithLabelValues("waiting").Set(float64(waiting))
	r.met.parked.WithLabelValues("foreign").Set(float64(foreign))
	return nil
}

// reportDaily writes the report of the day before, when the schedule says so.
// Without a directory it only waits for the end.
func (r *Room) reportDaily(ctx context.Context) error {
	if r.cfg.Report.Dir == "" {
		<-ctx.Done()
		return nil
	}
	log := cronLog{r.d.Log}
	c := cron.New(cron.WithLocation(r.loc), cron.WithLogger(log), cron.WithChain(cron.Recover(log), cron.SkipIfStillRunning(log)))
	_, err := c.AddFunc(r.cfg.Report.Schedule, func() {
		files, err := r.WriteReport(ctx)
		if err != nil {
			r.d.Log.Error("the daily report was not written", zap.Error(err))
			return
		}
		r.d.Log.Info("the daily report is written", zap.Strings("files", files))
	})
	if err != nil {
		return err
	}
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done() // a report that is being written is finished
	return nil
}

// WriteReport writes the report of the day before, in the report's time zone,
// and names the files. Doing it again replaces them.
func (r *Room) WriteReport(ctx context.Context) ([]string, error) {
	y, m, d := r.d.Now().In(r.loc).Date()
	today := time.Date(y, m, d, 0, 0, 0, 0, r.loc)
	rep, err := report.Make(ctx, r.store, report.Period{From: today.AddDate(0, 0, -1), To: today}, r.d.Now())
	if err != nil {
		return nil, err
	}
	return rep.WriteFiles(r.cfg.Report.Dir)
}

// cronLog hands cron's words to zap: its routine ones are debug.
type cronLog struct{ l *zap.Logger }

func (c cronLog) Info(msg string, kv ...any) { c.l.Sugar().Debugw("cron: "+msg, kv...) }
func (c cronLog) Error(err error, msg string, kv ...any) {
	c.l.Sugar().Errorw("cron: "+msg, append(kv, "error", err)...)
}
