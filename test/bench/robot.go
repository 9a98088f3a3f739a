//go:build bench

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

// The robot benchmark (`bench robot`) measures callbacks per second from the
// topic callbacks to the topic replies by a robot as shipped, with a back end
// that answers at once, beside the bare copy loop of test/bench/copy.
//
// In rounds, and in each round in pairs of robot and copy on the same records,
// each beginning in turn. Nothing counts before a tenth and after nine tenths of
// the records, so that joining and leaving the group are no part of it. Afterwards every callback must have exactly one reply and one receipt, and
// the group's offsets must be committed; otherwise the row is no result.

// robotCommand is the name of the benchmark on the command line.
const robotCommand = "robot"

// robotSettings are what the command line chooses.
type robotSettings struct {
	out, profile, allocs string
	rounds, records      int
	limit                time.Duration
	beside               string
	cells                []robotCell
}

// robotCell is one rule that callbacks meet.
type robotCell struct {
	Name string `json:"name"`
	rule string
}

// The headline is the one that the issue names: a call to a back end for each
// callback. What HTTP itself costs there on both sides is seen beside the other.
func robotCells() []robotCell {
	return []robotCell{
		{"backend", "call: {backend: core, path: /balance, body: {text: \"{{ .Content }}\"}}\n    reply: {text: \"your balance is {{ .Answer.balance }}\"}"},
		{"static", "reply: {text: \"we are looking for it\"}"},
	}
}

func parseRobot(args []string) (robotSettings, error) {
	s := robotSettings{}
	only := ""
	f := flag.NewFlagSet("bench robot", flag.ContinueOnError)
	f.StringVar(&s.out, "o", "", "write everything as one JSON object to this file")
	f.StringVar(&s.profile, "profile", "", "write a CPU profile of the robot, of one more run of each cell, to this file (the cell's name is put before it)")
	f.StringVar(&s.allocs, "allocs", "", "write a profile of the robot's allocations in that run to this file")
	f.IntVar(&s.rounds, "rounds", 3, "rounds, each with all pairs")
	f.IntVar(&s.records, "n", 100_000, "callbacks of each run")
	f.StringVar(&only, "only", "", "run only this cell: backend or static")
	f.StringVar(&s.beside, "beside", "", "measure this other build of tidegate as well, in turn: what a change costs or saves")
	f.DurationVar(&s.limit, "limit", 4*time.Minute, "longest time of the whole run")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if s.rounds < 1 || s.rounds > 20 || s.records < 1000 || s.records > 1_000_000 || f.NArg() > 0 {
		return s, errors.New("use -rounds 1 to 20, -n 1000 to 1000000 and no further arguments")
	}
	for _, c := range robotCells() {
		if only == "" || only == c.Name {
			s.cells = append(s.cells, c)
		}
	}
	if len(s.cells) == 0 {
		return s, fmt.Errorf("-only %q: use backend or static", only)
	}
	return s, nil
}

func runRobot(ctx context.Context, args []string) (err error) {
	s, err := parseRobot(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("the benchmark takes more than %s: use -rounds, -n, -only or -limit", s.limit))
	defer cancel()
	w := &robotWorld{}
	defer func() { err = errors.Join(err, w.stop()) }()
	fmt.Fprintln(os.Stderr, "bench: building robot and copy")
	if err := w.open(ctx); err != nil {
		return err
	}
	rep := robotReport{Machine: w.describe(ctx), Records: s.records, Rounds: s.rounds}
	err = w.rounds(ctx, s, &rep)
	rep.finish()
	rep.print(os.Stdout)
	if s.out != "" {
		err = errors.Join(err, rep.save(s.out))
	}
	return errors.Join(err, rep.verdict())
}

// rounds runs all pairs.
func (w *robotWorld) rounds(ctx context.Context, s robotSettings, rep *robotReport) error {
	st, err := w.station(ctx, s)
	if err != nil {
		return err
	}
	defer st.remove()
	for round := range s.rounds {
		for i, c := range s.cells {
			rows, err := st.pair(ctx, s, c, round+i)
			for _, r := range rows {
				r.Round = round + 1
				rep.Rows = append(rep.Rows, r)
				fmt.Fprintf(os.Stderr, "bench: round %d %-8s %-7s %8.0f/s  %6.1f µs\n", r.Round, c.Name, r.Target, r.PerSecond, r.CPU[columnOf(r.Target)])
			}
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, c.Name, err)
			}
		}
	}
	if s.profile == "" && s.allocs == "" {
		return nil
	}
	for _, c := range s.cells {
		if err := st.profile(ctx, s, c); err != nil {
			return err
		}
	}
	return nil
}

// pair runs one cell on the robot, the copy loop and, if it is there, the other
// build, each on the same records.
func (st *station) pair(ctx context.Context, s robotSettings, c robotCell, turn int) ([]robotRow, error) {
	if err := st.fill(ctx, s.records); err != nil {
		return nil, err
	}
	runs := []func() (robotRow, error){
		func() (robotRow, error) { return st.robot(ctx, c, targetRobot, st.n, nil) },
		func() (robotRow, error) { return st.copy(ctx) },
	}
	if s.beside != "" {
		runs = append(runs, func() (robotRow, error) { return st.robot(ctx, c, beside, st.n, nil) })
	}
	var rows []robotRow
	for i := range runs {
		r, err := runs[(i+turn)%len(runs)]()
		if err != nil {
			return rows, err
		}
		r.Cell = c.Name
		rows = append(rows, r)
	}
	return rows, nil
}
