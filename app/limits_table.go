package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"tidegate/pkg/control"
)

func printLimits(out io.Writer, v control.Overview) error {
	fmt.Fprintf(out, "limits at version %d, slow start %s\n", v.Version, forTerminal(v.SlowStart))
	switch {
	case v.Off != "":
		fmt.Fprintf(out, "nothing can be changed here: %s\n", printable(v.Off, 500))
	case v.AgeMS < 0:
		fmt.Fprintln(out, "the database has not been reached yet: only the files' values hold")
	case v.AgeMS > staleAfter.Milliseconds():
		fmt.Fprintf(out, "the database was last read %s ago: the settings of then hold\n", millis(v.AgeMS))
	}
	if v.Behind != "" {
		fmt.Fprintf(out, "nothing can be changed: %s\n", printable(v.Behind, 3000))
	}
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "\nLIMIT\tHOLDS\tFILE\tVERSION\tBY\tSINCE\tUNTIL\tREASON")
	for _, l := range v.Limits {
		version := "-"
		if l.Version > 0 {
			version = strconv.FormatInt(l.Version, 10)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", forTerminal(l.Subject), inWords(l.Effective), inWords(l.File), version,
			dash(forTerminal(l.By)), dash(short(l.Since)), dash(short(l.ExpiresAt)), dash(forTerminal(l.Reason)))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, l := range v.Limits {
		printNotes(out, l)
	}
	fmt.Fprintln(t, "\nNODE\tVERSION\tDATABASE READ")
	for _, n := range v.Nodes {
		read := "never"
		switch {
		case n.Off:
			read = "not configured: the file's limits hold"
		case n.AgeMS >= 0:
			read = millis(n.AgeMS+n.SeenMS) + " ago"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\n", forTerminal(n.Node), n.Version, read)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if v.NodesUnknown != "" {
		fmt.Fprintf(out, "other nodes are not seen: %s\n", printable(v.NodesUnknown, 200))
	}
	return nil
}

// staleAfter is how old a view may be before it is worth a line.
const staleAfter = 2 * time.Second

// printNotes tells what does not fit into a line: problems, nodes on their way
// and nodes whose files differ.
func printNotes(out io.Writer, l control.LimitView) {
	if l.Problem != "" {
		fmt.Fprintf(out, "%s: %s\n", forTerminal(l.Subject), printable(l.Problem, 300))
	}
	for _, n := range l.Nodes {
		if l.Effective != nil && n.Now != *l.Effective {
			fmt.Fprintf(out, "%s: %s is at %s\n", forTerminal(l.Subject), forTerminal(n.Node), n.Now)
		}
		if l.File != nil && n.File != *l.File {
			fmt.Fprintf(out, "%s: the file of %s says %s\n", forTerminal(l.Subject), forTerminal(n.Node), n.File)
		}
	}
}

func millis(ms int64) string { return fmt.Sprintf("%.1fs", float64(ms)/1000) }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// short shows a time of ours by seconds.
func short(s string) string {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil { // also of nothing
		return forTerminal(s)
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// AuditOptions say what `tidegate limits log` shows.
type AuditOptions struct {
	LimitsOptions
	Kind    string // empty: every kind
	Subject string // empty: all
	Limit   int
	Verify  bool
}

// LimitsLog prints who changed which limit, the newest first. With Verify it
// says whether the audit is whole, and returns ErrReported if it is not.
func LimitsLog(ctx context.Context, o AuditOptions) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	q := url.Values{"limit": {strconv.Itoa(o.Limit)}}
	if o.Kind != "" {
		q.Set("kind", o.Kind)
	}
	if o.Subject != "" {
		q.Set("subject", o.Subject)
	}
	if o.Verify {
		q.Set("verify", "true")
	}
	var v auditView
	answer, err := c.get(ctx, "/ops/v1/audit", q, &v)
	if err != nil {
		return err
	}
	if o.JSON {
		_, err = o.Out.Write(answer)
	} else {
		err = printAudit(o.Out, v)
	}
	if err == nil && v.Proof != nil && v.Proof.Broken != "" {
		return ErrReported
	}
	return err
}

func printAudit(out io.Writer, v auditView) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "VERSION\tAT\tBY\tKIND\tNAME\tFROM\tTO\tUNTIL\tREASON")
	for _, e := range v.Entries {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.Version, short(e.At), forTerminal(e.By), forTerminal(e.Kind), forTerminal(e.Subject),
			settingText(e.Kind, e.From), settingText(e.Kind, e.To), dash(short(e.ExpiresAt)), forTerminal(e.Reason))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	switch p := v.Proof; {
	case p == nil:
	case p.Broken != "":
		fmt.Fprintf(out, "\nTHE AUDIT IS BROKEN: %s\n", printable(p.Broken, 500))
	default:
		fmt.Fprintf(out, "\nthe audit is whole: %d entries, the last hash is %s; compare it with the log line of that change\n", p.Entries, printable(p.Head, 64))
	}
	return nil
}

// settingText shows the value of a setting; what is no limit of ours as it is.
func settingText(kind string, value json.RawMessage) string {
	switch {
	case len(value) == 0 && kind == control.KindLimit:
		return "the file's"
	case len(value) == 0:
		return "-"
	}
	if l := overrideOf(value); l != nil && kind == control.KindLimit {
		return l.String()
	}
	return forTerminal(strings.Join(strings.Fields(string(value)), " "))
}
