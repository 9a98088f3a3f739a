package main

import (
	"context"
	"time"

	"tidegate/app"
)

type pausesCmd struct {
	Show pausesShowCmd `cmd:"" help:"The pauses in force: what they cover, who gave them and why." default:"withargs"`
	Set  pausesSetCmd  `cmd:"" help:"Stop messages on every node within a second; they wait."`
	Lift pausesLiftCmd `cmd:"" help:"Let what a pause covers go again, with the ramp of sender.hold."`
}

type cancelsCmd struct {
	Show   cancelsShowCmd   `cmd:"" help:"The cancels in force." default:"withargs"`
	Set    cancelsSetCmd    `cmd:"" help:"End messages that were accepted and not sent; counts first, and does it with --yes."`
	Revoke cancelsRevokeCmd `cmd:"" help:"Take a cancel back: what it has ended stays ended."`
}

type auditCmd struct {
	Log    auditLogCmd    `cmd:"" help:"Who changed which limit, pause or cancel, when and why." default:"withargs"`
	Verify auditVerifyCmd `cmd:"" help:"Check the chain of hashes over all changes: exit code 1 if an entry was edited, taken out or put in, or a setting changed behind the audit."`
}

// orderFlags say what an order covers.
type orderFlags struct {
	Account        string    `help:"Only this account."`
	App            string    `help:"Only pushes of this app (the name of its API key's app)."`
	Template       string    `help:"Only this template."`
	Lane           string    `help:"Only this lane: realtime or bulk."`
	AcceptedBefore time.Time `help:"Only what was accepted before this time, as 2026-03-01T09:00:00+08:00."`
	All            bool      `help:"Everything; must be given where nothing else is."`
	Replies        bool      `help:"Replies to followers too; with --account, or --all, nothing leaves any more."`
}

func (f orderFlags) order() app.Conditions {
	return app.Conditions{Account: f.Account, App: f.App, Template: f.Template, Lane: f.Lane, AcceptedBefore: f.AcceptedBefore, All: f.All, Replies: f.Replies}
}

type ordersShow struct {
	limitsOps
	JSON bool `help:"Print the answer as JSON."`
}

type pausesShowCmd struct{ ordersShow }

func (c pausesShowCmd) Run(ctx context.Context) error {
	return app.OrdersShow(ctx, c.options(c.JSON), app.KindPause)
}

type cancelsShowCmd struct{ ordersShow }

func (c cancelsShowCmd) Run(ctx context.Context) error {
	return app.OrdersShow(ctx, c.options(c.JSON), app.KindCancel)
}

// orderSet is what setting either kind has.
type orderSet struct {
	limitsOps
	orderFlags
	Name   string        `arg:"" help:"A name for the order, by which it is taken back: letters, digits, dots and -."`
	Reason string        `required:"" help:"Why. It is shown beside the order and kept in the audit."`
	For    time.Duration `help:"End by itself after this long, for example 2h. Without it a pause stays until it is lifted and a cancel for 30 days."`
	Wait   time.Duration `help:"How long to wait until every live node follows; 0 does not wait." default:"10s"`
}

func (c orderSet) run(ctx context.Context, kind string, yes bool) error {
	return app.OrdersSet(ctx, c.options(false), app.OrderChange{Kind: kind, Name: c.Name, Order: c.order(), Reason: c.Reason, For: c.For, Wait: c.Wait, Yes: yes})
}

type pausesSetCmd struct{ orderSet }

// Help is shown by --help.
func (pausesSetCmd) Help() string {
	return "All conditions that are given must hold. Messages that are paused wait – pushes in the database, replies in their queue – and expire when their time is over.\n\n" +
		"The kill switch for one account, or for everything:\n\n" +
		"  tidegate pauses set stop-card --account card --replies --reason 'wrong texts, INC-4711'\n" +
		"  tidegate pauses set stop-all --all --replies --reason 'INC-4711'"
}

func (c pausesSetCmd) Run(ctx context.Context) error { return c.run(ctx, app.KindPause, true) }

type cancelsSetCmd struct {
	orderSet
	Yes bool `help:"Do it; without it the command only counts."`
}

// Help is shown by --help.
func (cancelsSetCmd) Help() string {
	return "Ends what was accepted before now (or --accepted-before) and has not been sent: state cancelled. What comes later is not covered. A message whose try had no answer becomes unknown.\n\n" +
		"  tidegate cancels set march --account card --template ngqIpbwh8bUf… --lane bulk --reason 'wrong link' --yes"
}

func (c cancelsSetCmd) Run(ctx context.Context) error { return c.run(ctx, app.KindCancel, c.Yes) }

// orderBack is what taking back either kind has.
type orderBack struct {
	limitsOps
	Name   string        `arg:"" help:"The order's name."`
	Reason string        `required:"" help:"Why. It is kept in the audit."`
	Wait   time.Duration `help:"How long to wait until every live node follows; 0 does not wait." default:"10s"`
}

func (c orderBack) run(ctx context.Context, kind string) error {
	return app.OrdersSet(ctx, c.options(false), app.OrderChange{Kind: kind, Name: c.Name, Back: true, Reason: c.Reason, Wait: c.Wait})
}

type pausesLiftCmd struct{ orderBack }

func (c pausesLiftCmd) Run(ctx context.Context) error { return c.run(ctx, app.KindPause) }

type cancelsRevokeCmd struct{ orderBack }

func (c cancelsRevokeCmd) Run(ctx context.Context) error { return c.run(ctx, app.KindCancel) }

type auditLogCmd struct {
	limitsOps
	Kind  string `help:"Only this kind: limit, pause or cancel." enum:"limit,pause,cancel," default:""`
	Name  string `arg:"" optional:"" help:"Only this limit or order."`
	Limit int    `help:"Lines, at most 1000." default:"20"`
	JSON  bool   `help:"Print the answer as JSON."`
}

func (c auditLogCmd) Run(ctx context.Context) error {
	return app.LimitsLog(ctx, app.AuditOptions{LimitsOptions: c.options(c.JSON), Kind: c.Kind, Subject: c.Name, Limit: c.Limit})
}

type auditVerifyCmd struct {
	limitsOps
	JSON bool `help:"Print the answer as JSON."`
}

func (c auditVerifyCmd) Run(ctx context.Context) error {
	return app.LimitsLog(ctx, app.AuditOptions{LimitsOptions: c.options(c.JSON), Limit: 1, Verify: true})
}
