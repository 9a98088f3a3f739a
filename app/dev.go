package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/run"
)

// DevOptions are the flags of `tidegate dev`.
type DevOptions struct {
	For    time.Duration // end by itself after this long; 0 runs until ctx ends
	Rate   float64       // callbacks per second
	Pushes float64       // pushes per second; negative is a tenth of Rate
	JSON   bool          // print one JSON object and nothing else
	Data   string        // directory that keeps the state; empty forgets it
	Break  string        // "", lose, double or reorder
	Rules  string        // rules file; empty takes the built-in ones
	Port   int           // first of four ports; 0 takes free ones
	Out    io.Writer
	Err    io.Writer
}

// settle bounds how long the end waits for what is still on its way.
const settle = 30 * time.Second

// Dev runs every role in one process with embedded engines and the simulated
// WeChat, and judges the run by the simulator's own journal. It returns
// ErrReported if anything was lost, doubled or out of order.
func Dev(ctx context.Context, o DevOptions) error {
	if err := o.validate(); err != nil {
		return usage(err)
	}
	dir, cleanup, err := dataDir(o.Data)
	if err != nil {
		return err
	}
	defer cleanup()
	log, err := devLogger(dir)
	if err != nil {
		return err
	}
	w, err := startDev(ctx, o, dir, log)
	if err != nil {
		return errors.Join(err, w.stop())
	}
	runErr := w.live(ctx, o)
	sum, sumErr := w.finish(o)
	if err := errors.Join(runErr, sumErr, w.stop()); err != nil {
		return err
	}
	if err := sum.print(o); err != nil {
		return err
	}
	if !sum.OK {
		return ErrReported
	}
	return nil
}

func (o *DevOptions) validate() error {
	if o.Rate < 0 || o.Rate > 5000 {
		return fmt.Errorf("--rate %g: use 0 to 5000 callbacks per second", o.Rate)
	}
	if o.Pushes < 0 {
		o.Pushes = o.Rate / 10
	}
	if o.For < 0 {
		return fmt.Errorf("--for %s: use a positive duration, for example 20s", o.For)
	}
	if o.Port < 0 || o.Port > 65532 {
		return fmt.Errorf("--port %d: use 0 (free ports) or 1 to 65532", o.Port)
	}
	return validBreak(o.Break)
}

// dataDir gives the directory of the run; one that was not asked for is
// removed at the end.
func dataDir(asked string) (dir string, cleanup func(), err error) {
	if asked != "" {
		if err := os.MkdirAll(asked, 0o700); err != nil {
			return "", nil, fmt.Errorf("data directory: %w", err)
		}
		return asked, func() {}, nil
	}
	dir, err = os.MkdirTemp("", "tidegate-dev-")
	if err != nil {
		return "", nil, fmt.Errorf("data directory: %w", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// devLogger writes to a file in the data directory, so that the status on the
// screen stays readable.
func devLogger(dir string) (*zap.Logger, error) {
	z := zap.NewProductionConfig()
	z.DisableStacktrace = true
	path := filepath.Join(dir, "tidegate.log")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) // zap would make it readable for all
	if err != nil {
		return nil, fmt.Errorf("log file: %w", err)
	}
	_ = f.Close()
	z.OutputPaths = []string{path}
	z.ErrorOutputPaths = z.OutputPaths
	l, err := z.Build()
	if err != nil {
		return nil, fmt.Errorf("log file in %s: %w", dir, err)
	}
	return l, nil
}

// live offers load and shows the status until the run's time is over.
func (w *devWorld) live(ctx context.Context, o DevOptions) error {
	if o.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.For)
		defer cancel()
	}
	g := run.NewGroup(ctx)
	g.Go(run.Func("callbacks", func(ctx context.Context) error { return w.offerCallbacks(ctx, o.Rate, o.Break) }))
	g.Go(run.Func("pushes", func(ctx context.Context) error { return w.offerPushes(ctx, o.Pushes) }))
	if !o.JSON {
		w.announce(o)
		g.Go(run.Func("status", func(ctx context.Context) error { return w.showStatus(ctx, o.Err) }))
	}
	select {
	case <-g.Done():
	case <-w.roles.Done():
		g.Stop()
		return errors.Join(g.Wait(), w.roles.Wait())
	}
	return g.Wait()
}

// finish waits until everything under way has ended and sums up.
func (w *devWorld) finish(o DevOptions) (summary, error) {
	if !o.JSON {
		fmt.Fprintln(o.Err, "\nfinishing what is under way …")
	}
	ctx, cancel := context.WithTimeout(context.Background(), settle)
	defer cancel()
	// What is lost never comes: a run with a fault injected need not wait long.
	if o.Break != "" {
		ctx, cancel = context.WithTimeout(ctx, 8*time.Second)
		defer cancel()
	}
	g := run.NewGroup(ctx)
	if !o.JSON {
		g.Go(run.Func("status", func(ctx context.Context) error { return w.showStatus(ctx, o.Err) }))
	}
	idle := w.sim.Idle(ctx)
	if err := w.waitForReceipts(ctx); err != nil && idle == nil {
		w.log.Warn("receipts are not all joined", zap.Error(err))
	}
	g.Stop()
	sum, err := w.summarize(context.WithoutCancel(ctx), o)
	return sum, errors.Join(err, g.Wait())
}
