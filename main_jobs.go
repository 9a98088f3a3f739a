package main

import (
	"context"
	"os"
	"time"

	"tidegate/app"
)

type jobsCmd struct {
	List jobsListCmd `cmd:"" help:"Every scheduled job: when it is next, when it last succeeded, how late it is, and which node leads." default:"withargs"`
	Log  jobsLogCmd  `cmd:"" help:"What became of a job's slots: done, failed, missed, interrupted, waiting; on which node, and why."`
	Run  jobsRunCmd  `cmd:"" help:"Run a job now, once, on the node that leads, and wait for its end."`
}

type jobsOps struct {
	roleCmd
	Ops string `help:"Operations listener of a receipts role; without it ops.addr of --config, or 127.0.0.1:9100."`
	Key string `help:"Key of the listener, if it has keys: scope read to look, steer to run; file:PATH reads it from a file." env:"TIDEGATE_OPS_KEY"`
}

func (c jobsOps) options(json bool) app.JobsOptions {
	return app.JobsOptions{Source: c.source(), Ops: c.Ops, Key: c.Key, JSON: json, Out: os.Stdout}
}

type jobsListCmd struct {
	jobsOps
	JSON bool `help:"Print the answer as JSON."`
}

// Help is shown by --help.
func (jobsListCmd) Help() string {
	return "Each time that a job's schedule names is a slot. A slot runs once, on the one node that leads, however many nodes there are and whichever of them die. " +
		"A slot that nobody could run in time is made up for within the job's catch-up window and recorded as missed beyond it.\n\n" +
		"OVERDUE is the time since the first slot that has no success behind it: '-' is well."
}

func (c jobsListCmd) Run(ctx context.Context) error { return app.JobsList(ctx, c.options(c.JSON)) }

type jobsLogCmd struct {
	jobsOps
	Name  string `arg:"" help:"The job, as 'jobs list' names it."`
	Limit int    `help:"Lines, at most 1000." default:"20"`
	JSON  bool   `help:"Print the answer as JSON."`
}

func (c jobsLogCmd) Run(ctx context.Context) error {
	return app.JobsLog(ctx, c.options(c.JSON), c.Name, c.Limit)
}

type jobsRunCmd struct {
	jobsOps
	Name   string        `arg:"" help:"The job, as 'jobs list' names it."`
	Reason string        `required:"" help:"Why. It is kept in the history and in the audit."`
	Slot   string        `help:"The time that the run is to stand for, for example 2026-03-01T06:30:00+08:00; without it, now."`
	Wait   time.Duration `help:"How long to wait for the end of the run; 0 does not wait." default:"2m"`
}

// Help is shown by --help.
func (jobsRunCmd) Help() string {
	return "The request is a row that the leader takes within a second, from whichever node it was asked; asking twice while it waits or runs is refused. " +
		"It changes nothing about the schedule: the next slot runs as if nobody had asked. Exit code 1 if the run does not succeed; a run that is no longer waited for goes on.\n\n" +
		"Example: the disk was full on the second of March, so the report about the first is not there – make it now:\n\n" +
		"  tidegate jobs run failure-report --slot 2026-03-02T06:30:00+08:00 --reason 'disk was full, INC-4711'"
}

func (c jobsRunCmd) Run(ctx context.Context) error {
	return app.JobsRun(ctx, c.options(false), app.JobRun{Name: c.Name, Reason: c.Reason, Slot: c.Slot, Wait: c.Wait})
}
