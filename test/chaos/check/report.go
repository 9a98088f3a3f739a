package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tidegate/test/chaos/history"
)

// maxFindings bounds the findings that are kept whole; all are counted.
const maxFindings = 50

// Report is what a history proves.
type Report struct {
	Causes, Acked, Deliveries int
	Records, Replies          int
	// Doubled counts records of a cause after its first. Unacked counts causes
	// that are in the log although nobody was told so: allowed, and the trace of
	// a kill behind the log.
	Doubled, Unacked int
	Answers          map[string]int // by class
	Faults           map[string]int // events by what
	P50, P99, Worst  time.Duration  // of acks

	// Found counts findings by kind; none is a good history. Findings are the
	// first of them.
	Found    map[string]int
	Findings []Finding

	latencies []time.Duration
}

// Finding is one broken promise with the smallest slice of history that shows
// it.
type Finding struct {
	Clause string // as in the plan: C1, C2 …
	Kind   string
	Token  string // the cause that is wrong; empty for a percentile
	Text   string
	Slice  []history.Event
}

func (c *checker) find(clause, kind, token, text string, at ...int) {
	c.r.Found[kind]++
	if len(c.r.Findings) >= maxFindings {
		return
	}
	f := Finding{Clause: clause, Kind: kind, Token: token, Text: text}
	slices.Sort(at)
	for _, i := range slices.Compact(at) {
		f.Slice = append(f.Slice, c.events[i])
	}
	c.r.Findings = append(c.r.Findings, f)
}

// OK tells that every promise was kept.
func (r *Report) OK() bool { return len(r.Found) == 0 }

// Line is the report in one line of counts.
func (r *Report) Line() string {
	s := fmt.Sprintf("%d callbacks, %d deliveries, %d acked, %d records (doubled %d, unacked %d)", r.Causes, r.Deliveries, r.Acked, r.Records, r.Doubled, r.Unacked)
	if r.Replies > 0 {
		s += fmt.Sprintf(", %d replies", r.Replies)
	}
	s += fmt.Sprintf("; ack p50 %s p99 %s worst %s; lost %d, inversions %d, invented or misdirected %d, late %d, bad answers %d",
		short(r.P50), short(r.P99), short(r.Worst), r.Found["lost"], r.Found["inversion"]+r.Found["split key"],
		r.Found["invented"]+r.Found["misdirected"]+r.Found["cross-account"], r.Found["late"]+r.Found["late effect"], r.Found["malformed"]+r.Found["refused"]+r.Found["silent"])
	return s
}

func short(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }

// String is the report for a person: counts, then each finding with its slice.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, r.Line())
	fmt.Fprintf(&b, "answers %v, faults %v\n", r.Answers, r.Faults)
	for _, kind := range slices.Sorted(maps.Keys(r.Found)) {
		fmt.Fprintf(&b, "%s: %d\n", kind, r.Found[kind])
	}
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s %s %s: %s\n", f.Clause, f.Kind, f.Token, f.Text)
		for _, e := range f.Slice {
			fmt.Fprintf(&b, "    %s\n", e)
		}
	}
	return b.String()
}
