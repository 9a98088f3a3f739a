//go:build bench

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// robotReport is everything that the robot benchmark found.
type robotReport struct {
	Machine machine     `json:"machine"`
	Records int         `json:"callbacks_per_run"`
	Rounds  int         `json:"rounds"`
	Rows    []robotRow  `json:"rows"`
	Medians []robotMean `json:"medians"`
}

// robotMean has the medians of one cell on one target over the rounds.
type robotMean struct {
	Cell      string             `json:"cell"`
	Target    string             `json:"target"`
	PerSecond float64            `json:"per_second"`
	Ratio     float64            `json:"ratio_to_copy"`
	CPU       map[string]float64 `json:"cpu_us_per_callback"`
	Allocs    float64            `json:"allocations_per_callback"`
	Bytes     float64            `json:"allocated_bytes_per_callback"`
	Other     float64            `json:"other_cpu_percent"`
}

// robotColumns of CPU; load is this program, with the back end in it.
var robotColumns = []string{targetRobot, targetCopy, "kafka", "redis", "load"}

// The bar of the issue and what is aimed at.
const (
	robotBar = 0.35
	robotAim = 0.5
)

// finish adds ratios, each within one pair, and medians.
func (p *robotReport) finish() {
	for i := range p.Rows {
		r := &p.Rows[i]
		for _, c := range p.Rows {
			if c.Target == targetCopy && c.Round == r.Round && c.Cell == r.Cell && c.PerSecond > 0 {
				r.Ratio = r.PerSecond / c.PerSecond
			}
		}
	}
	for _, c := range robotCells() {
		for _, t := range []string{targetRobot, beside, targetCopy} {
			if m, ok := p.medianOf(c.Name, t); ok {
				p.Medians = append(p.Medians, m)
			}
		}
	}
}

func (p *robotReport) medianOf(cell, target string) (robotMean, bool) {
	values := map[string][]float64{}
	put := func(k string, v float64) { values[k] = append(values[k], v) }
	for _, r := range p.Rows {
		if r.Cell != cell || r.Target != target {
			continue
		}
		put("rate", r.PerSecond)
		put("ratio", r.Ratio)
		put("allocs", r.Allocs)
		put("bytes", r.Bytes)
		put("other", r.Other)
		for name, v := range r.CPU {
			put("cpu "+name, v)
		}
	}
	m := robotMean{Cell: cell, Target: target, PerSecond: median(values["rate"]), Ratio: median(values["ratio"]), Allocs: median(values["allocs"]),
		Bytes: median(values["bytes"]), Other: median(values["other"]), CPU: map[string]float64{}}
	for _, name := range robotColumns {
		if v := values["cpu "+name]; len(v) > 0 {
			m.CPU[name] = median(v)
		}
	}
	return m, len(values["rate"]) > 0
}

func (p *robotReport) print(out io.Writer) {
	m := p.Machine
	fmt.Fprintf(out, "%s, %d cores, %s, Linux %s; load average before: %s\n", m.CPU, m.Cores, m.Memory, m.Kernel, m.Load)
	fmt.Fprintf(out, "%s; commit %s; Kafka %s; Redis %s; %d callbacks a run, %d rounds\n\n", m.Go, m.Commit, m.Kafka, m.Redis, p.Records, p.Rounds)
	head := "callbacks/s\tratio\tµs robot\tcopy\tkafka\tredis\tload\tallocations\tbytes\tother %\t"
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "round\trule\ttarget\t"+head+"callbacks\treplies\treceipts\tleft\t")
	for _, r := range p.Rows {
		fmt.Fprintf(w, "%d\t%s\t%s\t%.0f\t%s\t%s%.0f\t%.0f\t%.0f\t%d\t%d\t%d\t%d\t\n", r.Round, r.Cell, r.Target, r.PerSecond, number(r.Ratio, "%.2f"),
			robotCPU(r.CPU), r.Allocs, r.Bytes, r.Other, r.Records, r.Replies, r.Receipts, r.Left)
	}
	w.Flush()
	fmt.Fprint(out, "\nMedians over the rounds\n")
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "rule\ttarget\t"+head)
	for _, m := range p.Medians {
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%s\t%s%.0f\t%.0f\t%.0f\t\n", m.Cell, m.Target, m.PerSecond, number(m.Ratio, "%.2f"), robotCPU(m.CPU), m.Allocs, m.Bytes, m.Other)
	}
	w.Flush()
	fmt.Fprintln(out)
	for _, m := range p.Medians {
		if m.Target == targetRobot && m.Ratio > 0 {
			fmt.Fprintf(out, "BAR  bench-robot, %-7s robot / copy ≥ %.2f (aim %.2f)  %.2f: %s; aim: %s\n", m.Cell, robotBar, robotAim, m.Ratio, met(m.Ratio >= robotBar), met(m.Ratio >= robotAim))
		}
	}
	for _, r := range p.Rows {
		if r.Problem != "" {
			fmt.Fprintf(out, "NO RESULT: round %d %s on %s: %s\n", r.Round, r.Cell, r.Target, r.Problem)
		}
	}
}

func robotCPU(cpu map[string]float64) (out string) {
	for _, name := range robotColumns {
		out += number(cpu[name], "%.1f") + "\t"
	}
	return out
}

// verdict is an error unless every row is a result. A bar that is not met is
// said and is no error: it depends on the machine.
func (p *robotReport) verdict() error {
	bad := 0
	for _, r := range p.Rows {
		if r.Problem != "" {
			bad++
		}
	}
	if bad > 0 || len(p.Rows) == 0 {
		return fmt.Errorf("%d of %d rows are no result", bad, len(p.Rows))
	}
	return nil
}

func (p *robotReport) save(path string) error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o600)
}
