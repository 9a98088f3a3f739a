package main

import (
	"context"
	"time"

	"tidegate/app"
)

type resendCmd struct {
	Start  resendStartCmd  `cmd:"" help:"Count failed pushes, say what would be sent and what not; with --yes send them again." default:"withargs"`
	List   resendListCmd   `cmd:"" help:"The newest re-sends and how they stand."`
	Status resendStatusCmd `cmd:"" help:"How one re-send stands."`
	Cancel resendCancelCmd `cmd:"" help:"End a re-send where it is."`
}

type resendStartCmd struct {
	jobsOps
	Account   string        `help:"Only this account."`
	App       string        `help:"Only this app."`
	Template  string        `help:"Only this template."`
	Lane      string        `help:"Only this lane: realtime or bulk."`
	Reference string        `help:"Only this reference."`
	OpenID    string        `name:"openid" help:"Only this follower."`
	ID        []string      `help:"Only this message; give it several times."`
	State     []string      `help:"State that is sent again, for example dead, rejected, expired, unknown; give it several times."`
	ErrCode   int           `name:"errcode" help:"Only with this errcode of WeChat."`
	From      string        `help:"Not before, for example 2026-03-01T08:00:00+08:00."`
	To        string        `help:"Before."`
	Again     bool          `help:"Also what was re-sent before."`
	Limit     int           `help:"At most so many, the newest first."`
	Rate      int           `help:"A second; without it receipts.resend.rate."`
	Reason    string        `help:"Why. It is kept in the audit."`
	Yes       bool          `help:"Send them."`
	Wait      time.Duration `help:"How long to wait for the end; it goes on behind that." default:"2m"`
}

// Help is shown by --help.
func (resendStartCmd) Help() string {
	return "Every message goes out at most once per request, under a new id that names the old one, whoever presses twice and whichever node dies. " +
		"Who blocks the account, has left it or refuses the template is left out. It is paced, goes on over restarts, and can be cancelled.\n\n" +
		"Example: the back end was broken from eight to nine – send what died then, 100 a second:\n\n" +
		"  tidegate resend --state dead --from 2026-03-01T08:00:00+08:00 --to 2026-03-01T09:00:00+08:00 --rate 100 --yes --reason 'INC-4711'"
}

func (c resendStartCmd) Run(ctx context.Context) error {
	return app.Resend(ctx, c.options(false), app.ResendPick{Account: c.Account, App: c.App, Template: c.Template, Lane: c.Lane, Reference: c.Reference, OpenID: c.OpenID,
		IDs: c.ID, States: c.State, ErrCode: c.ErrCode, From: c.From, To: c.To, Again: c.Again, Limit: c.Limit},
		app.ResendStart{Reason: c.Reason, Rate: c.Rate, Yes: c.Yes, Wait: c.Wait})
}

type resendListCmd struct {
	jobsOps
	JSON bool `help:"Print the answer as JSON."`
}

func (c resendListCmd) Run(ctx context.Context) error {
	return app.ResendShow(ctx, c.options(c.JSON), "")
}

type resendStatusCmd struct {
	jobsOps
	Request string `arg:"" help:"The request, as 'resend list' names it."`
	JSON    bool   `help:"Print the answer as JSON."`
}

func (c resendStatusCmd) Run(ctx context.Context) error {
	return app.ResendShow(ctx, c.options(c.JSON), c.Request)
}

type resendCancelCmd struct {
	jobsOps
	Request string `arg:"" help:"The request, as 'resend list' names it."`
	Reason  string `required:"" help:"Why. It is kept in the audit."`
}

func (c resendCancelCmd) Run(ctx context.Context) error {
	return app.ResendCancel(ctx, c.options(false), c.Request, c.Reason)
}
