package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"tidegate/pkg/schedule"
	"tidegate/pkg/telemetry"
)

// JobsOptions say whom `tidegate jobs` asks.
type JobsOptions struct {
	Source Source // where ops.addr stands if Ops is empty
	Ops    string // operations listener of a receipts role
	Key    string // of that listener, or file:PATH of it; empty where it is open
	JSON   bool
	Out    io.Writer
}

// JobRun is what `tidegate jobs run` asks for.
type JobRun struct {
	Name   string
	Reason string
	Slot   string
	Wait   time.Duration // for the end of the run; 0 does not
}

// jobsPoll is how often a run that is waited for is looked at.
const jobsPoll = 100 * time.Millisecond

func (o JobsOptions) client() (*opsClient, error) {
	addr, err := QueuesOptions{Ops: o.Ops, Source: o.Source}.listener()
	if err != nil {
		return nil, usage(err)
	}
	return newOpsClient(addr, o.Key)
}

// JobsList prints every job and how it stands.
func JobsList(ctx context.Context, o JobsOptions) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	var v schedule.View
	text, err := c.get(ctx, "/ops/v1/jobs", nil, &v)
	if err != nil {
		return err
	}
	if o.JSON {
		_, err := o.Out.Write(text)
		return err
	}
	return printJobs(o.Out, v)
}

// JobsLog prints what became of a job's slots, the newest first.
func JobsLog(ctx context.Context, o JobsOptions, name string, limit int) error {
	if limit < 1 || limit > schedule.MaxRecords {
		return usage(fmt.Errorf("--limit %d: use 1 to %d", limit, schedule.MaxRecords))
	}
	c, err := o.client()
	if err != nil {
		return err
	}
	v, text, err := readJob(ctx, c, name, limit)
	if err != nil {
		return err
	}
	if o.JSON {
		_, err := o.Out.Write(text)
		return err
	}
	return printRuns(o.Out, v)
}

func readJob(ctx context.Context, c *opsClient, name string, limit int) (v schedule.HistoryView, text []byte, err error) {
	text, err = c.get(ctx, "/ops/v1/jobs/"+url.PathEscape(name), url.Values{"limit": {strconv.Itoa(limit)}}, &v)
	return v, text, err
}

// JobsRun has a job run now, on whatever node leads, and waits for what becomes
// of it: a run that does not succeed is an error.
func JobsRun(ctx context.Context, o JobsOptions, r JobRun) error {
	switch {
	case strings.TrimSpace(r.Reason) == "":
		return usage(errors.New("--reason: say why in a few words; it is kept in the history and in the audit"))
	case r.Wait < 0:
		return usage(fmt.Errorf("--wait %s: use a duration, or 0 not to wait", r.Wait))
	}
	c, err := o.client()
	if err != nil {
		return err
	}
	var a jobAnswer
	if _, err := c.send(ctx, opsRequest{method: http.MethodPost, path: "/ops/v1/jobs/" + url.PathEscape(r.Name) + "/run", body: jobRequest{Reason: r.Reason, Slot: r.Slot}, scope: telemetry.ScopeSteer}, &a); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "%s: run %d is waiting for the leader (audit entry %d)\n", forTerminal(a.Name), a.Run, a.Version)
	if r.Wait == 0 {
		return nil
	}
	return awaitRun(ctx, c, o.Out, a, r.Wait)
}

// awaitRun asks until the run has ended.
func awaitRun(ctx context.Context, c *opsClient, out io.Writer, a jobAnswer, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(jobsPoll)
	defer tick.Stop()
	last := "it has not begun"
	for {
		v, _, err := readJob(ctx, c, a.Name, 20)
		if err != nil && ctx.Err() == nil {
			return err
		}
		for _, r := range v.Runs {
			if r.ID != a.Run {
				continue
			}
			switch {
			case r.State == schedule.Done:
				fmt.Fprintf(out, "done on %s in %s\n", forTerminal(r.Node), r.Ended.Sub(r.Started).Round(time.Millisecond))
				return nil
			case !r.Open():
				return fmt.Errorf("run %d on %s: %s: %s", r.ID, forTerminal(r.Node), r.State, printable(r.Error, 600))
			case r.Error != "":
				last = fmt.Sprintf("attempt %d did not succeed (%s); the next is at %s", r.Attempt, printable(r.Error, 600), when(r.Due))
			case r.State == schedule.Running:
				last = "it is running on " + forTerminal(r.Node)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("run %d has not ended after %s: %s; it goes on without you, 'tidegate jobs log %s' tells", a.Run, wait, last, a.Name)
		case <-tick.C:
		}
	}
}

func printJobs(out io.Writer, v schedule.View) error {
	switch {
	case v.Off != "":
		fmt.Fprintln(out, printable(v.Off, 300))
		return nil
	case v.Leader.Unknown != "":
		fmt.Fprintf(out, "nobody can say who leads: %s; without Redis no job begins\n", printable(v.Leader.Unknown, 300))
	case !v.Leader.Leads:
		fmt.Fprintln(out, "no node leads: nothing begins until one does")
	default:
		fmt.Fprintf(out, "%s leads since %s (fence %d)\n", forTerminal(v.Leader.Node), when(v.Leader.Since), v.Leader.Fence)
	}
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "\nJOB\tSCHEDULE\tNEXT\tLAST SUCCESS\tOVERDUE\tLAST RUN")
	for _, j := range v.Jobs {
		last, overdue := "-", "-"
		if j.Last != nil {
			last = string(j.Last.State) + " " + when(j.Last.Slot)
		}
		if j.OverdueSeconds > 0 {
			overdue = (time.Duration(j.OverdueSeconds) * time.Second).String()
		}
		fmt.Fprintf(t, "%s\t%s %s\t%s\t%s\t%s\t%s\n", forTerminal(j.Name), forTerminal(j.Schedule), forTerminal(j.Location), when(j.Next), when(j.DoneAt), overdue, last)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, j := range v.Jobs {
		fmt.Fprintf(out, "%s: %s\n", forTerminal(j.Name), printable(j.About, 300))
	}
	return nil
}

func printRuns(out io.Writer, v schedule.HistoryView) error {
	fmt.Fprintf(out, "%s: %s\n%s %s; late by up to %s, at most %d attempts, %s each; interrupted: %s\n\n", forTerminal(v.Name), printable(v.About, 300),
		forTerminal(v.Schedule), forTerminal(v.Location), v.CatchUp, v.Attempts, v.Timeout, v.Interrupted)
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "RUN\tSLOT\tSTATE\tATTEMPT\tBEGAN\tENDED\tNODE\tWHY")
	for _, r := range v.Runs {
		slot, why := when(r.Slot), printable(r.Error, 600)
		if r.Slots > 1 {
			slot = fmt.Sprintf("%s to %s (%d)", slot, when(r.LastSlot), r.Slots)
		}
		if r.ByHand {
			why = strings.Trim(fmt.Sprintf("asked for by %s: %s; %s", forTerminal(r.AskedBy), printable(r.Reason, 500), why), "; ")
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", r.ID, slot, r.State, r.Attempt, when(r.Started), when(r.Ended), dash(forTerminal(r.Node)), dash(why))
	}
	return t.Flush()
}

// when shows a time by seconds, in UTC like every other command.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}
