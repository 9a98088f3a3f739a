package proxy

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// seconds lets a judge look once a second at samples that f changes.
type seconds struct {
	t *testing.T
	j *judge
	s sample
}

func newSeconds(t *testing.T) *seconds {
	return &seconds{t, newJudge(), sample{at: time.Unix(1_000_000, 0), accounts: map[string]counts{"card": {}}, limit: 100 << 20}}
}

// pass lets n seconds pass and gives what fires after them.
func (x *seconds) pass(n int, f func(s *sample)) []string {
	x.t.Helper()
	var out []string
	for range n {
		x.s.at = x.s.at.Add(time.Second)
		s := x.s
		s.accounts = map[string]counts{}
		for k, v := range x.s.accounts {
			s.accounts[k] = v
		}
		if f != nil {
			f(&s)
		}
		x.s = s
		out = nil
		for _, v := range x.j.decide(s) {
			require.NotEmpty(x.t, v.alarm.Name)
			if v.firing {
				require.NotEmpty(x.t, v.alarm.Text)
				require.NotEmpty(x.t, v.alarm.TextZH)
				out = append(out, v.alarm.Name)
			}
		}
	}
	slices.Sort(out)
	return out
}

func (x *seconds) callbacks(n int, seen, failed int64) []string {
	x.t.Helper()
	return x.pass(n, func(s *sample) {
		c := s.accounts["card"]
		s.accounts["card"] = counts{c.seen + seen, c.failed + failed}
	})
}

func TestKafkaAwayIsToldAfterAMomentAndOverAfterAMoment(t *testing.T) {
	x := newSeconds(t)
	require.Empty(t, x.pass(4, func(s *sample) { s.broken = 1 }))
	require.Empty(t, x.pass(1, func(s *sample) { s.broken = 0 }), "a change of leader is no alarm")
	require.Empty(t, x.pass(5, func(s *sample) { s.broken = 2 }))
	require.Equal(t, []string{alarmKafka}, x.pass(1, nil))
	require.Equal(t, []string{alarmKafka}, x.pass(4, func(s *sample) { s.broken = 0 }))
	require.Equal(t, []string{alarmKafka}, x.pass(1, func(s *sample) { s.broken = 1 }))
	require.Empty(t, x.pass(6, func(s *sample) { s.broken = 0 }))
}

func TestWhatLiesOnTheDisk(t *testing.T) {
	x := newSeconds(t)
	require.Empty(t, x.pass(20, func(s *sample) { s.records, s.oldest = 7, time.Unix(1_000_000, 0) }))
	require.Equal(t, []string{alarmHeld}, x.pass(1, nil))
	require.Empty(t, x.pass(6, func(s *sample) { s.records = 0 }))

	require.Empty(t, x.pass(3, func(s *sample) { s.disk = 80 << 20 }))
	require.Equal(t, []string{alarmFilling}, x.pass(1, func(s *sample) { s.disk = 81 << 20 }))
	require.Equal(t, []string{alarmFilling}, x.pass(1, func(s *sample) { s.disk = 71 << 20 }), "it does not flutter about the mark")
	require.Empty(t, x.pass(1, func(s *sample) { s.disk = 70 << 20 }))

	require.Equal(t, []string{alarmDamaged}, x.pass(1, func(s *sample) { s.aside = 1 }))
	require.Empty(t, x.pass(1, func(s *sample) { s.aside = 0 }), "the files were removed")
}

func TestRefusalsAreToldAtOnceAndOverAfterHalfAMinute(t *testing.T) {
	x := newSeconds(t)
	require.Equal(t, []string{alarmRefused}, x.callbacks(1, 5, 1))
	require.Equal(t, []string{alarmRefused}, x.callbacks(30, 5, 0))
	require.Equal(t, []string{alarmRefused}, x.callbacks(1, 5, 1))
	require.Empty(t, x.callbacks(31, 5, 0))
}

func TestUncheckedClaims(t *testing.T) {
	asked := func(unchecked, checked int64) func(s *sample) {
		return func(s *sample) { s.unchecked += unchecked; s.checked += checked }
	}
	x := newSeconds(t)
	require.Empty(t, x.pass(1, asked(2, 0)))
	require.Empty(t, x.pass(10, asked(0, 5)), "two that timed out are no outage")
	require.Empty(t, x.pass(3, asked(9, 0)))
	require.Equal(t, []string{alarmUnchecked}, x.pass(1, asked(9, 0)))
	require.Equal(t, []string{alarmUnchecked}, x.pass(25, nil), "nobody asks: nothing is known")
	require.Equal(t, []string{alarmUnchecked}, x.pass(1, asked(9, 0)))
	require.Empty(t, x.pass(6, asked(0, 9)))
	require.Equal(t, []string{alarmUnchecked}, x.pass(4, asked(9, 0)))
	require.Empty(t, x.pass(40, nil), "after half a minute of silence it is over")
	require.Empty(t, x.pass(60, asked(2, 500)), "a claim now and then that was too slow is no outage")
}

// WeChat pauses an account whose answers fail: callbacks fail, then none come.
func TestSilenceAfterFailuresIsSuspicious(t *testing.T) {
	x := newSeconds(t)
	x.callbacks(120, 3, 0)
	x.callbacks(10, 3, 3)
	require.NotContains(t, x.callbacks(59, 0, 0), alarmMarkFail)
	require.Contains(t, x.callbacks(2, 0, 0), alarmMarkFail)
	require.Equal(t, []string{alarmMarkFail}, x.callbacks(600, 0, 0), "it does not end by itself")
	require.Equal(t, []string{alarmMarkFail}, x.callbacks(1, 4, 0))
	require.Empty(t, x.callbacks(1, 4, 0))
}

// At night an account gets one callback in ten seconds: that is no pause.
func TestAnAccountThatIsBackAndQuietIsNotSuspected(t *testing.T) {
	x := newSeconds(t)
	x.callbacks(120, 3, 0)
	x.callbacks(10, 3, 3)
	require.Equal(t, []string{alarmMarkFail}, x.callbacks(120, 0, 0))
	for range 5 {
		require.Equal(t, []string{alarmMarkFail}, x.callbacks(1, 1, 0))
		x.callbacks(9, 0, 0)
	}
	require.Empty(t, x.callbacks(1, 1, 0))
}

func TestSilenceThatIsNotSuspicious(t *testing.T) {
	t.Run("nothing failed", func(t *testing.T) {
		x := newSeconds(t)
		x.callbacks(120, 3, 0)
		require.Empty(t, x.callbacks(200, 0, 0))
	})
	t.Run("there was less than one a second", func(t *testing.T) {
		x := newSeconds(t)
		x.pass(120, nil)
		for range 50 {
			x.callbacks(1, 1, 1)
			x.callbacks(1, 0, 0)
		}
		require.Empty(t, x.callbacks(200, 0, 0))
	})
	t.Run("they still come", func(t *testing.T) {
		x := newSeconds(t)
		x.callbacks(120, 3, 3)
		for range 20 {
			x.callbacks(1, 1, 0)
			x.callbacks(9, 0, 0)
		}
		require.Empty(t, x.pass(1, nil))
	})
	t.Run("the failures are long past", func(t *testing.T) {
		x := newSeconds(t)
		x.callbacks(10, 3, 3)
		x.callbacks(400, 3, 0)
		require.Empty(t, x.callbacks(200, 0, 0))
	})
}

func TestAnAccountThatIsGoneHasNoAlarms(t *testing.T) {
	x := newSeconds(t)
	x.callbacks(120, 3, 3)
	require.Equal(t, []string{alarmRefused}, x.callbacks(1, 3, 3))
	require.Empty(t, x.pass(1, func(s *sample) { delete(s.accounts, "card") }))
	require.Empty(t, x.j.accounts)
}

func TestBusiestIsTheLargestOfAllWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		beats := rapid.SliceOfN(rapid.Int64Range(0, 9), busyBeats, 4*busyBeats).Draw(t, "beats")
		most := int64(0)
		for i := 0; i+busyBeats <= len(beats); i++ {
			most = max(most, sum(beats[i:i+busyBeats]))
		}
		if got := busiest(beats); got != most {
			t.Fatalf("busiest %d, want %d", got, most)
		}
	})
}
