package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/user"
	"slices"
	"time"

	"go.uber.org/zap"

	"tidegate/app/deadletters"
	"tidegate/pkg/telemetry"
)

// ReplayOptions say how to replay.
type ReplayOptions struct {
	DeadLettersOptions
	Max   int
	Rate  float64
	Again bool
	Yes   bool // without it, it only counts
	By    string
}

// DeadLettersReplay puts dead letters back into the topics that they came from.
func DeadLettersReplay(ctx context.Context, o ReplayOptions) error {
	switch {
	case o.Max < 1 || o.Max > 100_000:
		return usage(fmt.Errorf("--max %d: use 1 to 100000", o.Max))
	case o.Rate <= 0 || o.Rate > 10_000:
		return usage(fmt.Errorf("--rate %g: use more than 0 and up to 10000 a second", o.Rate))
	case len(o.By) > 100:
		return usage(errors.New("--by: use up to 100 characters"))
	}
	c, book, f, err := o.open()
	if err != nil {
		return err
	}
	log, err := telemetry.NewLogger(c.Log)
	if err != nil {
		return usage(err)
	}
	if o.By == "" {
		o.By = whoami()
	}
	order := deadletters.Order{Filter: f, Max: o.Max, Rate: o.Rate, Again: o.Again, By: o.By, Now: time.Now, Log: log.Named("deadletters")}
	p, err := book.Plan(ctx, order)
	if err != nil {
		return err
	}
	printPlan(o.Out, p, o)
	if !o.Yes || p.Chosen == 0 {
		return nil
	}
	return o.replay(ctx, c, log, book, order, p)
}

func (o ReplayOptions) replay(ctx context.Context, c Config, log *zap.Logger, book deadletters.Book, order deadletters.Order, p deadletters.Plan) error {
	e := newEngines(c, log)
	defer func() { _ = e.stack.Stop(context.WithoutCancel(ctx)) }()
	producer, err := e.Producer()
	if err != nil {
		return err
	}
	done, err := book.Replay(ctx, order, p, producer)
	fmt.Fprintf(o.Out, "%d replayed\n", done)
	if err != nil {
		return fmt.Errorf("%w; run the same command again: what was replayed is left out", err)
	}
	return nil
}

func printPlan(out io.Writer, p deadletters.Plan, o ReplayOptions) {
	fmt.Fprintf(out, "%d dead letters are meant\n", p.Matched)
	left := func(n int, why string) {
		if n > 0 {
			fmt.Fprintf(out, "  %d left out: %s\n", n, why)
		}
	}
	left(p.Before, "replayed before; --again replays them once more")
	for _, why := range slices.Sorted(maps.Keys(p.Skipped)) {
		left(p.Skipped[why], why)
	}
	left(p.Over, fmt.Sprintf("more than --max %d", o.Max))
	if o.Yes {
		return
	}
	fmt.Fprintf(out, "%d would be replayed, at %g a second, behind what their users have sent since; nothing was changed, --yes does it\n", p.Chosen, o.Rate)
}

// whoami names the operator for the audit.
func whoami() string {
	name := os.Getenv("SUDO_USER")
	if u, err := user.Current(); name == "" && err == nil {
		name = u.Username
	}
	if name == "" {
		name = "unknown"
	}
	return name + "@" + hostName()
}
