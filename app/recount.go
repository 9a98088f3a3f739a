package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"tidegate/pkg/telemetry"
	"tidegate/receipts/store"
)

// RecountOptions say what `tidegate recount` does.
type RecountOptions struct {
	Source Source
	Repair bool
	JSON   bool
	Out    io.Writer
}

// Recount compares the counts that reports rest on with the rows. A difference
// that stays is an error that was reported.
func Recount(ctx context.Context, o RecountOptions) error {
	c, err := LoadConfig(o.Source.File, o.Source.Set)
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
	found, err := rows.Recount(ctx, o.Repair)
	if err != nil {
		return err
	}
	if o.JSON {
		err = json.NewEncoder(o.Out).Encode(found)
	} else {
		err = printRecount(o.Out, found)
	}
	if err == nil && found.Wrong > 0 && !found.Repaired {
		return ErrReported
	}
	return err
}

func printRecount(out io.Writer, r *store.Recounted) error {
	fmt.Fprintf(out, "%d rows in %d hours; %d counts differ\n", r.Rows, r.Hours, r.Wrong)
	if r.Wrong == 0 {
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "\nHOUR\tACCOUNT\tKIND\tAPP\tTEMPLATE\tLANE\tSTATE\tERRCODE\tREASON\tCOUNTED\tROWS")
	for _, d := range r.Deviations {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n", d.Hour.Format("2006-01-02T15Z"), d.Account, d.Kind, forTerminal(d.App), forTerminal(d.Template),
			d.Lane, d.State, codeText(d.ErrCode), forTerminal(d.Reason), d.Counted, d.Rows)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Wrong > len(r.Deviations) {
		fmt.Fprintf(out, "and %d more\n", r.Wrong-len(r.Deviations))
	}
	if r.Repaired {
		fmt.Fprintln(out, "The counts are right now.")
	} else {
		fmt.Fprintln(out, "Run it again with --repair to make the counts right. After an upgrade from a release without these counts that is what is to be done; otherwise tell us.")
	}
	return nil
}
