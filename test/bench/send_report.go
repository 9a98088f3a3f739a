//go:build bench

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// sendReport is everything that the sender benchmark found.
type sendReport struct {
	Machine machine    `json:"machine"`
	Records int        `json:"pushes_per_run"`
	Places  int        `json:"requests_under_way"`
	Rounds  int        `json:"rounds"`
	Rows    []sendRow  `json:"rows"`
	Medians []sendMean `json:"medians"`
}

// sendMean has the medians of one target over the rounds.
type sendMean struct {
	Target    string             `json:"target"`
	PerSecond float64            `json:"per_second"`
	Ratio     float64            `json:"ratio_to_post,omitempty"`
	CPU       map[string]float64 `json:"cpu_us_per_push"`
	Allocs    float64            `json:"allocations_per_push"`
	Bytes     float64            `json:"allocated_bytes_per_push"`
	Other     float64            `json:"other_cpu_percent"`
}

// sendColumns of CPU; load is this program, with the instant WeChat in it.
var sendColumns = []string{targetSender, targetPost, "kafka", "redis", "postgres", "load"}

// finish adds ratios, each within one pair, and medians.
func (p *sendReport) finish() {
	for i := range p.Rows {
		r := &p.Rows[i]
		for _, c := range p.Rows {
			if r.Target == targetSender && c.Target == targetPost && c.Round == r.Round && c.PerSecond > 0 {
				r.Ratio = r.PerSecond / c.PerSecond
			}
		}
	}
	for _, target := range []string{targetSender, targetPost} {
		if m, ok := p.medianOf(target); ok {
			p.Medians = append(p.Medians, m)
		}
	}
}

func (p *sendReport) medianOf(target string) (sendMean, bool) {
	values := map[string][]float64{}
	put := func(k string, v float64) { values[k] = append(values[k], v) }
	for _, r := range p.Rows {
		if r.Target != target {
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
	m := sendMean{Target: target, PerSecond: median(values["rate"]), Ratio: median(values["ratio"]), Allocs: median(values["allocs"]),
		Bytes: median(values["bytes"]), Other: median(values["other"]), CPU: map[string]float64{}}
	for _, name := range sendColumns {
		if v := values["cpu "+name]; len(v) > 0 {
			m.CPU[name] = median(v)
		}
	}
	return m, len(values["rate"]) > 0
}

func (p *sendReport) print(out io.Writer) {
	m := p.Machine
	fmt.Fprintf(out, "%s, %d cores, %s, Linux %s; load average before: %s\n", m.CPU, m.Cores, m.Memory, m.Kernel, m.Load)
	fmt.Fprintf(out, "%s; commit %s; Kafka %s; Redis %s; %d pushes a run, %d requests under way, %d rounds\n\n", m.Go, m.Commit, m.Kafka, m.Redis, p.Records, p.Places, p.Rounds)
	head := "pushes/s\tratio\tµs sender\tpost\tkafka\tredis\tpostgres\tload\tallocations\tbytes\tother %\t"
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "round\ttarget\t"+head+"pushes\treached\trequests\treceipts\tintents\tleft\t")
	for _, r := range p.Rows {
		fmt.Fprintf(w, "%d\t%s\t%.0f\t%s\t%s%.0f\t%.0f\t%.0f\t%d\t%d\t%d\t%d\t%d\t%d\t\n", r.Round, r.Target, r.PerSecond, number(r.Ratio, "%.2f"),
			sendCPU(r.CPU), r.Allocs, r.Bytes, r.Other, r.Pushes, r.Reached, r.Requests, r.Receipts, r.Intents, r.Left)
	}
	w.Flush()
	fmt.Fprint(out, "\nMedians over the rounds\n")
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "target\t"+head)
	for _, m := range p.Medians {
		fmt.Fprintf(w, "%s\t%.0f\t%s\t%s%.0f\t%.0f\t%.0f\t\n", m.Target, m.PerSecond, number(m.Ratio, "%.2f"), sendCPU(m.CPU), m.Allocs, m.Bytes, m.Other)
	}
	w.Flush()
	fmt.Fprintln(out)
	right := 0
	for _, r := range p.Rows {
		if r.Problem == "" {
			right++
			continue
		}
		fmt.Fprintf(out, "NO RESULT: round %d %s: %s\n", r.Round, r.Target, r.Problem)
	}
	fmt.Fprintf(out, "BAR  bench-send, every push ends exactly once (one request, one accepted receipt, one intent with its outcome, committed)  %d of %d runs: %s\n", right, len(p.Rows), met(right == len(p.Rows) && right > 0))
}

func sendCPU(cpu map[string]float64) (out string) {
	for _, name := range sendColumns {
		out += number(cpu[name], "%.1f") + "\t"
	}
	return out
}

// verdict is an error unless every row is a result.
func (p *sendReport) verdict() error {
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

func (p *sendReport) save(path string) error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o600)
}
