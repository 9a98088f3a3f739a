package main

import (
	"context"
	"os"
	"time"

	"tidegate/app"
)

type limitsCmd struct {
	Show  limitsShowCmd  `cmd:"" help:"Every limit: what holds, what the file says, who has set it and why, and which nodes apply it." default:"withargs"`
	Set   limitsSetCmd   `cmd:"" help:"Change a limit on every node within two seconds, without a restart."`
	Reset limitsResetCmd `cmd:"" help:"Go back to the value of the configuration file."`
	Log   limitsLogCmd   `cmd:"" help:"Who changed which limit, when, from what to what, and why."`
}

type limitsOps struct {
	roleCmd
	Ops string `help:"Operations listener of a sender or robot; without it ops.addr of --config, or 127.0.0.1:9100."`
	Key string `help:"Key of the listener, if it has keys: scope read to look, steer to change; file:PATH reads it from a file." env:"TIDEGATE_OPS_KEY"`
}

func (c limitsOps) options(json bool) app.LimitsOptions {
	return app.LimitsOptions{Source: c.source(), Ops: c.Ops, Key: c.Key, JSON: json, Out: os.Stdout}
}

type limitsShowCmd struct {
	limitsOps
	JSON bool `help:"Print the answer as JSON."`
}

func (c limitsShowCmd) Run(ctx context.Context) error { return app.LimitsShow(ctx, c.options(c.JSON)) }

type limitsSetCmd struct {
	limitsOps
	Subject     string        `arg:"" help:"The limit, as 'limits show' names it: robot.account.card, robot.backend.core, sender.card.replies (also .template, .subscription)."`
	Rate        *float64      `help:"Per second; 0 is no cap, where the limit can be without. What is left out stays as it is."`
	Burst       *int          `help:"How many may go at once after a pause."`
	Concurrency *int          `help:"How many at the same time."`
	Reason      string        `required:"" help:"Why. It is shown beside the limit and kept in the audit."`
	For         time.Duration `help:"Go back by itself after this long, for example 2h; without it the limit stays until somebody changes it."`
	Wait        time.Duration `help:"How long to wait until every live node applies it; 0 does not wait." default:"10s"`
}

// Help is shown by --help.
func (limitsSetCmd) Help() string {
	return "A limit that is lowered holds at once; one that is raised is reached in a straight line over control.slow_start (10s), so that what stands behind can warm up. " +
		"The change overrides the configuration file, also over restarts, until 'limits reset'. Two who change the same limit at the same time do not undo each other: the second is told.\n\n" +
		"Example: the core banking system is slow – let 20 calls a second through for two hours:\n\n" +
		"  tidegate limits set robot.backend.core --rate 20 --for 2h --reason 'core is slow, INC-4711'"
}

func (c limitsSetCmd) Run(ctx context.Context) error {
	return app.LimitsSet(ctx, c.options(false), app.LimitsChange{
		Subject: c.Subject, Rate: c.Rate, Burst: c.Burst, Concurrency: c.Concurrency, Reason: c.Reason, For: c.For, Wait: c.Wait})
}

type limitsResetCmd struct {
	limitsOps
	Subject string        `arg:"" help:"The limit, as 'limits show' names it."`
	Reason  string        `required:"" help:"Why. It is kept in the audit."`
	Wait    time.Duration `help:"How long to wait until every live node applies it; 0 does not wait." default:"10s"`
}

func (c limitsResetCmd) Run(ctx context.Context) error {
	return app.LimitsSet(ctx, c.options(false), app.LimitsChange{Subject: c.Subject, Reset: true, Reason: c.Reason, Wait: c.Wait})
}

type limitsLogCmd struct {
	limitsOps
	Subject string `arg:"" optional:"" help:"Only this limit."`
	Limit   int    `help:"Lines, at most 1000." default:"20"`
	Verify  bool   `help:"Check the chain of hashes as well: exit code 1 if an entry was edited, taken out or put in, or a limit changed behind the audit."`
	JSON    bool   `help:"Print the answer as JSON."`
}

func (c limitsLogCmd) Run(ctx context.Context) error {
	return app.LimitsLog(ctx, app.AuditOptions{LimitsOptions: c.options(c.JSON), Kind: app.KindLimit, Subject: c.Subject, Limit: c.Limit, Verify: c.Verify})
}
