package main

import (
	"context"

	"tidegate/app"
)

type webhooksCmd struct {
	List      webhooksListCmd      `cmd:"" help:"Every endpoint: whether it takes events, how many wait, and why it does not." default:"withargs"`
	Enable    webhooksEnableCmd    `cmd:"" help:"Call a disabled endpoint again; what waits goes at once."`
	Redeliver webhooksRedeliverCmd `cmd:"" help:"Deliver events again that were given up, or, with --delivered, all."`
}

type webhooksListCmd struct {
	jobsOps
	JSON bool `help:"Print the answer as JSON."`
}

func (c webhooksListCmd) Run(ctx context.Context) error {
	return app.WebhooksList(ctx, c.options(c.JSON))
}

type webhooksEnableCmd struct {
	jobsOps
	Endpoint string `arg:"" help:"The endpoint, as 'webhooks list' names it."`
	Reason   string `required:"" help:"Why. It is kept in the audit."`
}

func (c webhooksEnableCmd) Run(ctx context.Context) error {
	return app.WebhooksSteer(ctx, c.options(false), c.Endpoint, "enable", app.WebhookSteer{Reason: c.Reason})
}

type webhooksRedeliverCmd struct {
	jobsOps
	Endpoint  string `arg:"" help:"The endpoint, as 'webhooks list' names it."`
	Since     string `help:"Events made since then, for example 2026-03-01T08:00:00+08:00."`
	Until     string `help:"Events made before then."`
	Message   string `help:"Events of this message only."`
	Event     string `help:"This event only, by its webhook-id."`
	Delivered bool   `help:"Also what was delivered."`
	Reason    string `required:"" help:"Why. It is kept in the audit."`
}

func (c webhooksRedeliverCmd) Run(ctx context.Context) error {
	return app.WebhooksSteer(ctx, c.options(false), c.Endpoint, "redeliver", app.WebhookSteer{Reason: c.Reason, Since: c.Since, Until: c.Until,
		Message: c.Message, Event: c.Event, Delivered: c.Delivered})
}
