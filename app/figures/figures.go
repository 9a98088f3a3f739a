package figures

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.uber.org/zap"

	"tidegate/app/figures/chart"
	"tidegate/pkg/kafka"
	"tidegate/pkg/redis"
)

// Options choose what is made and on what.
type Options struct {
	// Only are names of figures, such as 000/7; empty makes all.
	Only []string
	// Seconds is the length of one run of a scene; 0 takes 5.
	Seconds float64
	// Short makes the form for CI: the same scenes with fewer and shorter runs.
	Short bool
	// Alone has one guard without Redis instead of a cluster of them.
	Alone bool
	// Dir takes the files; empty writes none.
	Dir string
	// Kafka and Redis are the engines; nil takes an embedded one.
	Kafka *kafka.Config
	Redis *redis.Config
	Err   io.Writer // progress
	Log   *zap.Logger
}

// Names lists the figures.
func Names() []string {
	var names []string
	for _, f := range all() {
		names = append(names, f.name)
	}
	return names
}

type figure struct {
	name  string // paper/number
	file  string
	title string
	make  func(ctx context.Context, s *stage) (drawing, error)
}

func all() []figure {
	return []figure{
		{"000/6", "000-figure-6", "Paper 000, Figure 6: life of cached data against users", lifeFigure},
		{"000/7", "000-figure-7", "Paper 000, Figure 7: calls at once against users", concurrencyFigure},
		{"000/8", "000-figure-8", "Paper 000, Figure 8: users served within a time", classesFigure},
		{"003/7", "003-figure-7", "Paper 003, Figure 7: a batch of twice the usual size", doubledFigure},
		{"003/8", "003-figure-8", "Paper 003, Figure 8: response time against the size of the batch", batchesFigure},
		{"003/12", "003-figure-12", "Paper 003, Figure 12: WeChat is slow, and so is whoever calls it", directFigure},
		{"003/13", "003-figure-13", "Paper 003, Figure 13: WeChat is slow, and the call through the gate is not", gateFigure},
	}
}

// drawing is what a figure's runs gave.
type drawing struct {
	chart  chart.Chart
	header []string // of the table
	rows   [][]any
	claims []Claim
}

// Claim is one statement about the shape, and whether it holds.
type Claim struct {
	Figure   string
	Promised string
	Measured string
	Holds    bool
	// Timed says that a machine that does much else may break it.
	Timed bool
}

// Run makes the figures and gives their claims. The error is of what could not
// be made; claims that do not hold are no error.
func Run(ctx context.Context, o Options) ([]Claim, error) {
	chosen, err := wanted(o.Only)
	if err != nil {
		return nil, err
	}
	if o.Seconds == 0 {
		o.Seconds = 5
	}
	if o.Seconds < 3 || o.Seconds > 60 {
		return nil, fmt.Errorf("--seconds %g: use 3 to 60 (a value lives for 2 s)", o.Seconds)
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	s := &stage{Options: o, span: time.Duration(o.Seconds * float64(time.Second))}
	defer func() { err = errors.Join(err, s.close()) }()
	var claims []Claim
	for _, f := range chosen {
		s.progress("%s (%s)", f.title, f.name)
		d, err := f.make(ctx, s)
		if err != nil {
			return claims, fmt.Errorf("make figure %s: %w", f.name, err)
		}
		for i := range d.claims {
			d.claims[i].Figure = f.name
		}
		claims = append(claims, d.claims...)
		if err := s.save(ctx, f, d); err != nil {
			return claims, fmt.Errorf("save figure %s: %w", f.name, err)
		}
	}
	return claims, nil
}

func wanted(only []string) ([]figure, error) {
	if len(only) == 0 {
		return all(), nil
	}
	var chosen []figure
	for _, name := range only {
		found := false
		for _, f := range all() {
			if f.name == name {
				chosen, found = append(chosen, f), true
			}
		}
		if !found {
			return nil, fmt.Errorf("--only %q is no figure: use some of %s", name, strings.Join(Names(), ", "))
		}
	}
	return chosen, nil
}

// claim notes a statement that holds on any machine, timed one that a machine
// which is too busy for the scene breaks.
func (d *drawing) claim(holds bool, promised, format string, args ...any) {
	d.claims = append(d.claims, Claim{Promised: promised, Measured: fmt.Sprintf(format, args...), Holds: holds})
}

func (d *drawing) timed(holds bool, promised, format string, args ...any) {
	d.claim(holds, promised, format, args...)
	d.claims[len(d.claims)-1].Timed = true
}
