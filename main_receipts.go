package main

import (
	"context"
	"os"

	"tidegate/app"
)

// receiptsOps is how commands about messages reach a receipts role.
type receiptsOps struct {
	Ops  string `help:"Operations listener (ops.addr) of a receipts role." default:"http://127.0.0.1:9100"`
	Key  string `help:"Key of the listener, if it has keys; file:PATH reads it from a file." env:"TIDEGATE_OPS_KEY"`
	JSON bool   `help:"Print the answer as JSON."`
}

type traceCmd struct {
	receiptsOps
	ID string `arg:"" help:"Message id: of a callback, a reply or a push."`
}

// Help is shown by --help.
func (traceCmd) Help() string {
	return "Shows every step of a message in the order of time: the door, the place in the queue, calls to back ends, replies, attempts with the line they took, " +
		"receipts. A callback and its replies are one journey, whichever of them is asked for. The key needs the scope read."
}

func (c traceCmd) Run(ctx context.Context) error {
	return app.Trace(ctx, app.TraceOptions{Ops: c.Ops, Key: c.Key, ID: c.ID, JSON: c.JSON, Out: os.Stdout})
}

type recountCmd struct {
	roleCmd
	Repair bool `help:"Make the counts right where they differ."`
	JSON   bool `help:"Print the answer as JSON."`
}

// Help is shown by --help.
func (recountCmd) Help() string {
	return "Reports, metrics and alarms read counts that are kept with every row. This reads the database of --config, counts the rows again, an hour of them at a time " +
		"over one unchanging picture, and shows every difference; the receipts roles may go on writing. Exit code 1 if there is one and it is not repaired."
}

func (c recountCmd) Run(ctx context.Context) error {
	return app.Recount(ctx, app.RecountOptions{Source: c.source(), Repair: c.Repair, JSON: c.JSON, Out: os.Stdout})
}
