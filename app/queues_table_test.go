package app

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/proxy/queues"
)

func sec(s float64) *float64 { return &s }

// bad is a view in which a partition of callbacks is not worked.
func bad() queues.View {
	now := time.Date(2030, 5, 1, 9, 30, 0, 0, time.UTC)
	since, nobody, robot := now.Add(-80*time.Second), "", "tidegate at 10.0.0.7\x1b[2J"
	fine := queues.PartitionView{Partition: 0, Depth: 3, Age: sec(0.8), Drain: sec(0.2), In: 10, Out: 10, Status: queues.OK, Verdict: queues.Fine, Consumer: &robot}
	stuck := queues.PartitionView{Partition: 3, Depth: 25000, Age: sec(80), Status: queues.Stop, Verdict: queues.Faulty, Since: since, Consumer: &nobody}
	lost := queues.PartitionView{Partition: 1, Depth: 7000, Age: sec(7300), Drain: sec(36), Status: queues.Slow, Verdict: queues.Deep, Since: since, Skipped: 12, Consumer: &robot}
	return queues.View{At: now, SampledAt: now.Add(-700 * time.Millisecond), DepthMode: queues.Corrected, Spool: queues.SpoolView{Records: 4, Oldest: sec(3)},
		Queues: []queues.QueueView{
			{Queue: "replies", Account: "bank", Depth: 2, Lag: 2, Age: sec(0.1), Drain: sec(0.1), Status: queues.OK, Verdict: queues.Fine, Partitions: []queues.PartitionView{fine}},
			{Queue: "queued.replies", Account: "bank", Depth: 900, Lag: 900, Age: sec(0.1), Drain: sec(0.1), Status: queues.OK, Verdict: queues.Fine},
			{Queue: "callbacks", Account: "bank", Depth: 32007, Lag: 32003, Spooled: 4, Age: sec(7300), Status: queues.Stop, Verdict: queues.Faulty, Since: &since,
				Partitions: []queues.PartitionView{fine, lost, stuck}},
			{Queue: "callbacks", Account: "card", Status: queues.Unknown, Verdict: queues.Fine, Missing: true},
		}}
}

func TestQueueTableShowsTheWorstFirst(t *testing.T) {
	out := queueTable{from: "127.0.0.1:9100"}.draw(bad())
	require.NotContains(t, out, "\x1b", "no colour without a terminal, and nothing that came from outside steers one")
	lines := strings.Split(out, "\n")
	require.Contains(t, lines[0], "queues of 127.0.0.1:9100, measured 0.7s ago; on this node's disk 4 records, the oldest 3.0s")
	want := []string{
		`^QUEUE +ACCOUNT +PARTITION +DEPTH +AGE +IN/S +OUT/S +DRAIN +STATUS +VERDICT +FOR +CONSUMER$`,
		`^callbacks +bank +all +32007 +2h01m +0\.0 +0\.0 +\? +stop +faulty +1m20s +4 of them on this node's disk; lost 12$`,
		`^ +3 +25000 +1m20s +0\.0 +0\.0 +\? +stop +faulty +1m20s +nobody$`,
		`^ +1 +7000 +2h01m +0\.0 +0\.0 +36s +slow +12 LOST +1m20s +tidegate at 10\.0\.0\.7\?\[2J$`,
		`^queued\.replies +bank +all +900 `,
		`^replies +bank +all +2 `,
		`^callbacks +card +all +0 .*no topic: run 'tidegate topics'`,
		`^$`,
		`^ACCOUNT +DEPTH +OLDEST +VERDICT$`,
		`^bank +32009 +2h01m +faulty$`,
		`^card +0 +0s +ok$`,
	}
	for i, w := range want {
		require.Regexp(t, w, lines[2+i])
	}
	all := queueTable{from: "x", all: true}.draw(bad())
	require.Regexp(t, `(?m)^ +0 +3 +0\.8s `, all)
}

// Columns stay where they are when colours are on.
func TestQueueTableColours(t *testing.T) {
	v := bad()
	colours := queueTable{from: "x", color: true}.draw(v)
	require.Contains(t, colours, red+"faulty"+plain)
	require.Contains(t, colours, yellow+"slow"+plain)
	require.Equal(t, queueTable{from: "x"}.draw(v), regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(colours, ""))
}

func TestQueueTableOfAnOldView(t *testing.T) {
	v := bad()
	v.Stale, v.Error = true, "survey consumer groups: no broker answers"
	require.Contains(t, queueTable{}.draw(v), "STALE: this is what was last known: survey consumer groups: no broker answers\n")
	out := queueTable{}.draw(v)
	require.NotRegexp(t, `\b(ok|faulty|stop|slow|deep)\b`, out, "nobody knows how it is now")
	require.Regexp(t, `(?m)^replies +bank +all +2 +\? +0\.0 +0\.0 +\? +\? +\?$`, out)
	require.Regexp(t, `(?m)^ +1 +7000 +\? .* \? +12 LOST `, out, "what is lost stays lost")
	require.Regexp(t, `(?m)^bank +32009 +\? +\?$`, out)
	require.Contains(t, queueTable{}.draw(queues.View{}), "not measured yet")
}

// A queue that is worked well now, and has lost records, says so.
func TestQueueTableShowsWhatWasLost(t *testing.T) {
	v := queues.View{Queues: []queues.QueueView{{Queue: "callbacks", Account: "bank", Age: sec(0), Drain: sec(0), Status: queues.OK, Verdict: queues.Fine,
		Partitions: []queues.PartitionView{{Partition: 1, Skipped: 12, Age: sec(0), Drain: sec(0), Status: queues.OK, Verdict: queues.Fine}}}}}
	out := queueTable{}.draw(v)
	require.Regexp(t, `(?m)^callbacks +bank +all .* ok +12 LOST +lost 12$`, out)
	require.Regexp(t, `(?m)^ +1 +0 .* ok +12 LOST$`, out)
}

func TestSpansAreForEyes(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "0.4s": 400 * time.Millisecond, "9.9s": 9900 * time.Millisecond, "10s": 9960 * time.Millisecond, "59s": 59 * time.Second,
		"1m00s": 59600 * time.Millisecond, "1m20s": 80 * time.Second, "2h05m": 125 * time.Minute, "3d4h": 76 * time.Hour,
	} {
		require.Equal(t, want, span(d))
	}
	require.Equal(t, "?", spanOf(nil))
}
