package queues

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func at(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }

func TestTimelineInterpolates(t *testing.T) {
	tl := &timeline{}
	tl.saw(100, at(0))
	tl.saw(100, at(2))
	tl.saw(100, at(60)) // idle for a minute: one step
	tl.saw(110, at(62))
	tl.saw(130, at(64))
	require.Len(t, tl.steps, 3)

	when, width, ok := tl.written(105)
	require.True(t, ok)
	require.Equal(t, 2*time.Second, width)
	require.Equal(t, at(61), when)
	when, _, _ = tl.written(100)
	require.Equal(t, at(60), when, "not when the log last grew, but when it was last seen without it")
	when, _, _ = tl.written(120)
	require.Equal(t, at(63), when)

	_, _, ok = tl.written(130)
	require.False(t, ok, "it is not there yet")
	_, _, ok = tl.written(99)
	require.False(t, ok, "it is from before the timeline")
}

// After a start the head is older than everything that was seen: its timestamp
// is read, and what follows it lies between.
func TestTimelineTakesReadTimestamps(t *testing.T) {
	tl := &timeline{}
	tl.saw(1000, at(0))
	tl.read(400, at(-600))
	when, width, ok := tl.written(400)
	require.True(t, ok)
	require.Zero(t, width)
	require.Equal(t, at(-600), when)
	when, width, ok = tl.written(700)
	require.True(t, ok)
	require.Equal(t, at(-300), when)
	require.Equal(t, 10*time.Minute, width, "so wide that it will be read as well")

	tl.read(700, at(-10))
	when, _, _ = tl.written(700)
	require.Equal(t, at(-10), when)
	tl.read(800, at(50)) // the writer's clock is ahead of ours
	when, _, _ = tl.written(800)
	require.Equal(t, at(0), when)
	tl.read(850, at(-900)) // and another's is behind
	when, _, _ = tl.written(850)
	require.Equal(t, at(0), when, "it is not older than the record before it")
	tl.read(1000, at(-1)) // not there
	_, _, ok = tl.written(1000)
	require.False(t, ok)

	tl.saw(10, at(2))
	require.Len(t, tl.steps, 1, "a log that is shorter is another log")
}

// Against the true times of all records: the interpolation is off by no more
// than it says, whatever is thinned out, idle or passed.
func TestTimelineIsAsCloseAsItSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tl := &timeline{}
		var truth []time.Time
		now, position := at(0), int64(0)
		for range rapid.IntRange(1, 400).Draw(t, "polls") {
			pause := time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms")) * time.Millisecond
			n := rapid.IntRange(0, 5).Draw(t, "records")
			for i := range n {
				truth = append(truth, now.Add(pause*time.Duration(i+1)/time.Duration(n+1)))
			}
			now = now.Add(pause)
			tl.saw(int64(len(truth)), now)
			if len(truth) > 0 && rapid.Bool().Draw(t, "read") {
				o := rapid.IntRange(int(position), len(truth)-1).Draw(t, "offset")
				if int64(o) >= position {
					tl.read(int64(o), truth[o])
				}
			}
			position = min(int64(len(truth)), position+int64(rapid.IntRange(0, 4).Draw(t, "worked")))
			tl.passed(position)
			if position == int64(len(truth)) {
				position = max(0, position-1)
			}
			require.LessOrEqual(t, len(tl.steps), maxSteps)
			for o := position; o < int64(len(truth)); o++ {
				when, width, ok := tl.written(o)
				if !ok {
					continue
				}
				require.LessOrEqual(t, when.Sub(truth[o]).Abs(), width, "record %d", o)
			}
		}
	})
}
