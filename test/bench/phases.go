//go:build bench

package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// phaseNames are the door's own histograms, from the inside out: what waits for
// Redis, what waits for Kafka, and the handler as a whole. What the load sees
// beyond the last one is spent before the handler begins or after it has written.
var phaseNames = []string{
	`tidegate_redis_command_seconds_bucket{command="pipeline",`,
	`tidegate_kafka_publish_seconds_bucket{`,
	`tidegate_proxy_publish_seconds_bucket{`,
	`tidegate_proxy_ack_seconds_bucket{`,
}

// buckets is one histogram: counts up to a bound, in the order of the bounds.
type buckets []struct {
	bound string
	n     float64
}

// phases reads the histograms as they are now.
func (t *target) phases(ctx context.Context) (map[string]buckets, error) {
	if t.effects == nil {
		return nil, nil
	}
	text, err := get(ctx, "http://"+t.ops+"/metrics")
	if err != nil {
		return nil, err
	}
	out := map[string]buckets{}
	for line := range strings.Lines(text) {
		for _, name := range phaseNames {
			rest, ok := strings.CutPrefix(line, name)
			if !ok {
				continue
			}
			_, rest, _ = strings.Cut(rest, `le="`)
			bound, value, _ := strings.Cut(rest, `"} `)
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				return nil, fmt.Errorf("metric %s: %w", name, err)
			}
			out[name] = append(out[name], struct {
				bound string
				n     float64
			}{bound, n})
		}
	}
	return out, nil
}

// printPhases says how much of a cell lay below which bound, in per cent.
func printPhases(w io.Writer, before, after map[string]buckets) {
	for _, name := range phaseNames {
		was, is := before[name], after[name]
		if len(is) == 0 {
			continue
		}
		count := func(i int) float64 {
			if i < len(was) {
				return is[i].n - was[i].n
			}
			return is[i].n
		}
		all := count(len(is) - 1)
		fmt.Fprintf(w, "bench:   %-36s %7.0f:", strings.TrimSuffix(strings.TrimPrefix(name, "tidegate_"), "_bucket{"), all)
		for i := range is {
			fmt.Fprintf(w, " ≤%s %.1f", is[i].bound, 100*count(i)/max(all, 1))
		}
		fmt.Fprintln(w)
	}
}
