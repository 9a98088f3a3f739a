//go:build bench

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"
)

// cell is one measurement that every target gets.
type cell struct {
	Name  string  `json:"name"`
	Loop  string  `json:"loop"` // closed or open
	Mode  string  `json:"mode"` // safe (encrypted) or plain
	Conns int     `json:"connections"`
	Share float64 `json:"share,omitempty"` // open: part of the target's own closed maximum
}

// openConns serve the open loop: enough that arrivals do not wait for a
// connection at 70 % of what a closed loop of 512 reaches.
const openConns = 512

func closedCells() (out []cell) {
	for _, mode := range []string{"safe", "plain"} {
		for _, n := range []int{64, 256, 512} {
			out = append(out, cell{Name: fmt.Sprintf("closed-%d-%s", n, mode), Loop: "closed", Mode: mode, Conns: n})
		}
	}
	return out
}

func openCells() (out []cell) {
	for _, mode := range []string{"safe", "plain"} {
		for _, share := range []float64{0.3, 0.7} {
			out = append(out, cell{Name: fmt.Sprintf("open-%.0f%%-%s", 100*share, mode), Loop: "open", Mode: mode, Conns: openConns, Share: share})
		}
	}
	return out
}

// runPlan runs the closed loop in rounds, then the open loop once at rates that
// the closed one has shown to be 30 and 70 %.
func runPlan(ctx context.Context, w *world, s settings) (rows []row, err error) {
	span := time.Duration(s.seconds * float64(time.Second))
	for _, t := range w.targets { // compilers, pools and page caches are warm before anything counts
		for until := time.Now().Add(s.warm); ; {
			if _, err := measure(ctx, w, t, cell{Name: "warm-up", Loop: "closed", Mode: "safe", Conns: 256}, 0, span); err != nil {
				return nil, fmt.Errorf("warm-up of %s: %w", t.name, err)
			}
			if t.effects == nil || !time.Now().Before(until) {
				break // bare has no compiler to wait for
			}
		}
	}
	one := func(round int, c cell, rate func(*target) float64) error {
		for i := range w.targets {
			// Each round begins with another target, so that a slow drift of the machine favours none.
			t := w.targets[(i+round)%len(w.targets)]
			r, err := measure(ctx, w, t, c, rate(t), span)
			if err != nil {
				return fmt.Errorf("%s on %s: %w", c.Name, t.name, err)
			}
			r.Round = round + 1
			rows = append(rows, r)
			fmt.Fprintf(os.Stderr, "bench: round %d %-16s %-9s %8.0f/s  p99 %.1f ms\n", r.Round, c.Name, t.name, r.PerSecond, r.P99)
		}
		return nil
	}
	for round := range s.rounds {
		for _, c := range closedCells() {
			if !s.only.MatchString(c.Name) {
				continue
			}
			if err := one(round, c, func(*target) float64 { return 0 }); err != nil {
				return rows, err
			}
		}
	}
	for _, c := range openCells() {
		if !s.only.MatchString(c.Name) {
			continue
		}
		rate := func(t *target) float64 {
			if s.most > 0 {
				return c.Share * s.most
			}
			return c.Share * maximum(rows, t, c.Mode)
		}
		if err := one(0, c, rate); err != nil {
			return rows, err
		}
	}
	if s.profile != "" {
		err = profile(ctx, w, s, span)
	}
	return rows, err
}

// maximum is the best median of the closed loop. Bare is offered what the proxy
// on real engines is offered, so that latencies at one rate compare.
func maximum(rows []row, t *target, mode string) float64 {
	name, best := t.name, 0.0
	if name == bare {
		name = realEngines
	}
	for _, c := range closedCells() {
		var seen []float64
		for _, r := range rows {
			if r.Target == name && r.Cell == c && c.Mode == mode {
				seen = append(seen, r.PerSecond)
			}
		}
		best = max(best, median(seen))
	}
	if best == 0 {
		return 5000 // the closed loop was left out by -only
	}
	return best
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// profile takes one more cell with the profiler of the operations listener on;
// its figures are not reported, since the profiler costs.
func profile(ctx context.Context, w *world, s settings, span time.Duration) error {
	t := w.target(realEngines)
	done := make(chan error, 1)
	go func() {
		done <- fetchFile(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", t.ops, max(1, int(span.Seconds()))), s.profile)
	}()
	_, err := measure(ctx, w, t, cell{Name: "profile", Loop: "closed", Mode: "safe", Conns: 256}, 0, span)
	if perr := <-done; err == nil {
		err = perr
	}
	return err
}

func fetchFile(ctx context.Context, url, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := (&http.Client{Timeout: 90 * time.Second}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, res.Status)
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}
