package queues

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// standing makes a watch whose last measurement has a line in partition 1 only.
func standing() *Watch {
	w := &Watch{cfg: DefaultConfig(), d: Deps{Threshold: 10 * time.Second}, now: func() time.Time { return t0.Add(time.Second) }}
	w.view.Store(&View{SampledAt: t0})
	w.loads.Store(&loads{at: t0, accounts: map[string]*load{
		"busy": {worst: 40 * time.Second, long: t0, whole: place{Place{120, 15 * time.Second}, true}, partitions: []place{
			{Place{3, time.Second}, true}, {Place{120, 40 * time.Second}, true}, {Place{9, 0}, false}}},
		"short": {worst: time.Second, partitions: []place{{Place{3, time.Second}, true}}},
		"whole": {worst: 40 * time.Second, long: t0.Add(-time.Hour), whole: place{Place{120, 15 * time.Second}, true}},
	}})
	return w
}

func keysOf(n int32) [3]string {
	var out [3]string
	for i := range out {
		for k := 0; ; k++ {
			key := "user-" + string(rune('a'+k))
			if partitionOf(key, n) == int32(i) {
				out[i] = key
				break
			}
		}
	}
	return out
}

func TestAheadOfOnePartition(t *testing.T) {
	w, keys := standing(), keysOf(3)
	_, ok := w.Ahead("busy", keys[0])
	require.False(t, ok, "this one's partition is short")
	p, ok := w.Ahead("busy", keys[1])
	require.True(t, ok)
	require.Equal(t, Place{120, 40 * time.Second}, p)
	_, ok = w.Ahead("busy", keys[2])
	require.False(t, ok, "nobody can know")
	p, ok = w.Ahead("whole", keys[0])
	require.True(t, ok, "the partition cannot be told, so it is the account's line")
	require.Equal(t, Place{120, 15 * time.Second}, p)
	_, ok = w.Ahead("nobody", keys[0])
	require.False(t, ok)

	require.True(t, w.WasLong("busy", time.Minute))
	require.False(t, w.WasLong("whole", time.Minute))
	require.False(t, w.WasLong("short", time.Minute))
	w.now = func() time.Time { return t0.Add(time.Minute) }
	_, ok = w.Ahead("busy", keys[1])
	require.False(t, ok, "a minute old")
}

// With short queues the door pays no allocation for the question.
func TestAheadCostsNothingWithShortQueues(t *testing.T) {
	w := standing()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, ok := w.Ahead("short", "oZx81wQk2Lr7nVb0TtYpSdUeGhA4"); ok {
			panic("short queues")
		}
	}))
}

func BenchmarkAhead(b *testing.B) {
	w, keys := standing(), keysOf(3)
	for _, c := range []struct{ name, account, key string }{{"short", "short", keys[0]}, {"long", "busy", keys[1]}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.Ahead(c.account, c.key)
			}
		})
	}
}

// What this node's disk keeps comes first, and each partition gets its share.
func TestAheadCountsTheSpool(t *testing.T) {
	s := newSet(Queue{Name: "callbacks", Account: "bank", Topic: "t"}, DefaultConfig())
	for i := range int32(4) {
		p := s.partition(i, t0)
		p.lag = lagOf(0, 10)
		p.lag.Partition = i
		p.able.add(2, time.Second)
		p.worked = time.Minute
	}
	l := s.load(7)
	require.Equal(t, place{Place{12, 6 * time.Second}, true}, l.partitions[2])
	require.Equal(t, int64(47), l.whole.Ahead)
	require.Equal(t, 6*time.Second, l.worst)
	require.Empty(t, newSet(Queue{}, DefaultConfig()).load(7).partitions)
}

// A quiet time, then a burst that is worked fast: the wait is short, though the
// speed that is known is that of the quiet time. Then one that is worked slowly:
// it is told once the speed is known, and not before.
func TestAheadOfABurstAfterAQuietTime(t *testing.T) {
	for name, c := range map[string]struct {
		out  int64
		told bool
	}{"fast": {1000, false}, "slow": {40, true}} {
		t.Run(name, func(t *testing.T) {
			now := t0
			q := Queue{Name: "callbacks", Account: "bank", Topic: "t"}
			cfg := DefaultConfig()
			cfg.Window = 10 * time.Second
			s := newSet(q, cfg)
			w := &Watch{cfg: cfg, d: Deps{Threshold: 2 * time.Second}, now: func() time.Time { return now }, known: &[]Queue{q}, sets: map[Queue]*set{q: s}}
			p := s.partition(0, now)
			committed, end := int64(0), int64(0)
			step := func(in, out int64) (Place, bool) {
				now = now.Add(2 * time.Second)
				end += in
				committed = min(end, committed+out)
				p.take(lagOf(committed, end), now)
				p.judge(now, limits, 0)
				w.view.Store(&View{SampledAt: now})
				w.loads.Store(w.loadsNow(now))
				return w.Ahead("bank", "somebody")
			}
			for range 50 {
				_, long := step(2, 2)
				require.False(t, long)
			}
			_, long := step(4000, c.out/4) // it came a moment before the poll
			require.False(t, long, "nobody knows yet")
			var last Place
			waited := 0
			for !long && committed < end {
				last, long = step(0, c.out)
				waited++
			}
			require.Equal(t, c.told, long)
			if long {
				require.Greater(t, waited, 3)
				require.InEpsilon(t, float64(last.Ahead)/float64(c.out/2), last.Wait.Seconds(), 0.2, "and then it is right: %v", last)
			}
		})
	}
}
