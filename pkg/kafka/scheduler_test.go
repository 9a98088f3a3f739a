package kafka

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"tidegate/pkg/fault"
)

// fakeSession remembers the marked offset; everything else is not called.
type fakeSession struct {
	sarama.ConsumerGroupSession
	marked int64
}

func (f *fakeSession) MarkOffset(_ string, _ int32, offset int64, _ string) { f.marked = offset }

type fakeClaim struct{ sarama.ConsumerGroupClaim }

func (fakeClaim) Topic() string              { return "t" }
func (fakeClaim) Partition() int32           { return 0 }
func (fakeClaim) InitialOffset() int64       { return sarama.OffsetOldest }
func (fakeClaim) HighWaterMarkOffset() int64 { return 0 }

// machine drives a scheduler without workers: the property decides which call
// begins, ends or fails next, so every interleaving can come up.
type machine struct {
	s       *scheduler
	c       *claim
	sess    *fakeSession
	paused  bool
	keys    [][]byte       // of each pushed offset
	done    map[int64]bool // finished offsets
	running []*lane
	stuck   []*lane
	lastOf  map[string]int64 // newest begun offset of a key
}

func newMachine(t require.TestingT, opt GroupOptions) *machine {
	met, err := newGroupMetrics(nil, "g")
	require.NoError(t, err)
	opt.Group, opt.RetryMin, opt.RetryMax = "g", time.Hour, time.Hour
	m := &machine{sess: &fakeSession{marked: -1}, done: map[int64]bool{}, lastOf: map[string]int64{}}
	m.s = newScheduler(opt.withDefaults(), zap.NewNop(), met)
	m.c = m.s.open(context.Background(), m.sess, fakeClaim{}, func() { m.paused = true }, func() { m.paused = false })
	return m
}

func (m *machine) push(key []byte) {
	off := int64(len(m.keys))
	m.keys = append(m.keys, key)
	m.s.push(m.c, Record{Topic: "t", Offset: off, Key: key, Value: []byte(strconv.Itoa(int(off)))})
}

func (m *machine) begin(t *rapid.T) {
	if m.s.ring.len() == 0 {
		return
	}
	l := m.s.take()
	for _, r := range m.running {
		require.NotSame(t, r, l, "a key runs twice")
	}
	first := l.current[0].rec
	if first.Key != nil {
		last, again := m.lastOf[string(first.Key)]
		require.True(t, !again || first.Offset > last || (first.Offset == last && l.fails > 0), "order of a key")
		m.lastOf[string(first.Key)] = first.Offset
	}
	require.Less(t, first.Offset-max(m.c.low, 0), int64(m.s.opt.MaxAhead), "too far ahead of the low-water mark")
	m.running = append(m.running, l)
}

func (m *machine) end(t *rapid.T, i int, fail bool) {
	l := m.running[i]
	m.running = slices.Delete(m.running, i, i+1)
	if fail {
		m.s.finish(l, errors.New("no"))
		require.NotNil(t, l.timer)
		l.timer.Stop() // the property decides when the pause is over
		m.stuck = append(m.stuck, l)
		return
	}
	for _, it := range l.current {
		m.done[it.rec.Offset] = true
	}
	m.s.finish(l, nil)
}

func (m *machine) retry(i int) {
	l := m.stuck[i]
	m.stuck = slices.Delete(m.stuck, i, i+1)
	m.s.mu.Lock()
	l.timer = nil
	m.s.enqueue(l)
	m.s.mu.Unlock()
}

// check compares the claim's books with a recount.
func (m *machine) check(t *rapid.T) {
	low := int64(0)
	for m.done[low] {
		low++
	}
	if low > 0 {
		require.Equal(t, low, m.sess.marked, "the mark must be the lowest unfinished offset")
	} else {
		require.EqualValues(t, -1, m.sess.marked)
	}
	begun := len(m.done)
	for _, l := range m.c.lanes {
		begun += len(l.current)
	}
	require.Equal(t, len(m.keys)-begun, m.c.waiting, "waiting")
	behind, stuck := 0, 0
	for _, l := range m.c.lanes {
		if l.stuck {
			stuck++
			behind += l.waiting.len()
		}
	}
	require.Equal(t, behind, m.c.stuckWaiting)
	require.Equal(t, stuck, m.c.stuckLanes)
	require.Equal(t, len(m.running), m.c.inFlight)
	require.Equal(t, m.paused, m.c.paused)
	require.Equal(t, m.paused, m.s.wantsPause(m.c), "the fetch must follow the marks")
	require.LessOrEqual(t, m.c.window.len(), m.s.opt.MaxAhead)
}

// For any order of arrivals, ends and failures: the mark is the lowest unfinished
// offset, a key's records run one by one in order, no more than MaxAhead records
// lie between mark and newest begun, and at the end everything is worked.
func TestSchedulerKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t, GroupOptions{Handler: func(context.Context, Record) error { return nil },
			QueueHigh: 6, QueueLow: 2, MaxAhead: rapid.IntRange(1, 12).Draw(t, "ahead")})
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				key := []byte(rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "key"))
				if rapid.IntRange(0, 5).Draw(t, "nokey") == 0 {
					key = nil
				}
				m.push(key)
			case 2:
				m.begin(t)
			case 3:
				if n := len(m.running); n > 0 {
					m.end(t, rapid.IntRange(0, n-1).Draw(t, "which"), rapid.IntRange(0, 3).Draw(t, "fail") == 0)
				}
			case 4:
				if n := len(m.stuck); n > 0 {
					m.retry(rapid.IntRange(0, n-1).Draw(t, "which"))
				}
			}
			m.check(t)
		}
		for len(m.done) < len(m.keys) {
			for len(m.stuck) > 0 {
				m.retry(0)
			}
			before := len(m.done) + len(m.running)
			m.begin(t)
			if len(m.running) > 0 {
				m.end(t, 0, false)
			}
			require.Greater(t, len(m.done)+len(m.running), before-1)
			if len(m.running) == 0 && m.s.ring.len() == 0 {
				require.Len(t, m.done, len(m.keys), "nothing left to run, and not everything is done")
			}
		}
		m.check(t)
		require.Empty(t, m.c.lanes)
		require.Zero(t, m.c.bytes)
		require.False(t, m.paused)
	})
}

// What an abandoned handler reports later must not move the mark: the partition
// belongs to another member.
func TestAbandonedHandlerMarksNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t, GroupOptions{Handler: func(context.Context, Record) error { return nil }})
	m.push([]byte("a"))
	l := m.s.take()
	m.s.drain(m.c, time.Millisecond) // and the grace, as nobody returns
	require.ErrorIs(t, m.c.ctx.Err(), context.Canceled)
	m.s.finish(l, nil)
	require.EqualValues(t, -1, m.sess.marked)
	require.Empty(t, m.s.stats())
}

// A pause that is decided while the claim closes must not hit the next claim.
func TestFlowIsOpenAfterClose(t *testing.T) {
	m := newMachine(t, GroupOptions{Handler: func(context.Context, Record) error { return nil }, QueueHigh: 2, QueueLow: 1})
	m.push([]byte("a"))
	m.push([]byte("a"))
	m.push([]byte("a"))
	require.True(t, m.paused)
	m.s.drain(m.c, 0)
	require.False(t, m.paused)
	m.push([]byte("a"))
	require.False(t, m.paused)
}

func TestFifoKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f fifo[int]
		var want []int
		n := 0
		for range rapid.IntRange(0, 3000).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "push") || len(want) == 0 {
				f.push(n)
				want = append(want, n)
				n++
			} else {
				require.Equal(t, want[0], f.front())
				require.Equal(t, want[0], f.pop())
				want = want[1:]
			}
			require.Equal(t, len(want), f.len())
		}
		f.removeIf(func(v int) bool { return v%2 == 0 })
		want = slices.DeleteFunc(want, func(v int) bool { return v%2 == 0 })
		for _, v := range want {
			require.Equal(t, v, f.pop())
		}
		require.Zero(t, f.len())
	})
}

// The pause before a retry doubles between its bounds; an error may ask for more,
// up to a minute.
func TestRetryPause(t *testing.T) {
	m := newMachine(t, GroupOptions{Handler: func(context.Context, Record) error { return nil }})
	m.s.opt.RetryMin, m.s.opt.RetryMax = 100*time.Millisecond, 5*time.Second
	l := &lane{}
	for fails, around := range map[int]time.Duration{0: 100 * time.Millisecond, 1: 200 * time.Millisecond, 4: 1600 * time.Millisecond, 6: 5 * time.Second, 70: 5 * time.Second} {
		l.fails = fails
		for range 50 {
			got := m.s.retryIn(l, errors.New("x"))
			require.GreaterOrEqual(t, got, around*3/4)
			require.LessOrEqual(t, got, around*5/4)
		}
	}
	require.Equal(t, 30*time.Second, m.s.retryIn(l, fault.New(fault.Limited, "x", "y").WithRetryAfter(30*time.Second)))
	require.Equal(t, time.Minute, m.s.retryIn(l, fault.New(fault.Limited, "x", "y").WithRetryAfter(time.Hour)))
}
