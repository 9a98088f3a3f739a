//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// The targets of the robot benchmark; beside is the third.
const (
	targetRobot = "robot"
	targetCopy  = "copy"
)

// robotRow is one run.
type robotRow struct {
	Round     int                `json:"round"`
	Cell      string             `json:"cell"`
	Target    string             `json:"target"`
	PerSecond float64            `json:"per_second"`
	CPU       map[string]float64 `json:"cpu_us_per_callback"`
	Other     float64            `json:"other_cpu_percent"`
	Allocs    float64            `json:"allocations_per_callback"`
	Bytes     float64            `json:"allocated_bytes_per_callback"`
	Ratio     float64            `json:"ratio_to_copy,omitempty"`

	Records  int    `json:"callbacks"`
	Replies  int    `json:"replies"`
	Receipts int    `json:"receipts"`
	Left     int64  `json:"not_committed"`
	Problem  string `json:"problem,omitempty"`
}

// columnOf is the column of a target's own CPU.
func columnOf(target string) string {
	if target == targetCopy {
		return targetCopy
	}
	return targetRobot
}

// runLimit bounds one run.
const runLimit = 90 * time.Second

// robot runs a robot over the next n callbacks.
func (st *station) robot(ctx context.Context, c robotCell, target string, n int, during func(ctx context.Context, ops string) error) (robotRow, error) {
	st.runs++
	ops, _, err := freeAddrs()
	if err != nil {
		return robotRow{}, err
	}
	name := fmt.Sprintf("%s-%d", target, st.runs)
	p, err := launch(name, st.w.dir, st.programs[target], "robot", "--config", st.file(c), "--set", "ops.addr="+ops, "--set", "robot.group="+st.names.Prefix+"."+target)
	if err != nil {
		return robotRow{}, err
	}
	p.attend()
	defer func() { _ = p.stop() }() // it has ended already, unless something failed
	if err := p.ready(ctx, func() (string, error) { return get(ctx, "http://"+ops+"/readyz") }); err != nil {
		return robotRow{}, err
	}
	looked := make(chan error, 1)
	if during == nil {
		looked <- nil
	} else {
		go func() { looked <- during(ctx, ops) }()
	}
	r := robotRow{Target: target, Records: n}
	replies, receipts := st.names.Replies(robotAccount), st.names.Receipts()
	if err := st.follow(ctx, &r, p, columnOf(target), replies); err != nil {
		return r, fmt.Errorf("%s: %w\n%s", name, err, p.tail())
	}
	if err := st.await(ctx, receipts); err != nil {
		return r, err
	}
	if err := <-looked; err != nil {
		return r, err
	}
	r.Allocs, r.Bytes = scrape(ctx, ops, "go_memstats_mallocs_total")/float64(n), scrape(ctx, ops, "go_memstats_alloc_bytes_total")/float64(n)
	if err := p.stop(); err != nil {
		return r, err
	}
	return r, st.check(ctx, &r, st.group(target), replies, receipts)
}

// copy runs the copy loop over the station's callbacks.
func (st *station) copy(ctx context.Context) (robotRow, error) {
	st.runs++
	// Memory as a role has it (app/memory.go).
	p, err := launch(fmt.Sprintf("copy-%d", st.runs), st.w.dir, "/usr/bin/env", "GOGC=400", "GOMEMLIMIT=384MiB",
		filepath.Join(st.w.dir, "copy"), st.w.kafkaAddr, st.group(targetCopy), st.names.Callbacks(robotAccount), st.copied)
	if err != nil {
		return robotRow{}, err
	}
	r := robotRow{Target: targetCopy, Records: st.n}
	said := make(chan string, 1)
	go func() {
		line, err := p.line()
		if err != nil {
			line = err.Error()
		}
		said <- line
		p.attend()
	}()
	err = st.follow(ctx, &r, p, targetCopy, st.copied)
	stopped := p.stop()
	line := <-said
	if err := errors.Join(err, stopped); err != nil {
		return r, fmt.Errorf("copy: %w\n%s", err, p.tail())
	}
	var copied, allocs, bytes float64
	if _, err := fmt.Sscan(line, &copied, &allocs, &bytes); err != nil {
		return r, fmt.Errorf("copy said %q: %w", line, err)
	}
	r.Allocs, r.Bytes = allocs/copied, bytes/copied
	return r, st.check(ctx, &r, st.group(targetCopy), st.copied, "")
}

// follow watches a topic grow by the station's number and measures between a
// tenth and nine tenths of it.
func (st *station) follow(ctx context.Context, r *robotRow, p *process, column, topic string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("%s did not get all %d records within %s", topic, st.n, runLimit))
	defer cancel()
	take := (&target{cpu: map[string]int{column: p.cmd.Process.Pid, "kafka": listenerOf(st.w.kafkaAddr), "redis": listenerOf(st.w.redisAddr)}}).snapshot
	var marks []snapshot
	var counts []int64
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	runtime.GC()
	for {
		n, err := st.grown(ctx, topic)
		if err != nil {
			return err
		}
		if len(marks) == 0 && n >= int64(st.n/10) || len(marks) == 1 && n >= int64(st.n*9/10) {
			marks, counts = append(marks, take()), append(counts, n)
		}
		if n >= int64(st.n) {
			break
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if st.n > prelude && (len(marks) < 2 || counts[1] == counts[0]) {
		return fmt.Errorf("%d records were gone at once: use a larger -n", st.n)
	}
	if len(marks) == 2 {
		r.figures(marks, counts)
	}
	return nil
}

func (r *robotRow) figures(marks []snapshot, counts []int64) {
	from, to := marks[0], marks[1]
	n, seconds, ours := float64(counts[1]-counts[0]), to.at.Sub(from.at).Seconds(), 0.0
	r.PerSecond, r.CPU = n/seconds, map[string]float64{}
	for name, end := range to.cpu {
		used := end - from.cpu[name]
		ours += used
		if end > 0 {
			r.CPU[name] = 1e6 * used / n
		}
	}
	r.Other = 100 * max(0, to.busy-from.busy-ours) / (seconds * float64(runtime.NumCPU()))
}

// scrape reads one number of the robot's metrics; NaN if it is not there.
func scrape(ctx context.Context, ops, name string) float64 {
	text, err := get(ctx, "http://"+ops+"/metrics")
	if err != nil {
		return math.NaN()
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if err == nil {
				return n
			}
		}
	}
	return math.NaN()
}

// profile takes one more run of a cell with the profilers on; its figures are not
// reported, since they cost.
func (st *station) profile(ctx context.Context, s robotSettings, c robotCell) error {
	if err := st.fill(ctx, s.records); err != nil {
		return err
	}
	named := func(path string) string { return filepath.Join(filepath.Dir(path), c.Name+"-"+filepath.Base(path)) }
	_, err := st.robot(ctx, c, targetRobot, st.n, func(ctx context.Context, ops string) error {
		if s.profile != "" {
			if err := fetchFile(ctx, "http://"+ops+"/debug/pprof/profile?seconds=3", named(s.profile)); err != nil {
				return err
			}
		}
		if s.allocs == "" {
			return nil
		}
		return fetchFile(ctx, "http://"+ops+"/debug/pprof/allocs", named(s.allocs))
	})
	if err == nil {
		fmt.Fprintln(os.Stderr, "bench: profiles of", c.Name, "written")
	}
	return err
}
