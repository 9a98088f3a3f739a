//go:build bench

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// row is one cell on one target.
type row struct {
	Round     int                `json:"round"`
	Cell      cell               `json:"cell"`
	Target    string             `json:"target"`
	Offered   float64            `json:"offered_per_second,omitempty"` // open loop
	PerSecond float64            `json:"per_second"`
	P50       float64            `json:"p50_ms"`
	P99       float64            `json:"p99_ms"`
	P999      float64            `json:"p999_ms"`
	CPU       map[string]float64 `json:"cpu_us_per_callback"`
	Other     float64            `json:"other_cpu_percent"` // of the machine, used by what is not ours
	Ratio     float64            `json:"ratio_to_bare,omitempty"`

	Accepted int `json:"accepted"` // with the warm-up of the cell
	Refused  int `json:"refused"`
	Broken   int `json:"broken"`
	Records  int `json:"records"`
	Done     int `json:"done_marks"`
	Claimed  int `json:"claims_left"`
	// Unchecked is how many callbacks the door let through without an answer of
	// Redis within its budget: not wrong, but not what is to be measured.
	Unchecked int    `json:"unchecked"`
	Problem   string `json:"problem,omitempty"`
}

// snapshot is the CPU used so far.
type snapshot struct {
	at   time.Time
	busy float64
	cpu  map[string]float64
}

func (t *target) snapshot() snapshot {
	s := snapshot{at: time.Now(), busy: busy(), cpu: map[string]float64{"load": cpuOf(os.Getpid())}}
	for name, pid := range t.cpu {
		s.cpu[name] = cpuOf(pid)
	}
	return s
}

// measure runs one cell on one target and checks what it left behind.
func measure(ctx context.Context, w *world, t *target, c cell, rate float64, span time.Duration) (row, error) {
	l := &load{addr: t.addr, conns: c.Conns, rate: rate, warm: span / 5, span: span, wrap: t.name == bare}
	var err error
	if l.reqs, err = w.writer.write(c.Mode, requests(t, rate, l.warm+l.span)); err != nil {
		return row{}, err
	}
	before, unchecked := 0, 0
	if t.effects != nil {
		if before, err = t.effects.records(ctx); err != nil {
			return row{}, err
		}
		if unchecked, err = t.unchecked(ctx); err != nil {
			return row{}, err
		}
	}
	inside, err := t.phases(ctx)
	if err != nil {
		return row{}, err
	}
	runtime.GC() // the last cell's requests
	var marks []snapshot
	o, err := l.run(ctx, func() { marks = append(marks, t.snapshot()) })
	if err != nil {
		return row{}, err
	}
	r := row{Cell: c, Target: t.name, Offered: rate, Accepted: o.accepted, Refused: o.refused, Broken: o.broken}
	r.figures(l, &o, marks)
	if rate == 0 {
		t.last = r.PerSecond
	}
	if t.effects != nil {
		if err := r.check(ctx, t.effects, before); err != nil {
			return r, err
		}
		if r.Unchecked, err = t.unchecked(ctx); err != nil {
			return r, err
		}
		r.Unchecked -= unchecked
	}
	if w.phases {
		after, err := t.phases(ctx)
		if err != nil {
			return r, err
		}
		printPhases(os.Stderr, inside, after)
	}
	r.judge(t, &o)
	return r, nil
}

// requests is how many a cell may need, with room; a bound, for memory.
func requests(t *target, rate float64, d time.Duration) int {
	switch {
	case t.name == bare:
		return 20_000 // it does not look at them, so they are used again
	case rate > 0:
		return int(1.2*rate*d.Seconds()) + 1000
	case t.last > 0:
		return min(int(2*t.last*d.Seconds())+1000, 600_000)
	}
	return 150_000
}

func (r *row) figures(l *load, o *outcome, marks []snapshot) {
	from, to := marks[0], marks[1]
	seconds := to.at.Sub(from.at).Seconds()
	took := o.within(from.at.Sub(l.begin), to.at.Sub(l.begin))
	r.PerSecond = float64(len(took)) / seconds
	r.P50, r.P99, r.P999 = quantile(took, 0.5), quantile(took, 0.99), quantile(took, 0.999)
	r.CPU = map[string]float64{}
	ours := 0.0
	for name, end := range to.cpu {
		used := end - from.cpu[name]
		ours += used
		if len(took) > 0 && end > 0 {
			r.CPU[name] = 1e6 * used / float64(len(took))
		}
	}
	r.Other = 100 * max(0, to.busy-from.busy-ours) / (seconds * float64(runtime.NumCPU()))
}

// check counts the side effects of all answers, those of the warm-up included.
func (r *row) check(ctx context.Context, e *effects, before int) error {
	var err error
	if r.Done, r.Claimed, err = e.marks(ctx, r.Accepted); err != nil {
		return err
	}
	// What went over the spool, because the queue was slow, arrives later.
	for deadline := time.Now().Add(5 * time.Second); ; {
		after, err := e.records(ctx)
		r.Records = after - before
		if err != nil || r.Records >= r.Accepted || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// unchecked is the door's own count.
func (t *target) unchecked(ctx context.Context) (int, error) {
	text, err := get(ctx, "http://"+t.ops+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, `tidegate_dedupe_verdicts_total{verdict="unchecked"} `); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			return int(n), err
		}
	}
	return 0, nil // the line appears with the first one
}

// judge says what makes the row no result.
func (r *row) judge(t *target, o *outcome) {
	var what []string
	if r.Refused > 0 {
		what = append(what, fmt.Sprintf("%d answers were not the acknowledgement", r.Refused))
	}
	if r.Broken > 0 {
		what = append(what, fmt.Sprintf("%d requests without an answer (%v)", r.Broken, o.firstErr))
	}
	if r.Accepted == 0 {
		what = append(what, "nothing was acknowledged")
	}
	if t.effects != nil && (r.Records != r.Accepted || r.Done != r.Accepted) {
		what = append(what, fmt.Sprintf("%d acknowledged, but %d records and %d done marks (%d claims left)", r.Accepted, r.Records, r.Done, r.Claimed))
	}
	if r.Unchecked > 0 {
		what = append(what, fmt.Sprintf("%d callbacks passed unchecked: Redis did not answer within the claim's budget, so the machine was too busy", r.Unchecked))
	}
	r.Problem = strings.Join(what, "; ")
}
