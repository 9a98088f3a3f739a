package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"

	"tidegate/pkg/telemetry"
	"tidegate/receipts"
	"tidegate/receipts/webhook"
)

// WebhookSteer is what an operator asks of an endpoint.
type WebhookSteer = receipts.WebhookSteer

// WebhooksList prints how every endpoint stands.
func WebhooksList(ctx context.Context, o JobsOptions) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	var v webhook.View
	text, err := c.get(ctx, "/ops/v1/webhooks", nil, &v)
	if err != nil {
		return err
	}
	if o.JSON {
		_, err := o.Out.Write(text)
		return err
	}
	return printWebhooks(o.Out, v)
}

// WebhooksSteer enables an endpoint, or has its events delivered again.
func WebhooksSteer(ctx context.Context, o JobsOptions, endpoint, what string, s WebhookSteer) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	var a receipts.WebhookSteered
	path := "/ops/v1/webhooks/" + url.PathEscape(endpoint) + "/" + what
	if _, err := c.send(ctx, opsRequest{method: http.MethodPost, path: path, body: s, scope: telemetry.ScopeSteer}, &a); err != nil {
		return err
	}
	if what == "enable" {
		_, err = fmt.Fprintf(o.Out, "%s is called again; what waits goes now (audit entry %d)\n", forTerminal(a.Endpoint), a.Version)
	} else {
		_, err = fmt.Fprintf(o.Out, "%s: %d events go again (audit entry %d)\n", forTerminal(a.Endpoint), a.Events, a.Version)
	}
	return err
}

func printWebhooks(out io.Writer, v webhook.View) error {
	if len(v.Endpoints) == 0 {
		_, err := fmt.Fprintln(out, "no app has webhooks here: receipts.webhooks.apps")
		return err
	}
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "ENDPOINT\tHOST\tSTATE\tWAITING\tOLDEST\tGIVEN UP\tLAST SUCCESS\tWHY")
	for _, e := range v.Endpoints {
		why := e.LastError
		if e.DisabledWhy != "" {
			why = e.DisabledWhy + ": " + why
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%d\t%s\t%s\n", forTerminal(e.Endpoint), forTerminal(e.Host), e.State, e.Pending, dash(e.OldestAt), e.Failed, dash(e.LastOKAt), dash(printable(why, 300)))
	}
	return t.Flush()
}
