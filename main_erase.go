package main

import (
	"context"
	"os"

	"tidegate/app"
)

type eraseCmd struct {
	roleCmd
	Account string `arg:"" help:"Account that the follower follows."`
	OpenID  string `arg:"" name:"openid" help:"The follower."`
	Ops     string `help:"Operations listener of a robot; without it ops.addr of --config, or 127.0.0.1:9100. One robot is enough: all share what they keep."`
	Key     string `help:"Key of the listener with the scope personal, if it has keys; file:PATH reads it from a file." env:"TIDEGATE_OPS_KEY"`
	Yes     bool   `help:"Do it. Without this nothing is erased."`
	JSON    bool   `help:"Print the answer as JSON."`
}

// Help is shown by --help.
func (eraseCmd) Help() string {
	return "Erases a follower's last actions, his dialogue, the counts of his limits, and what is kept of back ends' answers about him and of his binding. It does the whole or " +
		"fails, and may be repeated. The answer also names what it does not reach: records in Kafka, rows of the receipts database, what the sender holds, " +
		"the binding at the bank."
}

func (c eraseCmd) Run(ctx context.Context) error {
	return app.Erase(ctx, app.EraseOptions{Source: c.source(), Ops: c.Ops, Key: c.Key, Account: c.Account, OpenID: c.OpenID, Yes: c.Yes, JSON: c.JSON, Out: os.Stdout})
}
