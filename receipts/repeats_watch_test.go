package receipts

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidegate/receipts/store"
)

// scene is a watch with a clock that a test moves and a list of what it told.
type scene struct {
	*watch
	t    time.Time
	n    int
	told []string
}

func newScene(change func(*RepeatAlarm)) *scene {
	s := &scene{t: time.Date(2026, 3, 2, 4, 0, 0, 0, time.UTC)}
	cfg := defaultRepeatAlarm()
	if change != nil {
		change(&cfg)
	}
	s.watch = newWatch(cfg, func() time.Time { return s.t }, func(u follower, firing bool) {
		s.told = append(s.told, fmt.Sprintf("%s %v", u.openid, firing))
	})
	return s
}

// press is a repeat that the door took now; ago shifts that.
func (s *scene) press(user string, ago time.Duration) bool {
	s.n++
	return s.see(store.News{ID: fmt.Sprint(s.n), Account: "bank", OpenID: user, At: s.t.Add(-ago).UnixMilli()})
}

func TestTheTwentiethRepeatWithinAMinuteTells(t *testing.T) {
	s := newScene(nil)
	for range 19 {
		s.press("u", 0)
		s.t = s.t.Add(time.Second)
	}
	require.Empty(t, s.told)
	s.t = s.t.Add(41*time.Second - time.Millisecond) // 59.999 s after the first
	s.press("u", 0)
	require.Equal(t, []string{"u true"}, s.told)

	s = newScene(nil)
	for range 19 {
		s.press("u", 0)
		s.t = s.t.Add(time.Second)
	}
	s.t = s.t.Add(41 * time.Second) // the first has left the window
	s.press("u", 0)
	require.Empty(t, s.told)
	s.press("u", 0)
	require.Len(t, s.told, 1, "the second has not")
	for range 400 { // one each 4 s is 15 in a minute, for ever
		s.t = s.t.Add(4 * time.Second)
		s.press("slow", 0)
		s.sweep()
	}
	require.Equal(t, []string{"u true", "u false"}, s.told)
}

func TestOneAlarmUntilTheUserWasCalm(t *testing.T) {
	s := newScene(nil)
	burst := func() {
		for range 30 {
			s.press("u", 0)
		}
	}
	for range 6 { // half an hour of it
		burst()
		s.t = s.t.Add(5 * time.Minute)
		s.sweep()
	}
	require.Equal(t, []string{"u true"}, s.told)
	s.t = s.t.Add(5*time.Minute - time.Millisecond) // 9:59.999 after the last
	s.press("u", 0)                                 // alone it is no unrest
	s.sweep()
	require.Len(t, s.told, 1)
	s.t = s.t.Add(time.Millisecond)
	s.sweep()
	require.Equal(t, []string{"u true", "u false"}, s.told)
	burst()
	require.Equal(t, []string{"u true", "u false", "u true"}, s.told)
}

func TestTheTimeOfTheDoorCounts(t *testing.T) {
	s := newScene(nil)
	for n := range 60 { // a backlog of an hour, read at once: one a minute
		s.press("steady", time.Duration(60-n)*time.Minute)
	}
	for range 30 {
		s.press("over", 11*time.Minute) // ended longer ago than calm takes
	}
	require.Empty(t, s.told)
	for range 20 {
		s.press("late", 9*time.Minute)
	}
	require.Equal(t, []string{"late true"}, s.told)
	s.t = s.t.Add(time.Minute)
	s.sweep()
	require.Equal(t, []string{"late true", "late false"}, s.told, "ten minutes by the door's time")
	for range 20 {
		s.press("ahead", -time.Hour) // a door whose clock is wrong
	}
	s.t = s.t.Add(10 * time.Minute)
	s.sweep()
	require.Equal(t, []string{"ahead true", "ahead false"}, s.told[2:])
}

func TestWhatTheQueueBringsAgainCountsOnce(t *testing.T) {
	s := newScene(nil)
	for round := range 3 {
		s.n = 0 // the same ids again
		for range 19 {
			require.Equal(t, round == 0, s.press("u", 0))
		}
	}
	require.Empty(t, s.told)
	s.press("u", 0)
	require.Len(t, s.told, 1)
}

func TestMemoryIsBounded(t *testing.T) {
	s := newScene(func(c *RepeatAlarm) { c.MaxUsers = 100 })
	for range 20 {
		s.press("first", 0)
	}
	for n := range 10_000 {
		s.press(fmt.Sprint("u", n), 0)
		require.LessOrEqual(t, s.size(), 100)
	}
	require.Equal(t, []string{"first true", "first false"}, s.told, "who makes room is resolved")
	for range 10_000 {
		s.press("busy", 0)
	}
	require.LessOrEqual(t, cap(s.users[follower{"bank", "busy"}].Value.(*watched).last), 40)
	s.t = s.t.Add(time.Minute)
	s.sweep()
	require.Equal(t, 1, s.size(), "who is quiet is forgotten, who has an alarm is not")
	s.t = s.t.Add(9 * time.Minute)
	s.sweep()
	require.Zero(t, s.size())
}

// The newest At presses must say the same as all of them would.
func TestTheWatchAgreesWithCountingEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScene(func(c *RepeatAlarm) { c.At = rapid.IntRange(2, 6).Draw(t, "at") })
		var times []int64
		want := false
		for range rapid.IntRange(1, 60).Draw(t, "presses") {
			s.t = s.t.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "pause")) * time.Second)
			s.press("u", 0)
			now := s.t.UnixMilli()
			times = append(times, now)
			in := 0
			for _, at := range times {
				if now-at < 60_000 {
					in++
				}
			}
			want = want || in >= s.cfg.At
			if got := len(s.told) > 0; got != want {
				t.Fatalf("%d within the window, told %v", in, got)
			}
			s.sweep()
		}
	})
}

// The order in which presses come makes no difference to what is kept.
func TestPressesAreKeptInOrder(t *testing.T) {
	var all []press
	for n := range 50 {
		all = append(all, press{int64(1000 + n), uint64(n)})
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	u := &watched{}
	for _, p := range all {
		require.True(t, u.add(p, 20))
	}
	require.Len(t, u.last, 20)
	require.True(t, slices.IsSortedFunc(u.last, func(a, b press) int { return int(a.at - b.at) }))
	require.EqualValues(t, 1030, u.last[0].at)
}
