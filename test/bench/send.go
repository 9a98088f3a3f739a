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

// The sender benchmark (`bench send`) measures pushes per second from the topic of
// realtime pushes to a WeChat that answers at once, by a sender as shipped, beside
// the bare loop of test/bench/post, which posts the same records to the same server.
//
// In rounds, and in each round a pair of sender and loop on the same records, each
// beginning in turn. Nothing counts before a tenth and after nine tenths of the
// records. Afterwards every push must have reached WeChat once, have one receipt
// that says accepted, one intent with its outcome in PostgreSQL, and be committed;
// otherwise the row is no result.

// sendCommand is the name of the benchmark on the command line.
const sendCommand = "send"

// sendSettings are what the command line chooses.
type sendSettings struct {
	out, profile            string
	rounds, records, places int
	limit                   time.Duration
}

func parseSend(args []string) (sendSettings, error) {
	s := sendSettings{}
	f := flag.NewFlagSet("bench send", flag.ContinueOnError)
	f.StringVar(&s.out, "o", "", "write everything as one JSON object to this file")
	f.StringVar(&s.profile, "profile", "", "write a CPU profile of the sender, of one more run, to this file")
	f.IntVar(&s.rounds, "rounds", 3, "rounds, each with a sender and the bare loop")
	f.IntVar(&s.records, "n", 50_000, "pushes of each run")
	f.IntVar(&s.places, "places", 64, "requests under way at once, of the sender and of the bare loop")
	f.DurationVar(&s.limit, "limit", 4*time.Minute, "longest time of the whole run")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if s.rounds < 1 || s.rounds > 20 || s.records < 1000 || s.records > 1_000_000 || s.places < 1 || s.places > 480 || f.NArg() > 0 {
		return s, errors.New("use -rounds 1 to 20, -n 1000 to 1000000, -places 1 to 480 and no further arguments")
	}
	return s, nil
}

func runSend(ctx context.Context, args []string) (err error) {
	s, err := parseSend(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("the benchmark takes more than %s: use -rounds, -n or -limit", s.limit))
	defer cancel()
	w := &sendWorld{settings: s}
	defer func() { err = errors.Join(err, w.stop()) }()
	fmt.Fprintln(os.Stderr, "bench: building sender and bare loop")
	if err := w.open(ctx); err != nil {
		return err
	}
	rep := sendReport{Machine: w.describe(ctx), Records: s.records, Places: s.places, Rounds: s.rounds}
	err = w.run(ctx, &rep)
	rep.finish()
	rep.print(os.Stdout)
	if s.out != "" {
		err = errors.Join(err, rep.save(s.out))
	}
	return errors.Join(err, rep.verdict())
}

// run makes all pairs.
func (w *sendWorld) run(ctx context.Context, rep *sendReport) error {
	defer w.station.remove()
	for round := range w.settings.rounds {
		if err := w.fill(ctx, w.settings.records); err != nil {
			return err
		}
		runs := []func(context.Context) (sendRow, error){func(ctx context.Context) (sendRow, error) { return w.sender(ctx, nil) }, w.bare}
		for i := range runs {
			r, err := runs[(i+round)%len(runs)](ctx)
			if err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
			r.Round = round + 1
			rep.Rows = append(rep.Rows, r)
			fmt.Fprintf(os.Stderr, "bench: round %d %-7s %8.0f/s  %6.1f µs\n", r.Round, r.Target, r.PerSecond, r.CPU[r.Target])
		}
	}
	if w.settings.profile == "" {
		return nil
	}
	if err := w.fill(ctx, w.settings.records); err != nil {
		return err
	}
	_, err := w.sender(ctx, func(ctx context.Context, ops string) error {
		return fetchFile(ctx, "http://"+ops+"/debug/pprof/profile?seconds=3", w.settings.profile)
	})
	return err
}
