package alarm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

// life is one life of a process: its board, its herald and a clock that starts
// with it.
type life struct {
	*Board
	h   *Herald
	now time.Time
}

// begin starts a process of a role on a host; Redis may be behind a proxy.
func begin(t *testing.T, node, role, host, addr string, open func(string) *redis.Client) *life {
	t.Helper()
	l := &life{now: noon}
	l.Board, l.h = idle(t, node, func() time.Time { return l.now }, func(o *HeraldOptions) {
		o.Redis, o.Role, o.Host = open(addr), role, host
	})
	return l
}

// pass lets time go by and gives what is told.
func (l *life) pass(t *testing.T, d time.Duration) []string {
	t.Helper()
	l.now = l.now.Add(d)
	l.h.pass(t.Context())
	return told(l.h)
}

// older makes all marks as old as if so much time had passed.
func (l *life) older(t *testing.T, d time.Duration) {
	t.Helper()
	v, err := redis.NewScript(`
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local at, rest = string.match(all[i + 1], '^(%d+)(.*)$')
  redis.call('HSET', KEYS[1], all[i], string.format('%.0f', tonumber(at) - ARGV[1]) .. rest)
end
return #all / 2`).Run(t.Context(), l.h.once.redis, []string{marksKey()}, d.Milliseconds())
	require.NoError(t, err)
	require.Positive(t, v, "there must be marks")
}

// marks counts what is remembered.
func (l *life) marks(t *testing.T) int {
	t.Helper()
	v, err := redis.NewScript(`return #redis.call('HGETALL', KEYS[1]) / 2`).Run(t.Context(), l.h.once.redis, []string{marksKey()})
	require.NoError(t, err)
	return int(v.(int64))
}

var held = Alarm{Name: "spool_held", Severity: Warning, Text: "records wait on disk", Local: true}

// The only node that saw two conditions dies, and they are over when it is back.
func TestTheEndIsToldAfterARestart(t *testing.T) {
	addr, open := redisAt(t)
	first := begin(t, "door-1", "proxy", "door", addr, open)
	first.Fire(faulty)
	first.Fire(held)
	require.Equal(t, []string{"door-1 firing", "door-1 firing"}, first.pass(t, 0))

	second := begin(t, "door-2", "proxy", "door", addr, open)
	require.Empty(t, second.pass(t, settleTime-time.Second), "it does not know yet")
	second.older(t, settleTime)
	require.Empty(t, second.pass(t, 0))
	require.ElementsMatch(t, []string{"door-2 resolved", "door-1 resolved"}, second.pass(t, time.Second), "the process's own condition was that of door-1")
	require.Empty(t, second.pass(t, time.Hour))
	require.Empty(t, begin(t, "door-3", "proxy", "door", addr, open).pass(t, settleTime))
	require.Zero(t, second.marks(t))
}

func TestWhatStillHoldsAfterARestartIsNotOver(t *testing.T) {
	addr, open := redisAt(t)
	first := begin(t, "door-1", "proxy", "door", addr, open)
	first.Fire(faulty)
	first.Fire(held)
	require.Len(t, first.pass(t, 0), 2)
	first.older(t, settleTime)

	second := begin(t, "door-2", "proxy", "door", addr, open)
	second.Fire(faulty)
	second.Fire(held)
	require.Equal(t, []string{"door-2 firing"}, second.pass(t, time.Second), "its own; the common one was told already")
	require.Empty(t, second.pass(t, settleTime))
	second.older(t, settleTime) // as if Redis had been away when it gave its word again
	require.Equal(t, 2, second.marks(t))
	require.Empty(t, second.pass(t, time.Second), "it sees them itself")

	second.Resolve(faulty.Name, faulty.Subject)
	second.Resolve(held.Name, held.Subject)
	require.Equal(t, []string{"door-2 resolved", "door-2 resolved"}, second.pass(t, 0), "also the common one, though the word of door-1 still counts")
	require.Empty(t, second.pass(t, time.Hour))
	require.Zero(t, second.marks(t), "an end that is told leaves no mark")
}

// Another node that sees the condition gives its word, so it is not over.
func TestWhatAnotherNodeSeesIsNotOver(t *testing.T) {
	addr, open := redisAt(t)
	first, other := begin(t, "door-1", "proxy", "a", addr, open), begin(t, "other", "proxy", "b", addr, open)
	first.Fire(faulty)
	require.Len(t, first.pass(t, 0), 1)
	first.older(t, settleTime)
	other.Fire(faulty)
	require.Empty(t, other.pass(t, 0))
	require.Empty(t, begin(t, "door-2", "proxy", "a", addr, open).pass(t, settleTime))
	require.Equal(t, 1, other.marks(t))
}

// Who starts tells the end, once; but not of what it could not see.
func TestOneOfThoseWhoCouldSeeItTellsTheEnd(t *testing.T) {
	addr, open := redisAt(t)
	first := begin(t, "door-1", "proxy", "door", addr, open)
	first.Fire(faulty)
	first.Fire(held)
	first.pass(t, 0)
	first.older(t, settleTime)

	require.Empty(t, begin(t, "sender-1", "sender", "door", addr, open).pass(t, settleTime), "a sender does not look at queues")
	x, y := begin(t, "x", "proxy", "far", addr, open), begin(t, "y", "proxy", "far", addr, open)
	seenByY, err := y.h.once.lapsed(t.Context())
	require.NoError(t, err)
	require.Len(t, seenByY, 2)
	require.Equal(t, []string{"x resolved"}, x.pass(t, settleTime), "the spool of another host is not its business")
	require.Empty(t, y.pass(t, settleTime))
	for _, f := range seenByY { // y has read the marks before x took one
		won, err := y.h.once.take(t.Context(), f.field, f.value)
		require.NoError(t, err)
		require.Equal(t, f.mark.Local, won)
	}
}

// A word that is given between reading and taking wins.
func TestAMarkThatIsAssertedMeanwhileStays(t *testing.T) {
	addr, open := redisAt(t)
	l := begin(t, "door-1", "proxy", "door", addr, open)
	l.Fire(faulty)
	l.pass(t, 0)
	l.older(t, settleTime)
	all, err := l.h.once.lapsed(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NoError(t, l.h.once.mark(t.Context(), all[0].mark))
	won, err := l.h.once.take(t.Context(), all[0].field, all[0].value)
	require.NoError(t, err)
	require.False(t, won)
	require.Equal(t, 1, l.marks(t))
}

func TestMarksEndByThemselves(t *testing.T) {
	addr, open := redisAt(t)
	first := begin(t, "door-1", "proxy", "door", addr, open)
	first.Fire(faulty)
	first.pass(t, 0)
	left, found, err := first.h.once.redis.TTL(t.Context(), marksKey())
	require.NoError(t, err)
	require.True(t, found)
	require.InDelta(t, markKeep, left, float64(time.Minute))
	first.older(t, markKeep)
	require.Empty(t, begin(t, "door-2", "proxy", "door", addr, open).pass(t, settleTime), "after a week nobody asks")
	require.Zero(t, first.marks(t))
}

func TestTheEndIsToldWhenRedisIsBack(t *testing.T) {
	engine, open := redisAt(t)
	p, err := redismem.StartProxy(engine)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	first := begin(t, "door-1", "proxy", "door", engine, open)
	first.Fire(faulty)
	first.pass(t, 0)
	first.older(t, settleTime)

	second := begin(t, "door-2", "proxy", "door", p.Addr(), open)
	p.Hang(true)
	require.Empty(t, second.pass(t, settleTime))
	require.Positive(t, p.Held(), "Redis must have been asked and have hung")
	p.Hang(false)
	require.Equal(t, []string{"door-2 resolved"}, second.pass(t, time.Second))
}
