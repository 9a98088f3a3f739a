package app

import (
	"context"
	"fmt"
	"io"
	"time"

	"tidegate/pkg/telemetry"
	"tidegate/receipts/report"
	"tidegate/receipts/store"
)

// ReportFailures writes what failed within the last while, by reason, as CSV
// and HTML.
func ReportFailures(ctx context.Context, src Source, since time.Duration, dir string, out io.Writer) error {
	if since <= 0 {
		return usage(fmt.Errorf("--since %s: use a positive duration, for example 24h", since))
	}
	c, err := LoadConfig(src.File, src.Set)
	if err != nil {
		return usage(err)
	}
	if err := c.Database.Validate(); err != nil {
		return usage(at("database", err))
	}
	log, err := telemetry.NewLogger(c.Log)
	if err != nil {
		return usage(err)
	}
	e := newEngines(c, log)
	defer func() { _ = e.stack.Stop(context.WithoutCancel(ctx)) }()
	db, err := e.DB(ctx)
	if err != nil {
		return err
	}
	rows, err := store.Open(ctx, db, time.Now)
	if err != nil {
		return err
	}
	now := time.Now()
	r, err := report.Make(ctx, rows, report.Period{From: now.Add(-since), To: now}, now)
	if err != nil {
		return err
	}
	files, err := r.WriteFiles(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		fmt.Fprintln(out, f)
	}
	return nil
}
