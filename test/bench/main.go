//go:build bench

// Command bench measures the acknowledgement of callbacks against a bare
// net/http server on the same machine in the same run.
//
// Idea: only figures of one run compare, so every cell (loop, connections,
// mode) is run on all targets one after another, in rounds, and what counts is
// the median over the rounds of the ratio to bare. The targets are separate
// processes: bare, the proxy role on real engines, the proxy role on the
// embedded ones.
//
// Invariant: a fast wrong answer is no result. After every cell the end offsets
// of Kafka, the done marks in Redis and the accepted answers must be equal; if
// they are not, the row says so and the exit code is 1.
//
// On failure (an engine is not named, a process ends, the time is over) the run
// stops with an error, after printing the rows it has. Time and requests are
// bounded; everything is on the loopback interface.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"tidegate/pkg/wire"
)

// enginesCommand makes this program the process of the embedded engines.
const enginesCommand = "embedded-engines"

// settings are what the command line and the environment choose.
type settings struct {
	out     string
	profile string
	rounds  int
	seconds float64
	only    *regexp.Regexp
	targets *regexp.Regexp
	beside  string
	limit   time.Duration
	warm    time.Duration
	parts   int
	phases  bool
	most    float64
}

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == enginesCommand {
		return exit(serveEngines(ctx))
	}
	if len(os.Args) > 1 && os.Args[1] == robotCommand {
		return exit(runRobot(ctx, os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == sendCommand {
		return exit(runSend(ctx, os.Args[2:]))
	}
	s, err := parse()
	if err != nil {
		return exit(err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("the benchmark takes more than %s: set BENCH_SECONDS lower or use -rounds, -only", s.limit))
	defer cancel()
	return exit(benchmark(ctx, s))
}

func exit(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

func parse() (settings, error) {
	s := settings{seconds: 2.5}
	only, targets := "", ""
	flag.StringVar(&s.out, "o", "", "write everything as one JSON object to this file")
	flag.StringVar(&s.profile, "profile", "", "write a CPU profile of the proxy on real engines, taken in its last cell, to this file")
	flag.IntVar(&s.rounds, "rounds", 3, "rounds of the closed loop, each with all targets")
	flag.StringVar(&only, "only", ".", "run the cells whose name (closed-256-safe, open-70%-plain) matches")
	flag.StringVar(&targets, "targets", ".", "run only the targets whose name (bare, real, beside, embedded) matches")
	flag.StringVar(&s.beside, "beside", "", "measure this other build of tidegate as well, on the same engines, in turn: what a change costs or saves")
	flag.DurationVar(&s.warm, "warm", 0, "load every target for this long before anything counts: a JVM that compiles fully needs a minute or more")
	flag.IntVar(&s.parts, "partitions", wire.Partitions, "partitions of the callbacks topic on the real Kafka: 12 is what is shipped for three brokers, 4 is the part of each of them")
	flag.Float64Var(&s.most, "max", 0, "open loop: the rate that counts as the maximum of every target, instead of what its closed loop has shown; two builds compare only at one rate")
	flag.BoolVar(&s.phases, "phases", false, "print for each cell how long the door's phases took, from its own histograms")
	flag.DurationVar(&s.limit, "limit", 6*time.Minute, "longest time of the whole run")
	flag.Parse()
	roundsGiven := false
	flag.Visit(func(f *flag.Flag) { roundsGiven = roundsGiven || f.Name == "rounds" })
	if v := os.Getenv("BENCH_SECONDS"); v != "" {
		var err error
		if s.seconds, err = strconv.ParseFloat(v, 64); err != nil {
			return s, fmt.Errorf("BENCH_SECONDS %q is not a number of seconds, for example 2", v)
		}
	}
	if s.seconds <= 2 && !roundsGiven {
		s.rounds = 1 // the short form is a smoke test
	}
	if s.seconds < 0.5 || s.seconds > 60 || s.rounds < 1 || s.rounds > 20 || s.parts < 1 || s.parts > 100 || flag.NArg() > 0 {
		return s, errors.New("use BENCH_SECONDS 0.5 to 60, -rounds 1 to 20, -partitions 1 to 100 and no further arguments")
	}
	var err error
	if s.only, err = regexp.Compile(only); err != nil {
		return s, err
	}
	s.targets, err = regexp.Compile(targets)
	return s, err
}

// benchmark starts the targets, runs the plan and reports.
func benchmark(ctx context.Context, s settings) (err error) {
	w := &world{phases: s.phases}
	defer func() { err = errors.Join(err, w.stop()) }()
	fmt.Fprintln(os.Stderr, "bench: building and starting bare, proxy and embedded engines")
	if err := w.start(ctx, s); err != nil {
		return err
	}
	rep := report{Partitions: s.parts, Machine: describe(ctx, w.target(realEngines).effects.admin, w.target(realEngines).effects.redis), Seconds: s.seconds, Rounds: s.rounds}
	rep.Rows, err = runPlan(ctx, w, s)
	rep.finish()
	rep.print(os.Stdout)
	if s.out != "" {
		err = errors.Join(err, rep.save(s.out))
	}
	return errors.Join(err, rep.verdict())
}
