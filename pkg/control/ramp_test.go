package control

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestSlowStart(t *testing.T) {
	now := time.Unix(1_900_000_000, 0)
	met, err := newMetrics(prometheus.NewRegistry(), func() float64 { return 0 })
	require.NoError(t, err)
	k := newKnobs(10*time.Second, func() time.Time { return now }, met)
	k.applied = -1
	var at, target Limit
	calls := 0
	put := func(file Limit) {
		k.Put(Knob{Subject: "x", File: file, Apply: func(n, to Limit) { at, target = n, to; calls++ }})
	}
	version := int64(0)
	take := func(l *Limit) {
		version++
		var rows []Row
		if l != nil {
			rows = []Row{{Kind: KindLimit, Subject: "x", Value: l.json(), Version: version}}
		}
		k.take(version, rows)
	}
	after := func(d time.Duration) Limit { now = now.Add(d); k.step(); return at }

	put(Limit{100, 10, 20})
	require.Zero(t, calls, "the room begins with the file's value")
	take(&Limit{200, 20, 40})
	require.Equal(t, Limit{200, 20, 40}, at, "what a node finds when it starts holds at once")

	take(&Limit{400, 10, 80})
	require.Equal(t, Limit{200, 10, 40}, at, "what falls holds at once")
	require.Equal(t, Limit{400, 10, 80}, target)
	require.Equal(t, Limit{250, 10, 50}, after(2500*time.Millisecond))
	require.Equal(t, Limit{300, 10, 60}, after(2500*time.Millisecond))
	put(Limit{500, 10, 20})
	require.Equal(t, Limit{300, 10, 60}, after(0), "a changed file does not matter while something else is set")
	require.Equal(t, Limit{400, 10, 80}, after(time.Hour))
	done := calls
	after(time.Second)
	require.Equal(t, done, calls, "what has arrived is left alone")

	take(nil)
	require.Equal(t, Limit{400, 10, 20}, at, "back to the file: the rate rises, the concurrency falls")
	take(&Limit{10, 1, 1})
	require.Equal(t, Limit{10, 1, 1}, at, "lowered in the middle of a rise")
	require.Equal(t, Limit{10, 1, 1}, after(time.Hour))

	put(Limit{0, 1, 0}) // the file has no cap
	take(nil)
	require.Equal(t, Limit{55, 1, 5}, after(5*time.Second))
	require.Equal(t, Limit{0, 1, 0}, after(5*time.Second), "no cap comes at the end")
	take(&Limit{0.01, 1, 1})
	require.Equal(t, Limit{0.01, 1, 1}, at)
	take(&Limit{0.0101, 1, 1})
	require.Positive(t, after(time.Millisecond).Rate, "rounding must not take the cap away")

	k.Drop("x")
	take(&Limit{1, 1, 1})
	_, states := k.states()
	require.Empty(t, states)
	var nobody *Knobs
	nobody.Put(Knob{File: Limit{Rate: 3}, Apply: func(n, to Limit) { at, target = n, to }})
	require.Equal(t, Limit{Rate: 3}, at)
	nobody.Drop("x")
}
