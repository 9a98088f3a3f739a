package receipts

import (
	"context"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/schedule"
	"tidegate/receipts/report"
)

// reportTimeout bounds one report: its question to the database and two files.
const reportTimeout = 10 * time.Minute

// Jobs is what the room wants done at fixed times, once in the cluster.
func (r *Room) Jobs() []schedule.Job {
	c := r.cfg.Report
	if c.Dir == "" && c.Webhook.URL == "" {
		return nil
	}
	return []schedule.Job{{
		Name: "failure-report", About: "Failed messages of the day before by reason, as CSV and HTML in receipts.report.dir of the node that ran it, and to receipts.report.webhook",
		Spec: r.reports, CatchUp: c.CatchUp, Timeout: reportTimeout, Retry: schedule.Retry{Most: c.Attempts, Wait: c.RetryWait},
		Interrupted: schedule.Again, // doing it again replaces the files
		Do:          r.reportDay,
	}}
}

// reportDay makes the report of the day before the slot. A slot that runs late is
// still about its own day.
func (r *Room) reportDay(ctx context.Context, run *schedule.Run) error {
	rep, err := r.reportBefore(ctx, run.Slot)
	if err != nil {
		return err
	}
	if err := run.Check(ctx); err != nil { // somebody else may be writing it
		return err
	}
	return r.deliver(ctx, rep)
}

func (r *Room) reportBefore(ctx context.Context, slot time.Time) (*report.Report, error) {
	y, m, d := slot.In(r.loc).Date()
	today := time.Date(y, m, d, 0, 0, 0, 0, r.loc)
	return report.Make(ctx, r.store, report.Period{From: today.AddDate(0, 0, -1), To: today}, r.d.Now())
}

// deliver puts the report where it is wanted. Doing it again replaces the files,
// and a receiver knows the report by its id.
func (r *Room) deliver(ctx context.Context, rep *report.Report) error {
	if dir := r.cfg.Report.Dir; dir != "" {
		files, err := rep.WriteFiles(dir)
		if err != nil {
			return err
		}
		r.d.Log.Info("the daily report is written", zap.Strings("files", files))
	}
	if r.cfg.Report.Webhook.URL == "" {
		return nil
	}
	return r.cfg.Report.Webhook.send(ctx, rep, r.d.Now())
}
