package ratelimit

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/sqldb/sqldbtest"
)

// Redis loses its data, is away and comes back: never more than the caps, and the
// static share of the rates meanwhile.
func TestJointCapsWithoutRedis(t *testing.T) {
	s, err := redismem.Start("")
	require.NoError(t, err)
	defer func() { s.Close() }()
	addr := s.Addr()
	w := &watch{at: time.UnixMicro(1_790_000_000_000_000)}
	d, err := NewDays(t.Context(), sqldbtest.OpenSQLite(t), 8, 0, nil)
	require.NoError(t, err)
	j, err := NewJoint(jointClient(t, addr, "test"), d.Births(), 8, nil)
	require.NoError(t, err)
	j.clock, j.now = w.now, w.now
	rate, user := aRate("app.crm", 4800, 16), Cap{Name: "user.a", Window: Window{Most: 3, Period: time.Hour}}
	n := 0
	take := func(caps ...Cap) Grant {
		t.Helper()
		n++
		g, err := j.Take(t.Context(), "shop", fmt.Sprint(n), caps)
		require.NoError(t, err)
		return g
	}
	burst := func(c Cap) (got int) {
		for range 100 {
			if !take(c).OK() {
				return got
			}
			got++
		}
		return got
	}
	step := func(d time.Duration) { w.set(w.at.Add(d)) }

	require.True(t, take(user).OK(), "the first use ever is no loss")
	step(10 * time.Second)
	require.Equal(t, 16, burst(rate))

	s.Close() // with all its data
	s, err = redismem.Start(addr)
	require.NoError(t, err)
	require.Equal(t, 0, burst(rate), "cold is empty")
	require.Equal(t, time.Hour, take(user).Wait, "who has had how much is not known")
	step(600 * time.Millisecond)
	require.LessOrEqual(t, burst(rate), 16)
	step(time.Hour)
	require.True(t, take(user).OK())

	s.Close()
	require.Equal(t, 0, burst(rate), "others may not have noticed yet")
	for range 20 {
		step(100 * time.Millisecond)
		_ = take(rate)
	}
	step(time.Second)
	require.Equal(t, 2, burst(rate), "an eighth of the burst")
	require.Equal(t, windowAway, take(user).Wait)
	step(100 * time.Millisecond)
	require.Equal(t, 1, burst(rate), "an eighth of the rate")

	s, err = redismem.Start(addr)
	require.NoError(t, err)
	step(time.Second)
	require.Equal(t, 0, burst(rate), "the others may still live on their shares")
	step(time.Second)
	require.Positive(t, burst(rate))
}
