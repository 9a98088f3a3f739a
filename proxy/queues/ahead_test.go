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
	}
	l := s.load(7)
	require.Equal(t, place{Place{12, 6 * time.Second}, true}, l.partitions[2])
	require.Equal(t, int64(47), l.whole.Ahead)
	require.Equal(t, 6*time.Second, l.worst)
	require.Empty(t, newSet(Queue{}, DefaultConfig()).load(7).partitions)
}
