package main

import (
	"context"
	"time"

	"tidegate/app"
)

type linesCmd struct {
	List linesListCmd `cmd:"" help:"The lines: which can be reached, since when, and which account goes by which." default:"withargs"`
	Use  linesUseCmd  `cmd:"" help:"Move an account, or all, to a line on every node within two seconds, without a restart."`
}

type linesListCmd struct {
	limitsOps
	JSON bool `help:"Print the answer as JSON."`
}

func (c linesListCmd) Run(ctx context.Context) error { return app.LinesList(ctx, c.options(c.JSON)) }

type linesUseCmd struct {
	limitsOps
	Line    string        `arg:"" help:"The line, as 'lines list' names it; auto goes back to the order of the configuration."`
	Account string        `help:"Only this account; without it every account that has no choice of its own."`
	Reason  string        `required:"" help:"Why. It is shown beside the choice and kept in the audit."`
	For     time.Duration `help:"Go back by itself after this long, for example 2h; without it the choice stays until somebody takes it back."`
	Wait    time.Duration `help:"How long to wait until every live node follows; 0 does not wait." default:"10s"`
}

// Help is shown by --help.
func (linesUseCmd) Help() string {
	return "The chosen line goes first while it can be reached; where it cannot, the others are taken, so that a switch by hand loses nothing.\n\n" +
		"Example: the carrier works on its main line tonight:\n\n" +
		"  tidegate lines use spare --for 6h --reason 'carrier maintenance'"
}

func (c linesUseCmd) Run(ctx context.Context) error {
	return app.LinesUse(ctx, c.options(false), app.LineUse{Line: c.Line, Account: c.Account, Reason: c.Reason, For: c.For, Wait: c.Wait})
}
