package main

import (
	"context"
	"os"
	"time"

	"tidegate/app"
)

type deadCmd struct {
	List   deadListCmd   `cmd:"" help:"Show the newest dead letters, and how many there are by account and reason."`
	Show   deadShowCmd   `cmd:"" help:"Show one dead letter."`
	Replay deadReplayCmd `cmd:"" help:"Put dead letters back into the topics that they came from. Counts only, until --yes is given."`
}

// deadFlags choose among the dead letters.
type deadFlags struct {
	roleCmd
	Account string        `help:"Only of this account."`
	Room    string        `help:"Only those that this room gave up: proxy, robot, sender or receipts."`
	Reason  string        `help:"Only those whose reason contains this text."`
	Since   time.Duration `help:"How far back to look; 0 is as far as the topic goes." default:"168h"`
}

func (c deadFlags) options(names ...string) app.DeadLettersOptions {
	return app.DeadLettersOptions{Source: c.source(), Account: c.Account, Room: c.Room, Reason: c.Reason, Since: c.Since, Names: names, Out: os.Stdout}
}

type deadListCmd struct {
	deadFlags
	Limit int  `help:"How many to show; all are counted." default:"50"`
	JSON  bool `help:"Print JSON."`
}

func (c deadListCmd) Run(ctx context.Context) error {
	return app.DeadLettersList(ctx, c.options(), c.Limit, c.JSON)
}

type deadShowCmd struct {
	deadFlags
	Name string `arg:"" help:"Name of a dead letter, as 'list' shows it, or id of its message."`
	Body bool   `help:"Show the user's openid and the whole record as well. It is personal data."`
}

func (c deadShowCmd) Run(ctx context.Context) error {
	return app.DeadLettersShow(ctx, c.options(c.Name), c.Body)
}

type deadReplayCmd struct {
	deadFlags
	Names []string `arg:"" optional:"" help:"Names or message ids; without any, everything that the flags leave."`
	Max   int      `help:"At most so many." default:"1000"`
	Rate  float64  `help:"So many a second." default:"50"`
	Again bool     `help:"Also what was replayed before, once more."`
	Yes   bool     `help:"Do it. Without this it is only counted."`
	By    string   `help:"Who does it, for the audit; the default is the login name and the host."`
}

func (c deadReplayCmd) Run(ctx context.Context) error {
	return app.DeadLettersReplay(ctx, app.ReplayOptions{DeadLettersOptions: c.options(c.Names...), Max: c.Max, Rate: c.Rate, Again: c.Again, Yes: c.Yes, By: c.By})
}
