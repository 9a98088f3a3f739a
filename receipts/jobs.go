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
	if c.Dir == "" {
		return nil
	}
	return []schedule.Job{{
		Name: "failure-report", About: "Failed messages of the day before by reason, as CSV and HTML in receipts.report.dir of the node that ran it",
		Spec: r.reports, CatchUp: c.CatchUp, Timeout: reportTimeout, Retry: schedule.Retry{Most: c.Attempts, Wait: c.RetryWait},
		Interrupted: schedule.Again, // doing it again replaces the files
		Do:          r.reportDay,
	}}
}

// reportDay writes the report of the day before the slot. A slot that runs late
// is still about its own day.
func (r *Room) reportDay(ctx context.Context, run *schedule.Run) error {
	y, m, d := run.Slot.In(r.loc).Date()
	today := time.Date(y, m, d, 0, 0, 0, 0, r.loc)
	rep, err := report.Make(ctx, r.store, report.Period{From: today.AddDate(0, 0, -1), To: today}, r.d.Now())
	if err != nil {
		return err
	}
	if err := run.Check(ctx); err != nil { // somebody else may be writing it
		return err
	}
	files, err := rep.WriteFiles(r.cfg.Report.Dir)
	if err == nil {
		r.d.Log.Info("the daily report is written", zap.Strings("files", files))
	}
	return err
}
