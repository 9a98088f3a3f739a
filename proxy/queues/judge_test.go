package queues

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var t0 = time.Date(2030, 5, 1, 8, 0, 0, 0, time.UTC)

// windowOf makes a history from positions and ends, one sample every 2 s. The
// window is 10 s, so six samples fill it.
func windowOf(committed, ends []int64) *history {
	h := &history{window: 10 * time.Second}
	for i := range ends {
		h.add(sample{at: t0.Add(time.Duration(i) * 2 * time.Second), committed: committed[i], end: ends[i]})
	}
	return h
}

func TestJudge(t *testing.T) {
	type seq = []int64
	for name, c := range map[string]struct {
		committed, ends seq
		by              holder
		want            Status
	}{
		"nothing measured":           {nil, nil, holderUnknown, Unknown},
		"nothing waits":              {seq{5, 5, 5, 5, 5, 5}, seq{5, 5, 5, 5, 5, 5}, holderNone, OK},
		"keeps up":                   {seq{0, 10, 20, 30, 40, 50}, seq{5, 12, 23, 33, 41, 52}, holderSomebody, OK},
		"falls behind":               {seq{0, 1, 2, 3, 4, 5}, seq{10, 20, 30, 40, 50, 60}, holderSomebody, Slow},
		"the same lag all the time":  {seq{0, 10, 20, 30, 40, 50}, seq{90, 100, 110, 120, 130, 140}, holderSomebody, Slow},
		"a jitter is no fall":        {seq{0, 12, 20, 32, 40, 52}, seq{900, 910, 920, 930, 940, 950}, holderSomebody, Slow},
		"a backlog that falls":       {seq{0, 100, 200, 300, 400, 500}, seq{900, 900, 900, 900, 900, 900}, holderSomebody, OK},
		"does not move, held":        {seq{3, 3, 3, 3, 3, 3}, seq{9, 9, 9, 9, 9, 9}, holderSomebody, Stall},
		"does not move, nobody":      {seq{3, 3, 3, 3, 3, 3}, seq{9, 9, 9, 9, 9, 9}, holderNone, Stop},
		"does not move, who knows":   {seq{3, 3, 3, 3, 3, 3}, seq{9, 9, 9, 9, 9, 9}, holderUnknown, Stall},
		"never committed":            {seq{-1, -1, -1, -1, -1, -1}, seq{9, 9, 9, 9, 9, 9}, holderNone, Stop},
		"began to commit":            {seq{-1, -1, -1, 1, 2, 3}, seq{9, 9, 9, 9, 9, 9}, holderSomebody, OK},
		"window not full":            {seq{3, 3, 3}, seq{9, 9, 9}, holderSomebody, OK},
		"window not full, nobody":    {seq{3}, seq{9}, holderNone, Stop},
		"was empty in the window":    {seq{3, 3, 3, 3, 3, 3}, seq{3, 9, 9, 9, 9, 9}, holderSomebody, OK},
		"was empty, nobody now":      {seq{3, 3, 3, 3, 3, 3}, seq{3, 9, 9, 9, 9, 9}, holderNone, Stop},
		"moved, nobody now":          {seq{0, 1, 2, 3, 3, 3}, seq{9, 9, 9, 9, 9, 9}, holderNone, Stop},
		"was empty before it":        {seq{3, 3, 3, 3, 3, 3, 3}, seq{3, 9, 9, 9, 9, 9, 9}, holderNone, Stop},
		"went back":                  {seq{50, 60, 20, 20, 20, 20}, seq{90, 90, 90, 90, 90, 90}, holderSomebody, Rewind},
		"went back, though empty":    {seq{90, 90, 20, 20, 20, 20}, seq{90, 90, 90, 90, 90, 90}, holderSomebody, Rewind},
		"went back, window not full": {seq{60, 20}, seq{90, 90}, holderSomebody, Rewind},
		"went back and caught up":    {seq{50, 20, 40, 60, 70, 80}, seq{99, 99, 99, 99, 99, 99}, holderSomebody, OK},
		"offsets expired":            {seq{50, 50, -1, -1, -1, -1}, seq{90, 90, 90, 90, 90, 90}, holderNone, Rewind},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, windowOf(c.committed, c.ends).judge(c.by))
		})
	}
}

// Retention that deletes under a dead group moves the lag's beginning, and is
// not progress.
func TestRetentionIsNoProgress(t *testing.T) {
	h := &history{window: 10 * time.Second}
	for i := range 7 {
		h.add(sample{at: t0.Add(time.Duration(i) * 2 * time.Second), committed: 3, start: int64(10 * i), end: 100})
	}
	require.Equal(t, Stop, h.judge(holderNone))
}

// While the queue was away nobody could commit: the window begins again.
func TestAnOutageIsNoStall(t *testing.T) {
	h := windowOf([]int64{3, 3, 3, 3, 3, 3}, []int64{9, 9, 9, 9, 9, 9})
	require.Equal(t, Stall, h.judge(holderSomebody))
	h.add(sample{at: t0.Add(10*time.Second + 6*time.Second), committed: 3, end: 9})
	require.Equal(t, OK, h.judge(holderSomebody))
	require.Len(t, h.samples, 1)
}

func TestJudgeInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{window: 10 * time.Second}
		at, committed, start, end := t0, int64(-1), int64(0), int64(0)
		for range rapid.IntRange(1, 40).Draw(t, "samples") {
			at = at.Add(time.Duration(rapid.IntRange(1, 7000).Draw(t, "ms")) * time.Millisecond)
			end += int64(rapid.IntRange(0, 50).Draw(t, "in"))
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				committed = -1
			case 1:
				committed = int64(rapid.IntRange(0, int(end)).Draw(t, "reset"))
			case 2:
				start = min(end, start+10)
			default:
				committed = min(end, max(committed, start)+int64(rapid.IntRange(0, 50).Draw(t, "out")))
			}
			s := sample{at: at, committed: committed, start: start, end: end}
			h.add(s)
			by := rapid.SampledFrom([]holder{holderUnknown, holderNone, holderSomebody}).Draw(t, "holder")
			status := h.judge(by)

			if n := len(h.samples); n > 2 {
				require.Less(t, at.Sub(h.samples[1].at), h.window, "only one sample lies before the window")
			}
			require.NotEqual(t, Unknown, status)
			if s.lag() == 0 {
				require.Equal(t, OK, status)
			}
			if status == Stall {
				require.True(t, h.full())
				require.False(t, h.moved())
				for _, old := range h.samples {
					require.Positive(t, old.lag())
				}
				require.True(t, h.stood())
			}
			if status.stuck() {
				require.Positive(t, s.lag())
				require.Equal(t, status == Stop, by == holderNone)
			}
			if status == Slow {
				require.True(t, h.moved())
				require.True(t, h.full())
			}
			if status == Rewind {
				require.Positive(t, s.lag())
			}
		}
	})
}
