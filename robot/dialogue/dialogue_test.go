package dialogue_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/robot/dialogue"
	"tidegate/robot/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret = "a deployment's key of some length"
	user   = "oUser-1"
)

func open(t *testing.T) *redis.Client {
	t.Helper()
	addr := os.Getenv("TIDEGATE_TEST_REDIS")
	if addr == "" {
		s, err := redismem.Start("")
		require.NoError(t, err)
		t.Cleanup(s.Close)
		addr = s.Addr()
	}
	return client(t, addr)
}

func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Timeout = []string{addr}, time.Second
	cfg.Prefix = fmt.Sprintf("test:dialogue:%d", time.Now().UnixNano())
	c, err := redis.Open(cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func store(t *testing.T, c *redis.Client, cfg dialogue.Config) *dialogue.Store {
	t.Helper()
	s, err := dialogue.New(cfg, c, prometheus.NewRegistry())
	require.NoError(t, err)
	return s
}

// mark is the n-th record of the partition.
func mark(n int64) dialogue.Mark {
	return dialogue.Mark{ID: fmt.Sprintf("%023d", n), Topic: "t.card.callbacks", Partition: 3, Offset: n, At: time.UnixMilli(1_790_000_000_000 + n)}
}

func state(step int) *engine.State {
	return &engine.State{Rule: "balance", Shape: "x", Step: step, Vars: map[string]string{"digits": "4711"}, At: int64(step)}
}

func find(t *testing.T, s *dialogue.Store, m dialogue.Mark) *dialogue.Place {
	t.Helper()
	p, err := s.Open(t.Context(), "card", user, m)
	require.NoError(t, err)
	return p
}

func move(t *testing.T, s *dialogue.Store, m dialogue.Mark, to *engine.State) {
	t.Helper()
	require.NoError(t, s.Move(t.Context(), find(t, s, m), to, time.Minute))
}

func TestACallbackWorkedTwiceMovesOnce(t *testing.T) {
	s := store(t, open(t), dialogue.Config{Key: secret})
	require.Nil(t, find(t, s, mark(5)).State)
	move(t, s, mark(5), state(0))
	move(t, s, mark(8), state(1))

	again := find(t, s, mark(8))
	require.Equal(t, state(0), again.State, "delivered again, it finds what it found")
	require.NoError(t, s.Move(t.Context(), again, state(1), time.Minute))
	require.Equal(t, state(1), find(t, s, mark(9)).State)

	move(t, s, mark(12), nil)
	require.Equal(t, state(1), find(t, s, mark(12)).State, "also when it ended the dialogue")
	require.Nil(t, find(t, s, mark(13)).State)
}

// A crash may bring back every callback since the partition's last commit,
// those from before the dialogue too. All but the newest are done.
func TestOlderCallbacksAreDone(t *testing.T) {
	s := store(t, open(t), dialogue.Config{Key: secret})
	move(t, s, mark(5), state(0))
	move(t, s, mark(8), state(1))
	move(t, s, mark(9), nil)
	for n := range int64(9) {
		require.True(t, find(t, s, mark(n)).Seen, n)
	}
	require.False(t, find(t, s, mark(9)).Seen)
	require.False(t, find(t, s, mark(10)).Seen)

	twin := mark(20)
	twin.ID = mark(5).ID
	require.True(t, find(t, s, twin).Seen, "a callback that came twice into the queue")

	anew := mark(2)
	anew.ID, anew.At = "x", mark(9).At.Add(time.Minute)
	require.False(t, find(t, s, anew).Seen, "a topic that was made anew begins at 0")
	other := mark(2)
	other.ID, other.Topic = "y", "t.v2.callbacks"
	require.False(t, find(t, s, other).Seen)
}

func TestARobotThatLostItsPartitionMovesNothing(t *testing.T) {
	c := open(t)
	one, two := store(t, c, dialogue.Config{Key: secret}), store(t, c, dialogue.Config{Key: secret})
	for name, first := range map[string]func(){"begin": func() {}, "go on": func() { move(t, one, mark(1), state(0)) }} {
		first()
		stale := find(t, one, mark(3))
		move(t, two, mark(3), state(1))
		move(t, two, mark(4), state(2))
		err := one.Move(t.Context(), stale, state(7), time.Minute)
		require.Equal(t, fault.Conflict, fault.KindOf(err), name)
		require.Equal(t, state(2), find(t, one, mark(5)).State, name)
		require.NoError(t, dialogue.Erase(t.Context(), c, "card", user))
		require.Nil(t, find(t, one, mark(5)).State)
	}
}

func TestARecordIsSealedBoundAndLeaves(t *testing.T) {
	c := open(t)
	s := store(t, c, dialogue.Config{Key: secret})
	move(t, s, mark(1), state(0))
	name := redis.Tag("card."+user, "dialogue")
	raw, found, err := c.Get(t.Context(), name)
	require.NoError(t, err)
	require.True(t, found)
	require.NotContains(t, raw, "4711")
	require.NotContains(t, raw, "balance")
	left, _, err := c.TTL(t.Context(), name)
	require.NoError(t, err)
	require.LessOrEqual(t, left, 31*time.Minute)

	require.NoError(t, c.Set(t.Context(), redis.Tag("card.oOther", "dialogue"), raw, time.Minute))
	p, err := s.Open(t.Context(), "card", "oOther", mark(2))
	require.NoError(t, err)
	require.Nil(t, p.State, "a record copied to another follower is none")

	changed := store(t, c, dialogue.Config{Key: "another key of some length", PrevKey: secret})
	require.Equal(t, state(0), find(t, changed, mark(2)).State)
	lost := store(t, c, dialogue.Config{Key: "a third key of some length"})
	require.Nil(t, find(t, lost, mark(2)).State)
	move(t, lost, mark(2), state(3))
	require.Equal(t, state(3), find(t, lost, mark(3)).State, "what cannot be opened is replaced")

	big := state(0)
	big.Vars["a"] = strings.Repeat("x", 70<<10)
	require.Equal(t, fault.Invalid, fault.KindOf(lost.Move(t.Context(), find(t, lost, mark(4)), big, time.Minute)))
}

func TestWithoutRedisNobodyGuesses(t *testing.T) {
	server, err := redismem.Start("")
	require.NoError(t, err)
	s := store(t, client(t, server.Addr()), dialogue.Config{Key: secret})
	p := find(t, s, mark(1))
	server.Close()
	_, err = s.Open(t.Context(), "card", user, mark(1))
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.NotContains(t, err.Error(), user)
	require.Equal(t, fault.Unavailable, fault.KindOf(s.Move(t.Context(), p, state(0), time.Minute)))
}

func TestKeysThatCannotBeRight(t *testing.T) {
	for want, cfg := range map[string]dialogue.Config{"dialogue.key": {Key: "short"}, "dialogue.prev_key": {Key: secret, PrevKey: "short"}, "no key beside": {PrevKey: secret}} {
		require.ErrorContains(t, cfg.Validate(), want)
		_, err := dialogue.New(cfg, nil, nil)
		require.Error(t, err)
	}
	s, err := dialogue.New(dialogue.Config{}, open(t), nil)
	require.NoError(t, err)
	require.Nil(t, s)
}

// A follower's callbacks are worked in order, with crashes at any moment after
// which all or some of them come again: every callback is decided with the same
// state as the first time, or is seen to be done after its own successor began.
func TestCrashesAnywhere(t *testing.T) {
	c := open(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		s := store(t, c, dialogue.Config{Key: secret})
		openid := fmt.Sprintf("o%d", round)
		n := rapid.IntRange(1, 8).Draw(rt, "callbacks")
		moves := rapid.SliceOfN(rapid.Bool(), n, n).Draw(rt, "moves")
		first := map[int]*engine.State{} // what each was decided with
		done, crashes := -1, 0           // the newest whose effects are durable
		for i := 0; i < n; {
			p, err := s.Open(t.Context(), "card", openid, mark(int64(i)))
			require.NoError(rt, err)
			switch before, worked := first[i]; {
			case p.Seen:
				require.LessOrEqual(rt, i, done, "only what is durable may be skipped")
				i++
				continue
			case worked:
				require.Equal(rt, before, p.State, "callback %d", i)
			}
			if _, worked := first[i]; !worked {
				first[i] = p.State
			}
			if moves[i] {
				var next *engine.State
				if i%3 != 2 {
					next = state(i)
				}
				require.NoError(rt, s.Move(t.Context(), p, next, time.Minute))
			}
			if crashes < 5 && rapid.Bool().Draw(rt, "crash") {
				crashes++
				i = rapid.IntRange(0, i).Draw(rt, "back to")
				continue
			}
			done = max(done, i)
			i++
		}
	})
}

// A move that is taken back leaves the follower where he was, with the time for the
// answer anew; delivered again, its callback still finds what it found.
func TestAMoveIsTakenBack(t *testing.T) {
	c := open(t)
	s := store(t, c, dialogue.Config{Key: secret})
	move(t, s, mark(5), state(0))
	p := find(t, s, mark(8))
	require.NoError(t, s.Back(t.Context(), p, state(0), time.Minute), "without a move there is nothing to do")
	require.Equal(t, state(0), find(t, s, mark(8)).State)
	require.NoError(t, s.Move(t.Context(), p, state(1), time.Minute))
	later := state(0)
	later.At = 99
	require.NoError(t, s.Back(t.Context(), p, later, time.Minute))
	require.Equal(t, state(0), find(t, s, mark(8)).State)
	require.True(t, find(t, s, mark(5)).Seen)
	require.Equal(t, later, find(t, s, mark(9)).State)

	stale := find(t, s, mark(9))
	require.NoError(t, s.Move(t.Context(), stale, nil, time.Minute))
	move(t, store(t, c, dialogue.Config{Key: secret}), mark(10), state(2)) // the partition is another robot's by now
	require.Equal(t, fault.Conflict, fault.KindOf(s.Back(t.Context(), stale, later, time.Minute)))
	require.Equal(t, state(2), find(t, s, mark(11)).State)
}
