package ratelimit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// windows are the lengths that G10 names.
var windows = []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute}

// finding is what the judge saw in windows of one length, wherever they begin.
type finding struct {
	window     time.Duration
	allowed    float64
	most       int
	violations int   // windows that begin with a departure and hold too many
	at         int64 // where the fullest begins
}

// judge slides windows over departures (sorted, in nanoseconds).
func judge(at []int64, rate float64, burst int) []finding {
	out := make([]finding, len(windows))
	for k, w := range windows {
		f := finding{window: w, allowed: rate*w.Seconds() + float64(burst)}
		for i, j := 0, 0; i < len(at); i++ {
			for j < len(at) && at[j]-at[i] <= int64(w) {
				j++
			}
			if j-i > f.most {
				f.most, f.at = j-i, at[i]
			}
			if float64(j-i) > f.allowed {
				f.violations++
			}
		}
		out[k] = f
	}
	return out
}

// use is the part of the rate that was used in [from, to).
func use(at []int64, from, to int64, rate float64) float64 {
	a, _ := slices.BinarySearch(at, from)
	b, _ := slices.BinarySearch(at, to)
	return float64(b-a) / (rate * float64(to-from) / 1e9)
}

// table prints one line per bar: bar | measured | verdict.
type table struct {
	lines  []string
	failed int
}

func (t *table) row(bar, measured string, ok bool) {
	verdict := "met"
	if !ok {
		verdict = "MISSED"
		t.failed++
	}
	t.lines = append(t.lines, fmt.Sprintf("%-46s | %-34s | %s", bar, measured, verdict))
}

func (t *table) String() string {
	return fmt.Sprintf("%-46s | %-34s | %s\n", "bar", "measured", "verdict") + strings.Join(t.lines, "\n")
}

// The judge finds what it is there for: one departure too many, between two
// windows of any clock, and only in windows of the lengths that it breaks.
func TestJudgeSeesABrokenCap(t *testing.T) {
	const rate, burst = 100, 10
	var good []int64
	for i := range int64(70 * rate) {
		good = append(good, i*int64(time.Second)/rate)
	}
	for _, f := range judge(good, rate, burst) {
		require.Zero(t, f.violations, "%v", f.window)
		require.Positive(t, f.most)
	}
	// 10 at the end of one second and 10 at the beginning of the next, besides the rate.
	bunch := slices.Clone(good)
	for i := range int64(20) {
		bunch = append(bunch, int64(30*time.Second)+(i-10)*int64(time.Millisecond))
	}
	slices.Sort(bunch)
	seen := judge(bunch, rate, burst)
	for _, f := range seen {
		require.Positive(t, f.violations, "%v: %d of %v", f.window, f.most, f.allowed)
	}
	// 1 % too fast breaks long windows alone.
	var fast []int64
	for i := range int64(70 * rate) {
		fast = append(fast, i*int64(time.Second)*99/rate/100)
	}
	seen = judge(fast, rate, burst)
	require.Zero(t, seen[0].violations)
	require.Zero(t, seen[1].violations)
	require.Positive(t, seen[3].violations)
	require.InDelta(t, 1.01, use(fast, 0, int64(60*time.Second), rate), 0.001)
}
