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
	var told Step
	calls := 0
	put := func(file Limit) {
		k.Put(Knob{Subject: "x", File: file, Apply: func(s Step) { told = s; calls++ }})
	}
	nominal := func() Limit { _, _, all := k.states(); return all[0].Now }
	version := int64(0)
	take := func(l *Limit) {
		version++
		var rows []Row
		if l != nil {
			rows = []Row{{Kind: KindLimit, Subject: "x", Value: l.json(), Version: version}}
		}
		k.take(version, rows)
	}
	after := func(d time.Duration) Limit { now = now.Add(d); k.step(); return nominal() }
	const second = time.Second

	put(Limit{100, 10, 20})
	require.Equal(t, Step{Now: Limit{100, 10, 20}, Target: Limit{100, 10, 20}}, told)
	take(&Limit{200, 20, 40})
	require.Equal(t, Step{Now: Limit{200, 20, 40}, Target: Limit{200, 20, 40}, Version: 1}, told, "what a node finds when it starts holds at once")

	take(&Limit{400, 10, 80})
	require.Equal(t, Step{Now: Limit{200, 10, 40}, Target: Limit{400, 10, 80}, Left: 10 * second, Version: 2}, told, "what falls holds at once")
	require.Equal(t, Limit{250, 10, 50}, after(2500*time.Millisecond))
	require.Equal(t, Step{Now: Limit{250, 10, 50}, Target: Limit{400, 10, 80}, Left: 7500 * time.Millisecond, Version: 2}, told)
	require.Equal(t, Limit{300, 10, 60}, after(2500*time.Millisecond))
	put(Limit{500, 10, 20})
	require.Equal(t, Limit{300, 10, 60}, after(0), "a changed file does not matter while something else is set")
	version++
	k.take(version, []Row{{Kind: KindLimit, Subject: "x", Value: Limit{400, 10, 80}.json(), Version: 2}, {Kind: "pause", Subject: "y"}})
	require.Equal(t, Step{Now: Limit{300, 10, 60}, Target: Limit{400, 10, 80}, Left: 5 * second, Version: 3}, told, "another setting changes: only the version does")
	require.Equal(t, Limit{400, 10, 80}, after(time.Hour))
	require.Equal(t, Step{Now: Limit{400, 10, 80}, Target: Limit{400, 10, 80}, Version: 3}, told)
	done := calls
	after(second)
	require.Equal(t, done, calls, "what has arrived is left alone")

	take(nil)
	require.Equal(t, Limit{400, 10, 20}, nominal(), "back to the file: the rate rises, the concurrency falls")
	done = calls
	require.Equal(t, Limit{450, 10, 20}, after(5*second))
	require.Equal(t, done, calls, "a rate rises by itself")
	take(&Limit{10, 1, 1})
	require.Equal(t, Limit{10, 1, 1}, told.Now, "lowered in the middle of a rise")
	require.Equal(t, Limit{10, 1, 1}, after(time.Hour))

	put(Limit{0, 1, 0}) // the file has no cap
	take(nil)
	require.Equal(t, Limit{100, 1, 0}, told.Target, "there is no straight line to no rate")
	require.Equal(t, Limit{55, 1, 5}, after(5*second))
	require.Equal(t, Limit{0, 1, 0}, after(5*second), "no cap comes at the end")
	require.Equal(t, Limit{0, 1, 0}, told.Target)
	take(&Limit{0.01, 1, 1})
	require.Equal(t, Limit{0.01, 1, 1}, told.Now)
	take(&Limit{0.0101, 1, 1})
	require.Positive(t, after(time.Millisecond).Rate, "rounding must not take the cap away")

	k.Drop("x")
	take(&Limit{1, 1, 1})
	_, _, states := k.states()
	require.Empty(t, states)
	var nobody *Knobs
	nobody.Put(Knob{File: Limit{Rate: 3}, Apply: func(s Step) { told = s }})
	require.Equal(t, Limit{Rate: 3}, told.Now)
	nobody.Drop("x")
}
