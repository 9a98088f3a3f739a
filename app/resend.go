package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"tidegate/pkg/telemetry"
	"tidegate/receipts"
)

// ResendPick selects what `tidegate resend` sends again; empty fields select
// everything.
type ResendPick struct {
	Account, App, Template, Lane, Reference, OpenID string
	IDs, States                                     []string
	ErrCode                                         int
	From, To                                        string
	Again                                           bool
	Limit                                           int
}

// ResendStart says how it is sent.
type ResendStart struct {
	Reason string
	Rate   int
	Yes    bool
	Wait   time.Duration
}

const resendsPath = "/ops/v1/resends"

// resendPoll is how often a re-send that is waited for is looked at.
const resendPoll = 200 * time.Millisecond

func (p ResendPick) body() (map[string]any, error) {
	if len(p.States) == 0 {
		return nil, usage(errors.New("--state: say what went wrong, for example --state dead --state rejected"))
	}
	s := map[string]any{"states": p.States, "again": p.Again}
	for name, v := range map[string]string{"account": p.Account, "app": p.App, "template_id": p.Template, "lane": p.Lane, "reference": p.Reference, "openid": p.OpenID, "from": p.From, "to": p.To} {
		if v != "" {
			s[name] = v
		}
	}
	if len(p.IDs) > 0 {
		s["ids"] = p.IDs
	}
	if p.ErrCode != 0 {
		s["errcode"] = p.ErrCode
	}
	if p.Limit != 0 {
		s["limit"] = p.Limit
	}
	return map[string]any{"selection": s, "dry_run": true}, nil
}

// Resend counts a selection, says what would become of it, and with Yes sends it
// and waits for the end.
func Resend(ctx context.Context, o JobsOptions, p ResendPick, s ResendStart) error {
	body, err := p.body()
	if err != nil {
		return err
	}
	if s.Yes && strings.TrimSpace(s.Reason) == "" {
		return usage(errors.New("--reason: say why in a few words; it is kept in the audit"))
	}
	c, err := o.client()
	if err != nil {
		return err
	}
	var n receipts.Counted
	if _, err := c.send(ctx, opsRequest{method: http.MethodPost, path: resendsPath, body: body, scope: telemetry.ScopeSteer}, &n); err != nil {
		return err
	}
	would := 0
	if n.WouldSend != nil {
		would = *n.WouldSend
	}
	fmt.Fprintf(o.Out, "%d selected, %d would be sent%s\n", n.Count, would, skippedText(n.WouldSkip))
	switch {
	case would == 0:
		return nil
	case !s.Yes:
		_, err := fmt.Fprintln(o.Out, "nothing was sent: --yes and --reason send them")
		return err
	}
	var v receipts.ResendView
	start := map[string]any{"confirm": n.Confirm, "reason": s.Reason}
	if s.Rate != 0 {
		start["rate"] = s.Rate
	}
	if _, err := c.send(ctx, opsRequest{method: http.MethodPost, path: resendsPath, body: start, scope: telemetry.ScopeSteer}, &v); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "request %s\n", forTerminal(v.Request))
	return awaitResend(ctx, c, o.Out, v, s.Wait)
}

func awaitResend(ctx context.Context, c *opsClient, out io.Writer, v receipts.ResendView, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(resendPoll)
	defer tick.Stop()
	for !v.Finished {
		select {
		case <-ctx.Done():
			_, err := fmt.Fprintf(out, "%d of %d are sent; it goes on: 'tidegate resend status %s'\n", v.Sent, v.Counted, forTerminal(v.Request))
			return err
		case <-tick.C:
		}
		if _, err := c.get(ctx, resendsPath+"/"+url.PathEscape(v.Request), nil, &v); err != nil && ctx.Err() == nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%s: %d sent%s\n", v.State, v.Sent, skippedText(v.SkippedBy))
	return err
}

func skippedText(by map[string]int) string {
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%s %d", forTerminal(why), by[why]))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", left out: " + strings.Join(parts, ", ")
}

// ResendShow prints one re-send, or the newest where request is empty.
func ResendShow(ctx context.Context, o JobsOptions, request string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	var v receipts.ResendsView
	var text []byte
	if request == "" {
		text, err = c.get(ctx, resendsPath, nil, &v)
	} else {
		v.Resends = make([]receipts.ResendView, 1)
		text, err = c.get(ctx, resendsPath+"/"+url.PathEscape(request), nil, &v.Resends[0])
	}
	if err != nil {
		return err
	}
	if o.JSON {
		_, err := o.Out.Write(text)
		return err
	}
	return printResends(o.Out, v)
}

// ResendCancel ends a re-send where it is.
func ResendCancel(ctx context.Context, o JobsOptions, request, reason string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	v := receipts.ResendsView{Resends: make([]receipts.ResendView, 1)}
	if _, err := c.send(ctx, opsRequest{method: http.MethodPost, path: resendsPath + "/" + url.PathEscape(request) + "/cancel", body: map[string]string{"reason": reason}, scope: telemetry.ScopeSteer}, &v.Resends[0]); err != nil {
		return err
	}
	return printResends(o.Out, v)
}

func printResends(out io.Writer, v receipts.ResendsView) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "REQUEST\tSTATE\tSENT\tOF\tLEFT OUT\tRATE\tBEGAN\tBY\tREASON")
	for _, r := range v.Resends {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d/s\t%s\t%s\t%s\n", forTerminal(r.Request), forTerminal(r.State), r.Sent, r.Counted, r.Skipped, r.Rate, forTerminal(r.BegunAt), forTerminal(r.By), printable(r.Reason, 200))
	}
	return t.Flush()
}
