package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidegate/pkg/redis"
	"tidegate/pkg/sqldb/sqldbtest"
)

// jointRedis is the address of a Redis: the real one if the environment names it.
func jointRedis(t testing.TB) string {
	if addr := os.Getenv("TIDEGATE_TEST_REDIS"); addr != "" {
		return addr
	}
	return startRedis(t).Addr()
}

func jointClient(t testing.TB, addr, prefix string) *redis.Client {
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Timeout, cfg.Prefix = []string{addr}, 2*time.Second, prefix
	c, err := redis.Open(cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// joints are nodes with one clock.
func joints(t testing.TB, n int, w *watch) []*Joint {
	d, err := NewDays(t.Context(), sqldbtest.OpenSQLite(t), n, 0, nil)
	require.NoError(t, err)
	addr, prefix := jointRedis(t), fmt.Sprintf("test:joint:%d", time.Now().UnixNano())
	var out []*Joint
	for range n {
		j, err := NewJoint(jointClient(t, addr, prefix), d.Births(), 8, nil)
		require.NoError(t, err)
		j.clock, j.now = w.now, w.now
		out = append(out, j)
	}
	return out
}

func aRate(name string, perMinute float64, burst int) Cap {
	return Cap{Name: name, Rate: Limit{Rate: perMinute / 60, Burst: burst}}
}

// caller is one piece of work after the other, from a node.
type caller struct {
	node *Joint
	at   time.Time
}

// play lets callers take until end and gives when they could. Each comes back when
// it was told, a little late.
func play(t testing.TB, w *watch, nodes []*Joint, each int, caps []Cap, end time.Time, late time.Duration) (at []int64) {
	r := rand.New(rand.NewPCG(1, 2))
	var all []*caller
	for _, n := range nodes {
		for range each {
			all = append(all, &caller{n, w.at})
		}
	}
	for i := 0; ; i++ {
		c := slices.MinFunc(all, func(a, b *caller) int { return a.at.Compare(b.at) })
		if c.at.After(end) {
			return at
		}
		w.set(c.at)
		g, err := c.node.Take(t.Context(), "shop", fmt.Sprint(i), caps)
		require.NoError(t, err)
		if g.OK() {
			at = append(at, c.at.UnixMicro())
		} else {
			require.Positive(t, g.Wait)
			c.at = c.at.Add(g.Wait.Truncate(time.Microsecond) + time.Microsecond)
		}
		if late > 0 {
			c.at = c.at.Add(time.Duration(r.Int64N(int64(late))))
		}
	}
}

// densest is the largest number in any window [t, t+w).
func densest(at []int64, w time.Duration) (n int) {
	from := 0
	for i, x := range at {
		for x-at[from] >= w.Microseconds() {
			from++
		}
		n = max(n, i-from+1)
	}
	return n
}

// 1,019 a minute of an application is 1,019 in every minute, over two nodes, also
// with callers that come late and with one that is killed.
func TestJointRateIsExact(t *testing.T) {
	begin := time.UnixMicro(1_790_000_000_000_000)
	fmt.Fprintf(os.Stdout, "joint rate of 1019 a minute, two nodes\n  %-44s %-9s %s\n", "bar", "measured", "verdict")
	row := func(bar string, got int, ok bool) {
		verdict := "ok"
		if !ok {
			verdict = "MISSED"
		}
		fmt.Fprintf(os.Stdout, "  %-44s %-9d %s\n", bar, got, verdict)
		require.True(t, ok, "%s: %d", bar, got)
	}
	cases := []struct {
		name  string
		burst int
		late  time.Duration
	}{{"to the microsecond", 1, 0}, {"up to 20 ms late", 4, 20 * time.Millisecond}}
	callers, first, second := 6, 75*time.Second, 65*time.Second
	if os.Getenv("TIDEGATE_TEST_CAPS_FULL") == "" {
		cases, callers, first, second = cases[:1], 2, 4*time.Second, 12*time.Second
	}
	for _, c := range cases {
		w := &watch{at: begin}
		nodes := joints(t, 2, w)
		caps := []Cap{aRate("app.crm", 1019, c.burst)}
		at := play(t, w, nodes, callers, caps, begin.Add(first), c.late)
		w.set(begin.Add(first))
		end := begin.Add(first + second)
		at = append(at, play(t, w, nodes[:1], callers, caps, end, c.late)...) // the other is killed
		row(c.name+": any minute at most 1018+burst", densest(at, time.Minute), densest(at, time.Minute) <= 1018+c.burst)
		row(c.name+": any 10 s at most 169+burst", densest(at, 10*time.Second), densest(at, 10*time.Second) <= 169+c.burst)
		row(c.name+": any second at most 16+burst", densest(at, time.Second), densest(at, time.Second) <= 16+c.burst)
		stretch, used := second-2*time.Second, 0
		for _, x := range at {
			if x >= end.Add(-stretch).UnixMicro() {
				used++
			}
		}
		part := int(100 * float64(used) / (stretch.Seconds() * 1019 / 60))
		row(c.name+": per cent used after it, at least 97", part, part >= 97)
	}
}

// Windows against their definition, with work that goes again and work that is given
// back: never more than Most different ones in a period, refused only if there is no
// room, and told to the microsecond when there is.
func TestJointWindowIsExact(t *testing.T) {
	w := &watch{at: time.UnixMicro(1_790_000_000_000_000)}
	nodes := joints(t, 2, w)
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		most := rapid.IntRange(1, 4).Draw(t, "most")
		period := time.Duration(rapid.Int64Range(1_000_000, 5_000_000).Draw(t, "period")) * time.Microsecond
		caps := []Cap{{Name: fmt.Sprintf("user.%d", round), Window: Window{Most: most, Period: period}}}
		type sent struct {
			who string
			at  int64
		}
		var have []sent
		next := 0
		for range rapid.IntRange(5, 25).Draw(t, "steps") {
			w.set(w.at.Add(time.Duration(rapid.Int64Range(0, 1_500_000).Draw(t, "pause")) * time.Microsecond))
			at := w.at.UnixMicro()
			have = slices.DeleteFunc(have, func(s sent) bool { return at-s.at >= period.Microseconds() })
			who, known := fmt.Sprint(next), false
			if len(have) > 0 && rapid.IntRange(0, 4).Draw(t, "again") == 0 {
				who, known = have[rapid.IntRange(0, len(have)-1).Draw(t, "which")].who, true
			} else {
				next++
			}
			g, err := nodes[rapid.IntRange(0, 1).Draw(t, "node")].Take(context.Background(), "shop", who, caps)
			require.NoError(t, err)
			room := known || len(have) < most
			if g.OK() != room {
				t.Fatalf("%d of %d in the period, known %v: got %v", len(have), most, known, g.OK())
			}
			if !room {
				free := have[len(have)-most].at + period.Microseconds() - at
				if g.Wait.Microseconds() != free {
					t.Fatalf("told to wait %v, room is in %d µs", g.Wait, free)
				}
				continue
			}
			if rapid.IntRange(0, 3).Draw(t, "back") == 0 {
				g.Back(context.Background())
				continue
			}
			if !known {
				have = append(have, sent{who, at})
			}
		}
	})
}

// All caps count or none: work that its user's window refuses takes nothing from the
// rate, and what is given back leaves no trace while nobody came after.
func TestJointCapsCountTogether(t *testing.T) {
	w := &watch{at: time.UnixMicro(1_790_000_000_000_000)}
	j := joints(t, 1, w)[0]
	rate, user := aRate("template.bill", 60, 2), Cap{Name: "user.a", Window: Window{Most: 1, Period: time.Hour}}
	take := func(who string, caps ...Cap) Grant {
		g, err := j.Take(t.Context(), "shop", who, caps)
		require.NoError(t, err)
		return g
	}
	require.Equal(t, 0, take("0", rate).Refused, "a rate begins without burst")
	w.set(w.at.Add(10 * time.Second))
	require.True(t, take("1", rate, user).OK())
	g := take("2", rate, user)
	require.Equal(t, []any{1, time.Hour}, []any{g.Refused, g.Wait})
	g = take("3", rate)
	require.True(t, g.OK(), "the burst is two and one was taken")
	require.False(t, take("4", rate).OK())
	g.Back(t.Context())
	g.Back(t.Context())
	require.True(t, take("5", rate).OK())
	require.False(t, take("6", rate).OK(), "given back twice is given back once")
}
