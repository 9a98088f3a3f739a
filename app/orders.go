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

	"tidegate/pkg/control"
	"tidegate/pkg/telemetry"
)

// Kinds of settings that operators change, as the audit has them.
const (
	KindLimit  = control.KindLimit
	KindPause  = control.KindPause
	KindCancel = control.KindCancel
)

// Conditions say what a pause or a cancel covers.
type Conditions = control.Order

// OrderChange is what `tidegate pauses` and `tidegate cancels` ask for.
type OrderChange struct {
	Kind   string // control.KindPause or KindCancel
	Name   string
	Order  Conditions
	Back   bool // take it back
	Reason string
	For    time.Duration // 0: until somebody takes it back
	Yes    bool          // a cancel goes without it as a dry run only
	Wait   time.Duration // for all nodes; 0 does not
}

func (c OrderChange) path() string {
	return "/ops/v1/" + c.Kind + "s/" + url.PathEscape(c.Name)
}

func (c OrderChange) check() error {
	switch {
	case strings.TrimSpace(c.Reason) == "":
		return errors.New("--reason: say why in a few words; it is what the next person sees")
	case c.For < 0 || c.For > 0 && c.For < time.Second:
		return fmt.Errorf("--for %s: use a second or more, for example 2h", c.For)
	case c.Wait < 0:
		return fmt.Errorf("--wait %s: use a duration, or 0 not to wait", c.Wait)
	case c.Name == "" || strings.Contains(c.Name, "/"):
		return errors.New("give the order a name of letters, digits, dots and -, for example stop-march-campaign")
	}
	if c.Back {
		return nil
	}
	return c.Order.Validate()
}

// OrdersShow prints the pauses, or the cancels, that are in force.
func OrdersShow(ctx context.Context, o LimitsOptions, kind string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	var v control.OrdersView
	text, err := c.get(ctx, "/ops/v1/"+kind+"s", nil, &v)
	if err != nil {
		return err
	}
	if o.JSON {
		_, err := o.Out.Write(text)
		return err
	}
	return printOrders(o.Out, kind, v)
}

func printOrders(out io.Writer, kind string, v control.OrdersView) error {
	fmt.Fprintf(out, "%ss at version %d\n", kind, v.Version)
	switch {
	case v.Off != "":
		fmt.Fprintf(out, "nothing can be changed here: %s\n", printable(v.Off, 500))
	case v.AgeMS < 0 || v.AgeMS > staleAfter.Milliseconds():
		fmt.Fprintln(out, "the database does not answer this role: what it says may be old, and senders that are like it send no pushes")
	}
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "\nNAME\tCOVERS\tVERSION\tBY\tSINCE\tUNTIL\tREASON")
	for _, o := range v.Orders {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", forTerminal(o.Name), forTerminal(o.Order.String()), o.Version, forTerminal(o.By), short(o.Since), dash(short(o.ExpiresAt)), forTerminal(o.Reason))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, o := range v.Orders {
		if o.Problem != "" {
			fmt.Fprintf(out, "%s: %s\n", forTerminal(o.Name), printable(o.Problem, 300))
		}
	}
	return nil
}

// OrdersSet gives an order to every node, or takes it back, and waits until it is
// at work. A cancel that is not confirmed is only counted.
func OrdersSet(ctx context.Context, o LimitsOptions, c OrderChange) error {
	if err := c.check(); err != nil {
		return usage(err)
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	dry := c.Kind == KindCancel && !c.Back && !c.Yes
	began := time.Now()
	var a orderAnswer
	if _, err := client.send(ctx, c.request(dry), &a); err != nil {
		return err
	}
	if !c.Back {
		fmt.Fprintf(o.Out, "%s covers %s; %s\n", forTerminal(c.Name), forTerminal(c.Order.String()), a.heldInWords())
	}
	if dry {
		fmt.Fprintln(o.Out, "nothing was changed: what a cancel ends stays ended; give --yes to do it")
		return nil
	}
	what := "in force"
	if c.Back {
		what = "taken back"
	}
	fmt.Fprintf(o.Out, "%s %s: %s (version %d)\n", c.Kind, forTerminal(c.Name), what, a.Version)
	if c.Wait == 0 {
		return nil
	}
	return awaitLimit(ctx, client, o.Out, a.Version, began, c.Wait)
}

func (c OrderChange) request(dry bool) opsRequest {
	r := opsRequest{method: http.MethodPut, path: c.path(), scope: telemetry.ScopeSteer}
	if c.Back {
		r.method, r.query = http.MethodDelete, url.Values{"reason": {c.Reason}}
		return r
	}
	if dry {
		r.query = url.Values{"dry_run": {"true"}}
	}
	body := orderRequest{Order: c.Order, Reason: c.Reason}
	if c.For > 0 {
		body.ExpiresIn = c.For.String()
	}
	r.body = body
	return r
}

func (a orderAnswer) heldInWords() string {
	if a.Held == nil {
		return "how many held letters that are is not known: " + printable(a.HeldUnknown, 200)
	}
	return strconv.FormatInt(*a.Held, 10) + " held letters now, and what of it is in the queue"
}
