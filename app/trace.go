package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"

	"tidegate/pkg/idgen"
	"tidegate/receipts"
)

// TraceOptions say what `tidegate trace` shows.
type TraceOptions struct {
	Ops  string // operations listener of a receipts role
	Key  string // of that listener, or file:PATH of it; empty where it is open
	ID   string
	JSON bool
	Out  io.Writer
}

// Trace shows everything that happened to a message and to what belongs to the
// same journey: the callback, its replies.
func Trace(ctx context.Context, o TraceOptions) error {
	if _, err := idgen.Parse(o.ID); err != nil {
		return usage(errors.New("a message id has 23 digits: it is in answers of the API, in reports and in logs"))
	}
	c, err := newOpsClient(o.Ops, o.Key)
	if err != nil {
		return err
	}
	var v receipts.TraceView
	text, err := c.get(ctx, "/ops/v1/trace/"+o.ID, url.Values{}, &v)
	if err != nil {
		return err
	}
	if o.JSON {
		_, err := o.Out.Write(text)
		return err
	}
	return printTrace(o.Out, v)
}

func printTrace(out io.Writer, v receipts.TraceView) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "MESSAGE\tKIND\tACCOUNT\tUSER\tAPP\tSTATE\tERRCODE\tREASON")
	for _, m := range v.Messages {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.ID, m.Kind, m.Account, m.User, forTerminal(m.App), m.State, codeText(m.ErrCode), forTerminal(m.Reason))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(t, "\nAT\tOF\tBY\tWHAT\tATTEMPT\tLINE\tDETAIL")
	for _, s := range v.Timeline {
		of := v.Messages[0].Kind
		if s.Kind != "" {
			of = s.Kind
		}
		what := string(s.State)
		if what == "" {
			what = s.Event
		}
		attempt := ""
		if s.Attempt > 0 {
			attempt = fmt.Sprint(s.Attempt)
		}
		var detail []string
		for _, d := range []string{s.Reason, codeText(s.ErrCode), s.Detail} {
			if d != "" {
				detail = append(detail, forTerminal(d))
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.At, of, forTerminal(s.Source), forTerminal(what), attempt, forTerminal(s.Line), strings.Join(detail, "; "))
	}
	return t.Flush()
}

func codeText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
