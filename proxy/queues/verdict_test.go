package queues

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var limits = Limits{WarnDepth: 100, MaxDepth: 1000, WarnAge: time.Minute}

func benchOf(n int) *bench {
	b := &bench{}
	for range n {
		b.seats = append(b.seats, &seat{verdict: Fine, since: t0, status: OK})
	}
	return b
}

// round sets depths and statuses and checks as often as asked.
func (b *bench) round(checks int, mode string, depths []int64, status ...Status) []Verdict {
	for range checks {
		for i, s := range b.seats {
			s.depth, s.status = depths[i], OK
			if i < len(status) {
				s.status = status[i]
			}
			s.moving = !s.status.stuck()
		}
		b.check(limits, mode, t0)
	}
	out := make([]Verdict, len(b.seats))
	for i, s := range b.seats {
		out[i] = s.verdict
	}
	return out
}

func TestFaultyNeedsDepthAndNoProgress(t *testing.T) {
	b := benchOf(4)
	deep := []int64{1500, 10, 10, 10}
	require.Equal(t, Deep, b.round(2, Corrected, deep, Stall)[0], "two checks are not three")
	require.Equal(t, Faulty, b.round(1, Corrected, deep, Stall)[0])
	require.Equal(t, Fine, b.seats[1].verdict)
	require.Equal(t, Faulty, b.round(9, Corrected, []int64{900, 10, 10, 10}, OK)[0], "it moves and is below the maximum, but not below 80 %")
	require.Equal(t, Faulty, b.round(2, Corrected, []int64{700, 10, 10, 10}, OK)[0])
	require.Equal(t, Deep, b.round(1, Corrected, []int64{700, 10, 10, 10}, OK)[0])
	require.Equal(t, Fine, b.round(3, Corrected, []int64{70, 10, 10, 10}, OK)[0])

	b = benchOf(4)
	require.Equal(t, Deep, b.round(9, Corrected, []int64{900, 10, 10, 10}, Stop)[0], "below the maximum nothing is faulty, though it stands still: its age will tell")
	b = benchOf(1)
	require.Equal(t, Faulty, b.round(3, Corrected, []int64{1500}, Stop)[0], "a single partition is never an overload")
}

func TestSlowNeedsOthersThatDoBetter(t *testing.T) {
	b := benchOf(4)
	require.Equal(t, Laggard, b.round(3, Corrected, []int64{1500, 10, 10, 10})[0])
	require.Equal(t, Faulty, b.round(3, Corrected, []int64{1500, 10, 10, 10}, Stop)[0], "it can become worse")
	b = benchOf(4)
	require.Equal(t, Deep, b.round(9, Corrected, []int64{1500, 600, 600, 10})[0], "the others have much to do as well")
	b = benchOf(1)
	require.Equal(t, Deep, b.round(9, Corrected, []int64{1500})[0], "there are no others")
}

// All back ends slow, or all robots away: nobody is called faulty.
func TestOverload(t *testing.T) {
	for _, status := range []Status{Slow, Stop} {
		b := benchOf(4)
		all := []Status{status, status, status, status}
		require.NotContains(t, b.round(1, Corrected, []int64{1500, 1500, 1500, 200}, all...), Overload, "one check is not two")
		require.Equal(t, []Verdict{Overload, Overload, Overload, Deep}, b.round(1, Corrected, []int64{1500, 1500, 1500, 200}, all...))
		require.Equal(t, []Verdict{Overload, Overload, Overload, Deep}, b.round(9, Corrected, []int64{900, 900, 900, 200}, all...), "not below 80 % yet")
		require.True(t, b.overload.open)
		v := b.round(4, Corrected, []int64{900, 700, 700, 200}, OK, OK, OK, OK)
		require.False(t, b.overload.open)
		require.NotContains(t, v, Overload)
		require.NotContains(t, v, Faulty)
	}
	b := benchOf(4)
	require.Equal(t, []Verdict{Faulty, Faulty, Fine, Fine}, b.round(3, Corrected, []int64{1500, 1500, 10, 10}, Stop, Stop), "half is not more than half")
}

func TestPaperModeIsTheLetter(t *testing.T) {
	b := benchOf(4)
	require.Equal(t, []Verdict{Faulty, Faulty, Faulty, Faulty}, b.round(1, Paper, []int64{1001, 1500, 1500, 1500}), "above the maximum the robot counts as failed")
	require.Equal(t, []Verdict{Deep, Fine, Fine, Fine}, b.round(3, Paper, []int64{1000, 10, 10, 10}))
}

func TestVerdictInvariants(t *testing.T) {
	statuses := []Status{OK, Slow, Stall, Stop, Rewind, Unknown}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "partitions")
		b := benchOf(n)
		mode := rapid.SampledFrom([]string{Corrected, Paper}).Draw(t, "mode")
		for range rapid.IntRange(1, 60).Draw(t, "checks") {
			before := make([]seat, n)
			exceed := 0
			for i, s := range b.seats {
				before[i] = *s
				s.depth = int64(rapid.SampledFrom([]int{0, 50, 99, 101, 799, 801, 999, 1001, 5000}).Draw(t, "depth"))
				s.status = rapid.SampledFrom(statuses).Draw(t, "status")
				s.moving = rapid.Bool().Draw(t, "moving")
			}
			b.check(limits, mode, t0)
			for _, s := range b.seats {
				if s.over.open {
					exceed++
				}
			}
			for i, s := range b.seats {
				was := before[i].verdict
				switch {
				case mode == Paper:
					require.Equal(t, s.depth > limits.MaxDepth, s.verdict == Faulty)
					continue
				case s.verdict == Faulty && was != Faulty:
					require.Greater(t, float64(s.depth), leaveShare*float64(limits.MaxDepth)-1)
					require.GreaterOrEqual(t, s.stuck, stuckChecks)
				case was == Faulty && s.verdict != Faulty && s.verdict != Overload:
					require.Less(t, float64(s.depth), leaveShare*float64(limits.MaxDepth))
					require.GreaterOrEqual(t, s.calm, leaveChecks)
				}
				if s.verdict == Overload {
					require.True(t, b.overload.open)
				}
				if b.overload.open && s.over.open {
					require.Equal(t, Overload, s.verdict)
				}
			}
			if b.overload.run == 0 && b.overload.open {
				require.Greater(t, 2*exceed, n, "an overload that is not ending is one")
			}
		}
	})
}

// A value that swings around a threshold, or between it and 80 % of it, opens
// and closes a gate once.
func TestGateDoesNotFlap(t *testing.T) {
	g, turns := &gate{}, 0
	values := []float64{120, 90, 120, 120, 95, 120, 85, 101, 81, 99, 79, 85, 79, 79, 120, 79, 79, 79}
	for _, v := range values {
		was := g.open
		g.value(v, 100, enterChecks, leaveChecks)
		if g.open != was {
			turns++
		}
	}
	require.Equal(t, 2, turns)
	require.False(t, g.open)
	g.value(1000, 0, 1, 1)
	require.False(t, g.open, "no threshold, no state")
}

func TestDrainIsNeverInfinite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s speed
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			took := time.Duration(rapid.IntRange(1, 10_000_000).Draw(t, "µs")) * time.Microsecond
			if n := rapid.Int64Range(0, 1_000_000).Draw(t, "records"); rapid.Bool().Draw(t, "busy") {
				s.add(n, took)
			} else {
				s.raise(n, took)
			}
		}
		n := rapid.Int64Range(0, 1<<50).Draw(t, "depth")
		d, ok := s.drain(n)
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.LessOrEqual(t, d, maxDrain)
		if n == 0 {
			require.True(t, ok)
			require.Zero(t, d)
		}
		if ok && n > 0 {
			require.GreaterOrEqual(t, s.perSecond, slowest)
		}
	})
}

// A burst after a quiet night: the wait is that of a robot at work, not that of
// the night's few records.
func TestTheWaitAfterAQuietTime(t *testing.T) {
	p := &partition{history: history{window: 30 * time.Second}}
	now, committed, end := t0, int64(0), int64(0)
	step := func(in, out int64) {
		now = now.Add(2 * time.Second)
		end += in
		committed = min(end, committed+out)
		p.take(lagOf(committed, end), now)
		p.judge(now, limits, 0)
	}
	for range 100 {
		step(2, 2) // one a second
	}
	d, ok := p.drain(0)
	require.True(t, ok)
	require.Zero(t, d)
	step(2000, 200)
	for range 3 { // worked at 100/s
		step(2, 200)
	}
	d, ok = p.drain(0)
	require.True(t, ok)
	true1 := time.Duration(float64(p.lag.Lag) / 100 * float64(time.Second))
	require.InDelta(t, true1.Seconds(), d.Seconds(), 0.35*true1.Seconds(), "about %s, said %s", true1, d)
	for range 20 {
		step(0, 0)
	}
	_, ok = p.drain(0)
	require.False(t, ok, "nothing moves, so nobody knows")
}

func TestOneAlarmForAQueueAndCondition(t *testing.T) {
	s := newSet(Queue{Name: "callbacks", Account: "bank", Topic: "t"}, Config{Limits: limits, Window: 30 * time.Second})
	for i := range 4 {
		s.partition(int32(i), t0)
	}
	say := func(depths ...int64) []string {
		var out []string
		for range 3 {
			for i, p := range s.partitions {
				p.depth, p.status = depths[i], OK
			}
			s.bench.check(limits, Corrected, t0)
			out = nil
			for _, a := range s.wanted() {
				require.NotEmpty(t, a.Text)
				require.NotEmpty(t, a.TextZH)
				require.NotContains(t, a.Text+a.TextZH, "%!")
				out = append(out, fmt.Sprintf("%s %s", a.Name, a.Subject))
			}
		}
		slices.Sort(out)
		return out
	}
	require.Empty(t, say(10, 10, 10, 10))
	require.Equal(t, []string{"queue_depth callbacks bank"}, say(10, 150, 10, 150), "one for the queue, not one for each")
	require.Contains(t, s.wanted()[0].Text, "2 of 4 partitions (1, 3)")
	require.Equal(t, []string{"queue_depth callbacks bank"}, say(150, 150, 10, 150))
	require.Equal(t, []string{"queue_depth callbacks bank"}, say(10, 10, 10, 150))
	require.Empty(t, say(10, 10, 10, 10))
	require.Equal(t, []string{"queue_overload callbacks bank"}, say(1500, 1500, 1500, 1500), "it says the depth as well")
	require.Contains(t, s.wanted()[0].Text, "add robots")
	for _, p := range s.partitions {
		p.status = Stop
	}
	require.Contains(t, s.wanted()[0].Text, "start the processes that read it")
	require.Equal(t, []string{"queue_depth callbacks bank"}, say(500, 500, 500, 500), "and it goes on alone")
	require.Equal(t, []string{"queue_overload callbacks bank"}, say(1500, 1500, 1500, 1500))
}
