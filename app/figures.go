package app

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"tidegate/app/figures"
	"tidegate/pkg/kafka"
	"tidegate/pkg/redis"
)

// FiguresOptions are the flags of `tidegate figures`.
type FiguresOptions struct {
	Source         // the engines of a configuration; without one the embedded ones
	Kafka   string // host:port, instead of the configuration's
	Redis   string
	Only    []string
	Seconds float64
	Short   bool
	Dir     string
	Out     io.Writer
	Err     io.Writer
}

// Figures makes the papers' figures from runs of this code and prints what each
// claims. It returns ErrReported if a claim does not hold.
func Figures(ctx context.Context, o FiguresOptions) error {
	run := figures.Options{Only: o.Only, Seconds: o.Seconds, Short: o.Short, Dir: o.Dir, Err: o.Err}
	if o.File != "" || len(o.Set) > 0 {
		c, err := LoadConfig(o.File, o.Set)
		if err != nil {
			return usage(err)
		}
		run.Kafka, run.Redis = &c.Kafka, &c.Redis
	}
	if o.Kafka != "" {
		c := kafka.DefaultConfig()
		c.Brokers = []string{o.Kafka}
		run.Kafka = &c
	}
	if o.Redis != "" {
		c := redis.DefaultConfig()
		c.Addrs = []string{o.Redis}
		run.Redis = &c
	}
	claims, err := figures.Run(ctx, run)
	if !printClaims(o.Out, claims) && err == nil {
		return ErrReported
	}
	return err
}

// printClaims writes one line for each claim and reports whether all hold.
func printClaims(out io.Writer, claims []figures.Claim) bool {
	all := true
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range claims {
		verdict := "holds"
		if !c.Holds {
			verdict, all = "FAILS", false
		}
		fmt.Fprintf(w, "BAR\t%s\t%s\t%s\t%s\n", c.Figure, c.Promised, c.Measured, verdict)
	}
	w.Flush()
	return all
}
