//go:build bench

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// report is everything that the run found, as printed and as JSON.
type report struct {
	Machine machine `json:"machine"`
	Seconds float64 `json:"seconds_per_cell"`
	Rounds  int     `json:"rounds"`
	// Partitions of the callbacks topic on the real Kafka.
	Partitions int `json:"partitions"`

	Rows    []row     `json:"rows"`
	Medians []medians `json:"medians"`
}

// medians of one cell on one target over the rounds.
type medians struct {
	Cell      string             `json:"cell"`
	Target    string             `json:"target"`
	PerSecond float64            `json:"per_second"`
	P50       float64            `json:"p50_ms"`
	P99       float64            `json:"p99_ms"`
	P999      float64            `json:"p999_ms"`
	Ratio     float64            `json:"ratio_to_bare"` // median of the rounds' ratios
	CPU       map[string]float64 `json:"cpu_us_per_callback"`
	Other     float64            `json:"other_cpu_percent"`
}

// columns of CPU, in the order of the road.
var columns = []string{"door", "redis", "kafka", "engines", "load"}

// finish adds ratios and medians. A ratio is only taken within one round.
func (p *report) finish() {
	for i := range p.Rows {
		r := &p.Rows[i]
		for _, b := range p.Rows {
			if b.Target == bare && b.Round == r.Round && b.Cell == r.Cell && b.PerSecond > 0 && r.Cell.Loop == "closed" {
				r.Ratio = r.PerSecond / b.PerSecond
			}
		}
	}
	for _, c := range append(closedCells(), openCells()...) {
		for _, t := range []string{bare, realEngines, beside, embedded} {
			if m, ok := p.medianOf(c, t); ok {
				p.Medians = append(p.Medians, m)
			}
		}
	}
}

func (p *report) medianOf(c cell, target string) (medians, bool) {
	values := map[string][]float64{}
	put := func(k string, v float64) { values[k] = append(values[k], v) }
	for _, r := range p.Rows {
		if r.Cell != c || r.Target != target {
			continue
		}
		put("rate", r.PerSecond)
		put("p50", r.P50)
		put("p99", r.P99)
		put("p999", r.P999)
		put("ratio", r.Ratio)
		put("other", r.Other)
		for name, v := range r.CPU {
			put("cpu "+name, v)
		}
	}
	m := medians{
		Cell: c.Name, Target: target, CPU: map[string]float64{}, Other: median(values["other"]), PerSecond: median(values["rate"]),
		P50: median(values["p50"]), P99: median(values["p99"]), P999: median(values["p999"]), Ratio: median(values["ratio"]),
	}
	for _, name := range columns {
		if v := values["cpu "+name]; len(v) > 0 {
			m.CPU[name] = median(v)
		}
	}
	return m, len(values["rate"]) > 0
}

// print writes the tables: every row, then the medians.
func (p *report) print(out io.Writer) {
	m := p.Machine
	fmt.Fprintf(out, "%s, %d cores, %s, Linux %s; load average before: %s\n", m.CPU, m.Cores, m.Memory, m.Kernel, m.Load)
	fmt.Fprintf(out, "%s; commit %s; Kafka %s; Redis %s; %d partitions; %.1f s a cell, %d rounds\n\n", m.Go, m.Commit, m.Kafka, m.Redis, p.Partitions, p.Seconds, p.Rounds)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "round\tcell\ttarget\toffered/s\treq/s\tp50 ms\tp99 ms\tp99.9 ms\tratio\tµs door\tredis\tkafka\tengines\tload\tother %\tacked\trecords\tdone\t"
	fmt.Fprintln(w, head)
	for _, r := range p.Rows {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%.0f\t%.1f\t%.1f\t%.1f\t%s\t", r.Round, r.Cell.Name, r.Target, number(r.Offered, "%.0f"), r.PerSecond, r.P50, r.P99, r.P999, number(r.Ratio, "%.2f"))
		fmt.Fprintf(w, "%s%.0f\t%d\t%s\t%s\t\n", cpuColumns(r.CPU), r.Other, r.Accepted, side(r.Target, r.Records), side(r.Target, r.Done))
	}
	w.Flush()
	fmt.Fprint(out, "\nMedians over the rounds\n")
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "cell\ttarget\treq/s\tp50 ms\tp99 ms\tp99.9 ms\tratio\tµs door\tredis\tkafka\tengines\tload\tother %\t")
	for _, m := range p.Medians {
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%.1f\t%.1f\t%.1f\t%s\t%s%.0f\t\n", m.Cell, m.Target, m.PerSecond, m.P50, m.P99, m.P999, number(m.Ratio, "%.2f"), cpuColumns(m.CPU), m.Other)
	}
	w.Flush()
	p.printBars(out)
	for _, r := range p.Rows {
		if r.Problem != "" {
			fmt.Fprintf(out, "NO RESULT: round %d %s on %s: %s\n", r.Round, r.Cell.Name, r.Target, r.Problem)
		}
	}
}

func number(v float64, format string) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func cpuColumns(cpu map[string]float64) (out string) {
	for _, name := range columns {
		out += number(cpu[name], "%.1f") + "\t"
	}
	return out
}

func side(target string, n int) string {
	if target == bare {
		return "-"
	}
	return fmt.Sprint(n)
}

// verdict is an error unless every row is a result.
func (p *report) verdict() error {
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

func (p *report) save(path string) error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o600)
}
