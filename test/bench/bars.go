//go:build bench

package main

import (
	"fmt"
	"io"
)

// bar is what the proxy on real engines has to reach in a cell: a share of
// bare's rate, or a 99th percentile.
type bar struct {
	cell       string
	ratio, aim float64
	p99        float64 // ms; 0 for a bar of rate
}

// bars in both modes: encrypted is what a service account should use, and plain
// is what the prototype was measured with.
func bars() (out []bar) {
	for _, mode := range []string{"safe", "plain"} {
		out = append(
			out,
			bar{cell: "closed-64-" + mode, ratio: 0.27, aim: 0.33},
			bar{cell: "closed-256-" + mode, ratio: 0.36, aim: 0.45},
			bar{cell: "closed-512-" + mode, ratio: 0.40, aim: 0.50},
			bar{cell: "open-30%-" + mode, p99: 10},
			bar{cell: "open-70%-" + mode, p99: 20},
		)
	}
	return out
}

// verdict says how the medians stand to the bar.
func (b bar) verdict(m medians) string {
	if b.p99 > 0 {
		return fmt.Sprintf("%-16s p99 %.1f ms, at most %.0f ms: %s", b.cell, m.P99, b.p99, met(m.P99 <= b.p99))
	}
	return fmt.Sprintf("%-16s proxy / bare %.2f, at least %.2f: %s; aim %.2f: %s", b.cell, m.Ratio, b.ratio, met(m.Ratio >= b.ratio), b.aim, met(m.Ratio >= b.aim))
}

func met(yes bool) string {
	if yes {
		return "met"
	}
	return "NOT MET"
}

// printBars has one line for each bar whose cell was run beside bare.
func (p *report) printBars(out io.Writer) {
	fmt.Fprintf(out, "\nBars, proxy on real engines, median of %d rounds\n", p.Rounds)
	for _, b := range bars() {
		for _, m := range p.Medians {
			if m.Cell == b.cell && m.Target == realEngines && (b.p99 > 0 || m.Ratio > 0) {
				fmt.Fprintln(out, b.verdict(m))
			}
		}
	}
}
