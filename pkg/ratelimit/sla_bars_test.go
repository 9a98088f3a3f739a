package ratelimit_test

import (
	"context"
	"fmt"
	"os"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/slice"
)

// bar is one line of the table that the bars of paper 004 are printed as.
type bar struct {
	name, want, got string
	ok              bool
}

func show(t *testing.T, bars []bar) {
	t.Logf("%-58s %-26s %-26s %s", "bar", "wanted", "measured", "verdict")
	for _, b := range bars {
		verdict := "met"
		if !b.ok {
			verdict = "MISSED"
		}
		t.Logf("%-58s %-26s %-26s %s", b.name, b.want, b.got, verdict)
		if !b.ok {
			t.Errorf("%s: wanted %s, got %s", b.name, b.want, b.got)
		}
	}
}

// slaLoad is three nodes that call as fast as a plan says.
type slaLoad struct {
	limit  int64
	period time.Duration
	mode   slice.Mode
	for_   time.Duration
	rate   float64 // calls of all nodes in a second; 0 is as fast as it goes, in bursts
}

// run gives the server's times of the admitted calls.
func (l slaLoad) run(t *testing.T, addr string) []time.Time {
	name := fmt.Sprintf("bar%d", time.Now().UnixNano())
	rule := slice.Rule{Limit: l.limit, Period: l.period, Slices: 10, Mode: l.mode}
	var mu sync.Mutex
	var at []time.Time
	ctx, cancel := context.WithTimeout(t.Context(), l.for_)
	defer cancel()
	var wg sync.WaitGroup
	for range 3 {
		c := slice.New(slaClient(t, addr, name))
		wg.Go(func() {
			pace := time.Millisecond
			if l.rate > 0 {
				pace = time.Duration(3 * float64(time.Second) / l.rate)
			}
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for ctx.Err() == nil {
				v, err := c.Take(ctx, "sla.bar", 1, slice.Level{Scope: "a", Rule: rule})
				if err == nil && v.OK {
					mu.Lock()
					at = append(at, v.At)
					mu.Unlock()
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	wg.Wait()
	sort.Slice(at, func(i, j int) bool { return at[i].Before(at[j]) })
	return at
}

// worst is the most in any window of a length, over half-open windows.
func worst(at []time.Time, period time.Duration) int {
	most, j := 0, 0
	for i := range at {
		for at[i].Sub(at[j]) >= period {
			j++
		}
		most = max(most, i-j+1)
	}
	return most
}

// B4.8: no window of length P holds more than L, and the limit is used. B4.10: a
// caller at three times its limit gets at least 85 % of it, since refused calls do
// not count. With TIDEGATE_TEST_SLA_BARS the paper's 20/s and 100/s over 20 s on a
// real Redis; otherwise a short form by the bound alone.
func TestBarsOfTheSLA(t *testing.T) {
	addr, long := os.Getenv("TIDEGATE_TEST_REDIS"), os.Getenv("TIDEGATE_TEST_SLA_BARS") != ""
	if addr == "" {
		s, _ := slaStore(t)
		addr = s.Addr()
	}
	loads := []slaLoad{{100, 200 * time.Millisecond, slice.Strict, 700 * time.Millisecond, 0}}
	if long {
		loads = []slaLoad{
			{20, time.Second, slice.Strict, 20 * time.Second, 60}, {100, time.Second, slice.Strict, 20 * time.Second, 300},
			{100, time.Second, slice.Strict, 20 * time.Second, 0}, {100, time.Second, slice.Weighted, 20 * time.Second, 300},
		}
	}
	var bars []bar
	for _, l := range loads {
		at := l.run(t, addr)
		what := fmt.Sprintf("%s %d per %s, 3 nodes at %.0f/s (0: in bursts)", l.mode, l.limit, l.period, l.rate)
		if l.mode == slice.Strict {
			most := worst(at, l.period)
			bars = append(bars, bar{"B4.8 most in any window: " + what, fmt.Sprintf("<= %d", l.limit), fmt.Sprint(most), most > 0 && int64(most) <= l.limit})
		}
		if long {
			use := float64(len(at)) / (float64(l.limit) * l.for_.Seconds() / l.period.Seconds())
			least := 10.0/11 - 0.03
			bars = append(bars, bar{"B4.8 use: " + what, fmt.Sprintf(">= %.1f %%", 100*least), fmt.Sprintf("%.1f %%", 100*use), use >= least})
			if l.rate == 3*float64(l.limit) {
				bars = append(bars, bar{"B4.10 at 3 x the limit: " + what, ">= 85 %", fmt.Sprintf("%.1f %%", 100*use), use >= 0.85})
			}
		}
	}
	show(t, append(append(bars, papersMode()...), atomicLevels(t, addr)...))
}

// atomicLevels is B4.9: under contention the sums of users, apps and developer are
// equal, to the last one.
func atomicLevels(t *testing.T, addr string) []bar {
	c := slice.New(slaClient(t, addr, "atomic"))
	tag := fmt.Sprintf("sla.atomic%d", time.Now().UnixNano())
	rule := func(n int64) slice.Rule {
		return slice.Rule{Limit: n, Period: time.Hour, Slices: 10, Mode: slice.Strict}
	}
	level := func(name string, limit int64) slice.Level { return slice.Level{Scope: name, Rule: rule(limit)} }
	look := func(name string) int64 {
		v, err := c.Take(t.Context(), tag, 0, level(name, 0))
		require.NoError(t, err)
		return v.Used[0]
	}
	const callers, each = 24, 40
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			app := fmt.Sprintf("a:%d", i%3)
			for k := range each {
				_, _ = c.Take(t.Context(), tag, 1, level("d", 300), level(app, 120), level(fmt.Sprintf("%s:u:%d", app, (i+k)%5), 30))
			}
		})
	}
	wg.Wait()
	var apps, users int64
	for a := range 3 {
		apps += look(fmt.Sprintf("a:%d", a))
		for u := range 5 {
			users += look(fmt.Sprintf("a:%d:u:%d", a, u))
		}
	}
	dev := look("d")
	return []bar{{"B4.9 sums of users, apps and developer after 960 calls", "equal, > 0, <= 300", fmt.Sprintf("%d = %d = %d", users, apps, dev), users == apps && apps == dev && dev > 0 && dev <= 300}}
}

// papersMode is the last part of B4.8: the paper's own sum lets twice the limit into
// one period (F6), so the bound that strict is held to is a real one.
func papersMode() []bar {
	begin := time.UnixMicro(1_700_000_000_000_000).Add(99 * time.Millisecond)
	within := func(m slice.Mode) (n int) {
		w := slice.NewWindow(slice.Rule{Limit: 20, Period: time.Second, Slices: 10, Mode: m})
		for _, at := range []time.Time{begin, begin.Add(902 * time.Millisecond)} { // less than one period apart
			for w.Take(at, 1) {
				n++
			}
		}
		return n
	}
	paper, strict := within(slice.Paper), within(slice.Strict)
	return []bar{{"B4.8 most in one period, worst arrivals, 20/s", "paper 40, strict 20", fmt.Sprintf("paper %d, strict %d", paper, strict), paper == 40 && strict == 20}}
}
