package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/control"
	"tidegate/pkg/telemetry"
)

// LimitsOptions say whom `tidegate limits` asks.
type LimitsOptions struct {
	Source Source // where ops.addr stands if Ops is empty
	Ops    string // operations listener of a sender or robot
	Key    string // of that listener, or file:PATH of it; empty where it is open
	JSON   bool
	Out    io.Writer
}

// LimitsChange is what `tidegate limits set` and `reset` ask for.
type LimitsChange struct {
	Subject     string
	Rate        *float64 // nil: as it is
	Burst       *int
	Concurrency *int
	Reset       bool // back to the file's value
	Reason      string
	For         time.Duration // 0: until somebody changes it
	Wait        time.Duration // for all nodes; 0 does not
}

// limitsPoll is how often the nodes are looked at while a change is waited for.
const limitsPoll = 50 * time.Millisecond

func (o LimitsOptions) client() (*opsClient, error) {
	addr, err := QueuesOptions{Ops: o.Ops, Source: o.Source}.listener()
	if err != nil {
		return nil, usage(err)
	}
	return newOpsClient(addr, o.Key)
}

// LimitsShow prints every limit: of the file, set by somebody, and at work.
func LimitsShow(ctx context.Context, o LimitsOptions) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	var v control.Overview
	text, err := c.get(ctx, "/ops/v1/limits", nil, &v)
	if err != nil {
		return err
	}
	if o.JSON {
		_, err := o.Out.Write(text)
		return err
	}
	return printLimits(o.Out, v)
}

// LimitsSet changes one limit on every node and waits until it is at work.
func LimitsSet(ctx context.Context, o LimitsOptions, l LimitsChange) error {
	if err := l.check(); err != nil {
		return usage(err)
	}
	c, err := o.client()
	if err != nil {
		return err
	}
	var v control.Overview
	if _, err := c.get(ctx, "/ops/v1/limits", nil, &v); err != nil {
		return err
	}
	was, err := limitOf(v, l)
	if err != nil {
		return err
	}
	began := time.Now()
	var a limitAnswer
	if _, err := c.send(ctx, l.request(was), &a); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "%s: %s → %s (version %d)\n", a.Subject, inWords(was.Effective), a.becomes(was), a.Version)
	if raised(was, a) && v.SlowStart != "0s" {
		fmt.Fprintf(o.Out, "what rises does so in a straight line over %s\n", v.SlowStart)
	}
	if l.Wait == 0 {
		return nil
	}
	return awaitLimit(ctx, c, o.Out, a.Version, began, l.Wait)
}

func (l LimitsChange) check() error {
	switch {
	case strings.TrimSpace(l.Reason) == "":
		return errors.New("--reason: say why in a few words; it is what the next person sees")
	case !l.Reset && l.Rate == nil && l.Burst == nil && l.Concurrency == nil:
		return errors.New("give at least one of --rate, --burst and --concurrency; what is left out stays as it is")
	case l.For < 0 || l.For > 0 && l.For < time.Second:
		return fmt.Errorf("--for %s: use a second or more, for example 2h", l.For)
	case l.Wait < 0:
		return fmt.Errorf("--wait %s: use a duration, or 0 not to wait", l.Wait)
	}
	return nil
}

// limitOf finds the limit that is to be changed.
func limitOf(v control.Overview, l LimitsChange) (control.LimitView, error) {
	var names []string
	for _, one := range v.Limits {
		if one.Subject == l.Subject && (l.Reset || one.Effective != nil) {
			return one, nil
		}
		if one.File != nil {
			names = append(names, one.Subject)
		}
	}
	if l.Reset { // an expired or unseen one; the server knows
		return control.LimitView{Subject: l.Subject}, nil
	}
	known := "no node has reported any"
	if len(names) > 0 {
		known = "there are " + strings.Join(names, ", ")
	}
	if v.NodesUnknown != "" {
		known += " (" + v.NodesUnknown + ")"
	}
	return control.LimitView{}, usage(fmt.Errorf("there is no limit %s; %s", forTerminal(l.Subject), printable(known, 2000)))
}

// request builds the change. It names the version that was seen, so that two
// who change the same limit at the same time do not undo each other unseen.
func (l LimitsChange) request(was control.LimitView) opsRequest {
	r := opsRequest{method: http.MethodPut, path: "/ops/v1/limits/" + url.PathEscape(l.Subject), ifMatch: etag(was.Version), scope: telemetry.ScopeSteer}
	if l.Reset {
		r.method, r.query = http.MethodDelete, url.Values{"reason": {l.Reason}}
		if was.Version == 0 {
			r.ifMatch = ""
		}
		return r
	}
	to := *was.Effective
	if l.Rate != nil {
		to.Rate = *l.Rate
	}
	if l.Burst != nil {
		to.Burst = *l.Burst
	}
	if l.Concurrency != nil {
		to.Concurrency = *l.Concurrency
	}
	body := limitRequest{Rate: &to.Rate, Burst: &to.Burst, Concurrency: &to.Concurrency, Reason: l.Reason}
	if l.For > 0 {
		body.ExpiresIn = l.For.String()
	}
	r.body = body
	return r
}

// becomes says in words what the limit is led to.
func (a limitAnswer) becomes(was control.LimitView) string {
	switch {
	case a.To == nil && was.File == nil:
		return "the file's value"
	case a.To == nil:
		return inWords(was.File) + ", as in the file"
	case a.Until != "":
		return inWords(a.To) + " until " + a.Until
	}
	return inWords(a.To)
}

func inWords(l *control.Limit) string {
	if l == nil {
		return "?"
	}
	return l.String()
}

// raised tells that something will take the slow start.
func raised(was control.LimitView, a limitAnswer) bool {
	from, to := was.Effective, a.To
	if to == nil {
		to = was.File
	}
	if from == nil || to == nil {
		return false
	}
	up := func(from, to float64) bool { return from != 0 && (to > from || to == 0) }
	return up(from.Rate, to.Rate) || up(float64(from.Concurrency), float64(to.Concurrency))
}

// awaitLimit asks until every live node applies the version.
func awaitLimit(ctx context.Context, c *opsClient, out io.Writer, version int64, began time.Time, wait time.Duration) error {
	ctx, cancel := context.WithDeadline(ctx, began.Add(wait))
	defer cancel()
	tick := time.NewTicker(limitsPoll)
	defer tick.Stop()
	var behind []string
	for {
		var v control.Overview
		if _, err := c.get(ctx, "/ops/v1/limits", nil, &v); err != nil && ctx.Err() == nil {
			return err
		} else if err == nil {
			var done int
			if done, behind = followers(v, version); len(behind) == 0 {
				fmt.Fprintf(out, "at work on %d of %d nodes after %.2fs\n", done, done, time.Since(began).Seconds())
				return notSeen(out, v)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not at work everywhere after %s: %s; the change stays and each node takes it as soon as it reaches the database ('tidegate limits show' tells)", wait, strings.Join(behind, ", "))
		case <-tick.C:
		}
	}
}

// followers counts the nodes that apply the version, and names the others.
func followers(v control.Overview, version int64) (done int, behind []string) {
	for _, n := range v.Nodes {
		switch {
		case n.Off:
		case n.Version >= version:
			done++
		default:
			behind = append(behind, forTerminal(n.Node)+" is at version "+strconv.FormatInt(n.Version, 10))
		}
	}
	return done, behind
}

// notSeen says what the count does not say.
func notSeen(out io.Writer, v control.Overview) error {
	if v.NodesUnknown != "" {
		fmt.Fprintf(out, "others were not asked: %s\n", printable(v.NodesUnknown, 200))
	}
	if i := slices.IndexFunc(v.Nodes, func(n control.NodeView) bool { return n.Off }); i >= 0 {
		fmt.Fprintf(out, "%s takes no live settings: it has no database\n", forTerminal(v.Nodes[i].Node))
	}
	return nil
}
