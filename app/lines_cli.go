package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"tidegate/pkg/telemetry"
)

// LineUse is what `tidegate lines use` asks for.
type LineUse struct {
	Line    string // auto goes back to the configuration
	Account string // empty: every account that has no choice of its own
	Reason  string
	For     time.Duration // 0: until somebody takes it back
	Wait    time.Duration // for all nodes; 0 does not
}

// autoLine is the word for taking a choice back.
const autoLine = "auto"

// LinesList prints the lines to WeChat and which account takes which.
func LinesList(ctx context.Context, o LimitsOptions) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	var v linesView
	text, err := c.get(ctx, "/ops/v1/lines", nil, &v)
	if err != nil {
		return err
	}
	if o.JSON {
		_, err := o.Out.Write(text)
		return err
	}
	return printLines(o.Out, v)
}

func printLines(out io.Writer, v linesView) error {
	fmt.Fprintf(out, "lines as node %s sees them\n\n", forTerminal(v.Node))
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "LINE\tSTATE\tSINCE\tADDRESS\tPROXY\tANSWERED\tLOST\tUNREACHED\tWHY")
	for _, l := range v.Lines {
		state := string(l.State)
		if l.BackIn != "" {
			state += " (back in " + l.BackIn + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", forTerminal(l.Name), forTerminal(state), short(l.Since), forTerminal(l.BaseURL), dash(forTerminal(l.Proxy)), l.Answered, l.Lost, l.Unreached, dash(printable(l.Why, 200)))
	}
	fmt.Fprintln(t, "\nACCOUNT\tUSES\tORDER NOW\tCHOSEN\tBY\tUNTIL\tREASON")
	for _, a := range v.Accounts {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", forTerminal(a.Account), forTerminal(a.Use), forTerminal(strings.Join(a.Order, ", ")), dash(forTerminal(a.Chosen)), dash(forTerminal(a.By)), dash(short(a.Until)), dash(forTerminal(a.Reason)))
	}
	return t.Flush()
}

// LinesUse chooses a line on every node and waits until it is at work.
func LinesUse(ctx context.Context, o LimitsOptions, u LineUse) error {
	switch {
	case strings.TrimSpace(u.Reason) == "":
		return usage(errors.New("--reason: say why in a few words; it is what the next person sees"))
	case u.For < 0 || u.For > 0 && u.For < time.Second:
		return usage(fmt.Errorf("--for %s: use a second or more, for example 2h", u.For))
	case u.Wait < 0:
		return usage(fmt.Errorf("--wait %s: use a duration, or 0 not to wait", u.Wait))
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	q := lineRequest{Account: u.Account, Line: u.Line, Reason: u.Reason}
	if u.Line == autoLine {
		q.Line = ""
	}
	if u.For > 0 {
		q.ExpiresIn = u.For.String()
	}
	began := time.Now()
	var a lineAnswer
	if _, err := client.send(ctx, opsRequest{method: http.MethodPut, path: "/ops/v1/lines/choice", scope: telemetry.ScopeSteer, body: q}, &a); err != nil {
		return err
	}
	whose := "every account without a choice of its own"
	if a.Account != "" {
		whose = "account " + forTerminal(a.Account)
	}
	what := "goes by line " + forTerminal(a.Line) + " while it can be reached"
	if a.Line == "" {
		what = "goes by the lines of its configuration"
	}
	fmt.Fprintf(o.Out, "%s %s (version %d)\n", whose, what, a.Version)
	if u.Wait == 0 {
		return nil
	}
	return awaitLimit(ctx, client, o.Out, a.Version, began, u.Wait)
}
