// Tidegate is the gate between WeChat-style service accounts and the business
// systems behind them. This file knows flags, signals and exit codes; package
// app does the rest.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"tidegate/app"
)

// Exit codes: 0 done, 1 the work failed or its result is bad, 2 wrong usage or
// configuration.
const (
	exitFailed = 1
	exitUsage  = 2
)

type roleCmd struct {
	Config string            `help:"YAML file; deployments/config has a commented sample per role." type:"path" env:"TIDEGATE_CONFIG"`
	Set    map[string]string `help:"Override one key, for example --set redis.addrs=10.0.0.5:6379. Environment variables do the same: TIDEGATE_REDIS__ADDRS." mapsep:"none"`
	Print  bool              `name:"print-config" help:"Print the effective configuration without secrets and exit."`
}

func (c roleCmd) source() app.Source { return app.Source{File: c.Config, Set: c.Set} }

func (c roleCmd) run(ctx context.Context, role app.Role) error {
	if c.Print {
		return app.PrintConfig(os.Stdout, c.source())
	}
	return app.RunRole(ctx, role, c.source())
}

type cli struct {
	Dev      devCmd      `cmd:"" help:"Run everything in one process with embedded engines and a simulated WeChat. Start here."`
	Proxy    proxyCmd    `cmd:"" help:"Run the door that WeChat posts callbacks to."`
	Robot    robotCmd    `cmd:"" help:"Run a robot: work callbacks off, in order per user, at a capped rate."`
	Sender   senderCmd   `cmd:"" help:"Run a sender: the push API, and everything that goes out to WeChat."`
	Receipts receiptsCmd `cmd:"" help:"Run the receipts room: the state of every message, reports, re-send."`
	Sim      simCmd      `cmd:"" help:"Run the WeChat simulator on its own, to develop a bot without an account."`
	Topics   topicsCmd   `cmd:"" help:"Create the Kafka topics that the configuration needs, and show how they stand."`
	ACLs     aclsCmd     `cmd:"" name:"acls" help:"Print, or put in place, what each role's user at Kafka must be allowed."`
	Doctor   doctorCmd   `cmd:"" help:"Check configuration, Redis, Kafka, database and WeChat, and say in plain words what to do."`
	Apps     appsCmd     `cmd:"" help:"Keys of business systems: add, list, revoke."`
	OpsKey   opsKeyCmd   `cmd:"" help:"Make a key for the operations listener (metrics, /ops/v1/, profiles) and show what to configure."`
	Report   reportCmd   `cmd:"" help:"Reports about messages."`
	Rules    rulesCmd    `cmd:"" help:"Check a rules file, or try what it would answer and why."`
	Spool    spoolCmd    `cmd:"" help:"What a door keeps on disk while Kafka is away: inspect it, or drain that of a dead node."`
	Queues   queuesCmd   `cmd:"" help:"How much waits in every queue, for how long, and whether somebody works it: a live table."`
	Limits   limitsCmd   `cmd:"" help:"How fast accounts, back ends and APIs may be used: show it, change it while everything runs, see who did."`
	Lines    linesCmd    `cmd:"" help:"The ways to WeChat: show them, move accounts from one to another while everything runs."`
	Pauses   pausesCmd   `cmd:"" help:"Stop messages by account, app, template or lane, or all of them, and let them go again."`
	Cancels  cancelsCmd  `cmd:"" help:"End messages that were accepted and not sent."`
	Audit    auditCmd    `cmd:"" help:"Who changed what in the running deployment; check that the record is whole."`
	Jobs     jobsCmd     `cmd:"" help:"What runs at fixed times, once in the cluster: list it, see what became of it, run it now."`
	Resend   resendCmd   `cmd:"" help:"Send failed pushes again: count first, at a rate, each at most once per request."`
	Webhooks webhooksCmd `cmd:"" help:"What apps are told of their messages: which endpoints take it, enable them, deliver again."`
	Dead     deadCmd     `cmd:"" name:"deadletters" help:"Messages that nobody could work: list, show, and put them back."`
	Erase    eraseCmd    `cmd:"" help:"Erase what robots keep of one follower. Says what it would do only, until --yes is given."`
	Repeats  repeatsCmd  `cmd:"" help:"Which users pressed the same again too soon, and what."`
	Trace    traceCmd    `cmd:"" help:"Every step of one message: callback, queue, back ends, reply, attempts with their line, receipt."`
	Recount  recountCmd  `cmd:"" help:"Count the rows of messages again and compare with the counts that reports rest on."`
	Guard    guardCmd    `cmd:"" help:"Stand in front of an HTTP system that cannot bear everybody at once: share what it answers while the demand is high."`
	Figures  figuresCmd  `cmd:"" help:"Make the papers' figures anew, each from a run of this code, as SVG and CSV."`
	Version  versionCmd  `cmd:"" help:"Print version and build."`
}

type proxyCmd struct{ roleCmd }
type robotCmd struct{ roleCmd }
type senderCmd struct{ roleCmd }
type receiptsCmd struct{ roleCmd }

func (c proxyCmd) Run(ctx context.Context) error    { return c.run(ctx, app.RoleProxy) }
func (c robotCmd) Run(ctx context.Context) error    { return c.run(ctx, app.RoleRobot) }
func (c senderCmd) Run(ctx context.Context) error   { return c.run(ctx, app.RoleSender) }
func (c receiptsCmd) Run(ctx context.Context) error { return c.run(ctx, app.RoleReceipts) }

type devCmd struct {
	For    time.Duration `help:"End by itself after this long, for example 20s, and print the conservation summary. Exit code 1 if anything was lost, doubled or out of order."`
	Rate   float64       `help:"Callbacks per second from the simulated followers; 0 for none." default:"20"`
	Pushes float64       `help:"Pushes per second from a simulated business system; the default is a tenth of --rate." default:"-1"`
	JSON   bool          `help:"Print the summary as one JSON object on standard output and nothing else."`
	Data   string        `help:"Directory that keeps the state between runs; without it everything is forgotten at the end." type:"path"`
	Break  string        `help:"Inject exactly one fault behind the door, to see that the summary catches it: lose, double or reorder." enum:",lose,double,reorder" default:""`
	Rules  string        `help:"Rules file to use instead of the built-in ones." type:"path"`
	Port   int           `help:"First of four ports on 127.0.0.1 (door, API, operations, simulator); 0 takes free ones." default:"8080"`
}

func (c devCmd) Run(ctx context.Context) error {
	return app.Dev(ctx, app.DevOptions{
		For: c.For, Rate: c.Rate, Pushes: c.Pushes, JSON: c.JSON, Data: c.Data, Break: c.Break, Rules: c.Rules, Port: c.Port,
		Out: os.Stdout, Err: os.Stderr,
	})
}

type simCmd struct {
	Config string `help:"YAML file with accounts, limits and switches; without it one account with fresh secrets is made and shown." type:"path"`
	Addr   string `help:"Address of the API and of the control surface." default:"127.0.0.1:8090"`
	URL    string `name:"callback-url" help:"Where the account's callbacks go, for example http://127.0.0.1:8080/wx/demo."`
	Mode   string `help:"How callbacks are encrypted: ${enum}." enum:"plain,compatible,safe" default:"safe"`
}

func (c simCmd) Run(ctx context.Context) error {
	return app.Sim(ctx, app.SimOptions{File: c.Config, Addr: c.Addr, CallbackURL: c.URL, Mode: c.Mode, Out: os.Stdout})
}

type topicsCmd struct {
	roleCmd
	DryRun bool `help:"Only show what would be created."`
}

func (c topicsCmd) Run(ctx context.Context) error {
	return app.Topics(ctx, c.source(), c.DryRun, os.Stdout)
}

type aclsCmd struct {
	roleCmd
	Users string `help:"What the users' names begin with; the role's name follows, and 'topics' or 'deadletters' for whoever runs these commands." default:"tidegate-"`
	Apply bool   `help:"Write the list into the cluster instead of printing arguments for kafka-acls.sh. Needs a user with Alter on the cluster."`
}

func (c aclsCmd) Run(ctx context.Context) error {
	return app.ACLs(ctx, c.source(), app.ACLOptions{Users: c.Users, Apply: c.Apply}, os.Stdout)
}

type doctorCmd struct {
	roleCmd
	Role string `help:"Check what this role needs (proxy, robot, sender or receipts); empty checks everything that is configured." enum:",proxy,robot,sender,receipts" default:""`
}

func (c doctorCmd) Run(ctx context.Context) error {
	return app.Doctor(ctx, c.source(), app.Role(c.Role), os.Stdout)
}

type appsCmd struct {
	Add    appsAddCmd    `cmd:"" help:"Make a key for a business system. It is shown once."`
	List   appsListCmd   `cmd:"" help:"List the keys, without their secrets."`
	Revoke appsRevokeCmd `cmd:"" help:"Revoke a key; it stops working on all nodes within 5 s."`
}

type appsAddCmd struct {
	roleCmd
	Name      string   `arg:"" help:"Name of the business system."`
	Accounts  []string `name:"account" required:"" help:"Account that it may use; give it several times, or * for all."`
	Scopes    []string `name:"scope" help:"What it may do; give it several times." default:"pushes:write,messages:read,messages:resend,reports:read"`
	Template  []string `help:"Template that it may push with; give it several times. Without it: every template, and messages without one."`
	Developer string   `help:"Who answers for it: limits may hold for all apps of one developer."`
}

func (c appsAddCmd) Run(ctx context.Context) error {
	return app.AppsAdd(ctx, c.source(), app.NewKey{Name: c.Name, Accounts: c.Accounts, Scopes: c.Scopes, Templates: c.Template, Developer: c.Developer}, os.Stdout)
}

type appsListCmd struct{ roleCmd }

func (c appsListCmd) Run(ctx context.Context) error { return app.AppsList(ctx, c.source(), os.Stdout) }

type appsRevokeCmd struct {
	roleCmd
	Key string `arg:"" help:"Key id or name, as 'apps list' shows it."`
}

func (c appsRevokeCmd) Run(ctx context.Context) error {
	return app.AppsRevoke(ctx, c.source(), c.Key, os.Stdout)
}

type opsKeyCmd struct {
	Name   string   `arg:"" help:"Whose key it is, for example prometheus."`
	Scopes []string `name:"scope" help:"What it may do; give it several times: metrics, read (queues, limits, alarms), steer (change limits), personal (what is kept of one follower: his last actions), write, debug." default:"metrics"`
}

func (c opsKeyCmd) Run() error { return app.NewOpsKey(c.Name, c.Scopes, os.Stdout) }

type reportCmd struct {
	Failures reportFailuresCmd `cmd:"" help:"Failed messages by reason, as CSV and HTML."`
}

type reportFailuresCmd struct {
	roleCmd
	Since time.Duration `help:"How far back to look." default:"24h"`
	Dir   string        `help:"Where to write failures-<date>.csv and .html." default:"." type:"path"`
}

func (c reportFailuresCmd) Run(ctx context.Context) error {
	return app.ReportFailures(ctx, c.source(), c.Since, c.Dir, os.Stdout)
}

type spoolCmd struct {
	Inspect spoolInspectCmd `cmd:"" help:"Show counts, bytes, ages and damage of a spool; changes nothing."`
	Drain   spoolDrainCmd   `cmd:"" help:"Give Kafka what lies in the spool of a door that is gone, in order per user."`
}

type spoolInspectCmd struct {
	roleCmd
	Dir string `arg:"" help:"The directory (proxy.spool.dir)." type:"path"`
}

func (c spoolInspectCmd) Run() error { return app.SpoolInspect(c.source(), c.Dir, os.Stdout) }

type spoolDrainCmd struct {
	roleCmd
	Dir string `arg:"" help:"The directory (proxy.spool.dir) or a copy of it. No door may use it." type:"path"`
}

func (c spoolDrainCmd) Run(ctx context.Context) error {
	return app.SpoolDrain(ctx, c.source(), c.Dir, os.Stdout)
}

type queuesCmd struct {
	roleCmd
	Ops     string `help:"Operations listener of a proxy; without it ops.addr of --config, or 127.0.0.1:9100."`
	Key     string `help:"Key of the listener with the scope read, if it has keys; file:PATH reads it from a file." env:"TIDEGATE_OPS_KEY"`
	Account string `help:"Only this account, and what all accounts share."`
	Watch   bool   `help:"Redraw each second, also where the output is no terminal." xor:"how"`
	Once    bool   `help:"Print one table and end, also on a terminal." xor:"how"`
	All     bool   `help:"Show every partition, not only those that stand out."`
	JSON    bool   `help:"Print the answer as JSON."`
}

func (c queuesCmd) Run(ctx context.Context) error {
	return app.Queues(ctx, app.QueuesOptions{Source: c.source(), Ops: c.Ops, Key: c.Key, Account: c.Account,
		Watch: c.Watch, Once: c.Once, All: c.All, JSON: c.JSON, Out: os.Stdout})
}

type repeatsCmd struct {
	Ops     string        `help:"Operations listener (ops.addr) of a receipts role." default:"http://127.0.0.1:9100"`
	Key     string        `help:"Key of the listener with the scope read, if it has keys; file:PATH reads it from a file." env:"TIDEGATE_OPS_KEY"`
	Since   time.Duration `help:"How far back to look, at most 168h." default:"10m"`
	Account string        `help:"Only this account."`
	Limit   int           `help:"Lines of each table, at most 100." default:"10"`
	JSON    bool          `help:"Print the answer as JSON."`
}

func (c repeatsCmd) Run(ctx context.Context) error {
	return app.Repeats(ctx, app.RepeatsOptions{Ops: c.Ops, Key: c.Key, Since: c.Since, Account: c.Account, Limit: c.Limit, JSON: c.JSON, Out: os.Stdout})
}

type guardCmd struct {
	Config   string            `help:"YAML file; deployments/config/guard.yaml is a commented sample." type:"path" env:"TIDEGATE_GUARD_CONFIG"`
	Set      map[string]string `help:"Override one key, for example --set guard.threshold=200. Environment variables do the same: TIDEGATE_GUARD_GUARD__THRESHOLD." mapsep:"none"`
	Print    bool              `name:"print-config" help:"Print the effective configuration without secrets and exit."`
	Upstream string            `help:"The system behind, for example http://127.0.0.1:9000."`
	Addr     string            `help:"Where clients come; the default is 127.0.0.1:8070."`
	Share    []string          `help:"Path that may be shared, as a pattern: --share '/seats/{train}'. Give it several times. Everything else passes the gate only." sep:"none"`
}

func (c guardCmd) Run(ctx context.Context) error {
	return app.Guard(ctx, app.GuardOptions{Source: app.Source{File: c.Config, Set: c.Set}, Upstream: c.Upstream, Addr: c.Addr, Share: c.Share, Print: c.Print})
}

type figuresCmd struct {
	Config  string            `help:"YAML file whose kafka and redis sections name the engines; without any engine named, embedded ones are used." type:"path"`
	Set     map[string]string `help:"Override one key of it, for example --set redis.addrs=10.0.0.5:6379." mapsep:"none"`
	Kafka   string            `help:"Address of Kafka, without login, instead of the configuration's."`
	Redis   string            `help:"Address of Redis, without login, instead of the configuration's."`
	Only    []string          `help:"Make only this figure, for example 000/7. Give it several times. There are 000/6, 000/7, 000/8, 003/7 and 003/8."`
	Seconds float64           `help:"Length of one run of a scene; a figure has up to 22 of them." default:"5"`
	Short   bool              `help:"Fewer and shorter runs that show the shapes only."`
	Dir     string            `name:"out" help:"Directory of the files." default:"docs/figures" type:"path"`
}

func (c figuresCmd) Run(ctx context.Context) error {
	return app.Figures(ctx, app.FiguresOptions{Source: app.Source{File: c.Config, Set: c.Set}, Kafka: c.Kafka, Redis: c.Redis,
		Only: c.Only, Seconds: c.Seconds, Short: c.Short, Dir: c.Dir, Out: os.Stdout, Err: os.Stderr})
}

type versionCmd struct{}

func (versionCmd) Run() error { fmt.Fprintln(os.Stdout, app.Version()); return nil }

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c cli
	parser, err := kong.New(&c, kong.Name("tidegate"),
		kong.Description("The gate between WeChat service accounts and the systems behind them.\n\nBegin with 'tidegate dev': it needs nothing but this program."),
		kong.UsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)))
	if err != nil {
		fmt.Fprintln(os.Stderr, "tidegate:", err)
		return exitUsage
	}
	cmd, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tidegate:", err)
		fmt.Fprintln(os.Stderr, "Try 'tidegate --help'.")
		return exitUsage
	}
	switch err := cmd.Run(); {
	case err == nil:
		return 0
	case errors.Is(err, app.ErrUsage):
		fmt.Fprintln(os.Stderr, "tidegate:", err)
		return exitUsage
	case errors.Is(err, app.ErrReported):
		return exitFailed
	default:
		fmt.Fprintln(os.Stderr, "tidegate:", err)
		return exitFailed
	}
}
