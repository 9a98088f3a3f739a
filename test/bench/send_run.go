//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/wire"
)

// The targets.
const (
	targetSender = "sender"
	targetPost   = "post"
)

// sendRow is one run.
type sendRow struct {
	Round     int                `json:"round"`
	Target    string             `json:"target"`
	PerSecond float64            `json:"per_second"`
	CPU       map[string]float64 `json:"cpu_us_per_push"`
	Other     float64            `json:"other_cpu_percent"`
	Allocs    float64            `json:"allocations_per_push"`
	Bytes     float64            `json:"allocated_bytes_per_push"`
	Ratio     float64            `json:"ratio_to_post,omitempty"`

	Pushes   int    `json:"pushes"`
	Reached  int    `json:"pushes_that_reached_wechat"`
	Requests int    `json:"requests"`
	Receipts int    `json:"receipts"`
	Intents  int    `json:"intents_with_outcome"`
	Left     int64  `json:"not_committed"`
	Problem  string `json:"problem,omitempty"`
}

// sender runs a sender over the pushes.
func (w *sendWorld) sender(ctx context.Context, during func(ctx context.Context, ops string) error) (sendRow, error) {
	w.station.runs++
	ops, api, err := freeAddrs()
	if err != nil {
		return sendRow{}, err
	}
	name := fmt.Sprintf("sender-%d", w.station.runs)
	w.wechat.reset()
	p, err := launch(name, w.dir, filepath.Join(w.dir, "tidegate"), "sender", "--config", w.file, "--set", "ops.addr="+ops, "--set", "api.addr="+api, "--set", "sender.node="+name)
	if err != nil {
		return sendRow{}, err
	}
	p.attend()
	defer func() { _ = p.stop() }() // it has ended already, unless something failed
	if err := p.ready(ctx, func() (string, error) { return get(ctx, "http://"+ops+"/readyz") }); err != nil {
		return sendRow{}, err
	}
	looked := make(chan error, 1)
	if during == nil {
		looked <- nil
	} else {
		go func() { looked <- during(ctx, ops) }()
	}
	r := sendRow{Target: targetSender, Pushes: w.station.n}
	if err := w.follow(ctx, &r, p); err != nil {
		return r, fmt.Errorf("%s: %w\n%s", name, err, p.tail())
	}
	if err := w.station.await(ctx, w.station.names.Receipts()); err != nil {
		return r, err
	}
	if err := <-looked; err != nil {
		return r, err
	}
	n := float64(w.station.n)
	r.Allocs, r.Bytes = scrape(ctx, ops, "go_memstats_mallocs_total")/n, scrape(ctx, ops, "go_memstats_alloc_bytes_total")/n
	if err := p.stop(); err != nil {
		return r, err
	}
	return r, w.check(ctx, &r, w.station.names.SenderGroup(robotAccount, wire.LaneRealtime))
}

// bare runs the loop over the same pushes.
func (w *sendWorld) bare(ctx context.Context) (sendRow, error) {
	w.station.runs++
	w.wechat.reset()
	group := w.id + ".post"
	// Memory as a role has it (app/memory.go).
	p, err := launch(fmt.Sprintf("post-%d", w.station.runs), w.dir, "/usr/bin/env", "GOGC=400", "GOMEMLIMIT=384MiB",
		filepath.Join(w.dir, "post"), w.kafkaAddr, group, w.topic(), w.wechat.url+barePath, strconv.Itoa(w.settings.places))
	if err != nil {
		return sendRow{}, err
	}
	said := make(chan string, 1)
	go func() {
		line, err := p.line()
		if err != nil {
			line = err.Error()
		}
		said <- line
		p.attend()
	}()
	r := sendRow{Target: targetPost, Pushes: w.station.n}
	err = w.follow(ctx, &r, p)
	stopped := p.stop()
	line := <-said
	if err := errors.Join(err, stopped); err != nil {
		return r, fmt.Errorf("post: %w\n%s", err, p.tail())
	}
	var posted, allocs, bytes float64
	if _, err := fmt.Sscan(line, &posted, &allocs, &bytes); err != nil {
		return r, fmt.Errorf("post said %q: %w", line, err)
	}
	r.Allocs, r.Bytes = allocs/posted, bytes/posted
	return r, w.check(ctx, &r, group)
}

// follow watches messages reach WeChat and measures between a tenth and nine tenths
// of them.
func (w *sendWorld) follow(ctx context.Context, r *sendRow, p *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not all %d pushes reached WeChat within %s", w.station.n, runLimit))
	defer cancel()
	t := &target{cpu: map[string]int{r.Target: p.cmd.Process.Pid, "kafka": listenerOf(w.kafkaAddr), "redis": listenerOf(w.redisAddr)}}
	postgres := listenerOf(w.postgresAddr)
	take := func() snapshot {
		s := t.snapshot()
		s.cpu["postgres"] = cpuOfFamily(postgres)
		return s
	}
	var marks []snapshot
	var counts []int64
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	runtime.GC()
	for all := int64(w.station.n); ; {
		n := w.wechat.count.Load()
		if len(marks) == 0 && n >= all/10 || len(marks) == 1 && n >= all*9/10 {
			marks, counts = append(marks, take()), append(counts, n)
		}
		if n >= all {
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
	if len(marks) < 2 || counts[1] == counts[0] {
		return fmt.Errorf("%d pushes were gone at once: use a larger -n", w.station.n)
	}
	f := robotRow{}
	f.figures(marks, counts)
	r.PerSecond, r.CPU, r.Other = f.PerSecond, f.CPU, f.Other
	return nil
}

// cpuOfFamily is the CPU time of a process with its children, also those that have
// ended, in seconds: PostgreSQL has one for each connection.
func cpuOfFamily(pid int) float64 {
	if pid == 0 {
		return 0
	}
	sum := 0.0
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		_, rest, ok := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		if !ok || len(f) < 15 {
			continue
		}
		own := filepath.Base(filepath.Dir(path)) == strconv.Itoa(pid)
		if !own && f[1] != strconv.Itoa(pid) {
			continue
		}
		for i, v := range f[11:15] { // its own, and that of children that it has seen end
			if n, err := strconv.ParseFloat(v, 64); err == nil && (own || i < 2) {
				sum += n * tick
			}
		}
	}
	return sum
}
