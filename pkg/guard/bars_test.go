package guard_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"tidegate/pkg/guard"
	"tidegate/pkg/redis"
)

// The world of the bars: a native system of 100 resources that takes 60 ms and
// slows down in proportion above 40 calls at once; users who ask again as soon as
// they are answered.
const (
	resources = 100
	nodes     = 3
	pace      = 60 * time.Millisecond
	bearable  = 40
)

// slowing is the native system. It notes how many calls run, in all and per
// resource, before and after a moment.
type slowing struct {
	mu        sync.Mutex
	in        int
	perKey    [resources]int
	calls     int
	peak      int // at once
	steady    int // the same after settle
	steadyKey int // of one resource, after settle
	settle    time.Time
}

func (s *slowing) call(ctx context.Context, key int) ([]byte, error) {
	s.mu.Lock()
	s.in++
	s.calls++
	s.perKey[key]++
	s.peak = max(s.peak, s.in)
	if time.Now().After(s.settle) {
		s.steady, s.steadyKey = max(s.steady, s.in), max(s.steadyKey, s.perKey[key])
	}
	d := time.Duration(float64(pace) * math.Max(1, float64(s.in)/bearable))
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.in--
		s.perKey[key]--
		s.mu.Unlock()
	}()
	select {
	case <-time.After(d):
		return strconv.AppendInt(nil, time.Now().UnixNano(), 10), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// seen is what the users saw.
type seen struct {
	native   *slowing
	how      map[guard.How]int
	errors   int
	first    error
	times    []time.Duration // of requests after settle
	ages     []time.Duration
	requests int
}

func quantile(of []time.Duration, q float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Clone(of)
	slices.Sort(sorted)
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Round(time.Millisecond)
}

// crowd lets users ask for d, through the guards or, without any, directly.
func crowd(gs []*guard.Guard, users int, d time.Duration) *seen {
	begin := time.Now()
	o := &seen{native: &slowing{settle: begin.Add(d / 2)}, how: map[guard.How]int{}}
	ctx, stop := context.WithDeadline(context.Background(), begin.Add(d))
	defer stop()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for u := range users {
		wg.Go(func() {
			dice := rand.New(rand.NewPCG(uint64(u), 1))
			for ctx.Err() == nil {
				key, sent := dice.IntN(resources), time.Now()
				fetch := func(ctx context.Context) ([]byte, error) { return o.native.call(ctx, key) }
				var r guard.Result
				var err error
				if gs == nil {
					r.Value, err = fetch(context.Background())
					r.How = guard.Pass
				} else {
					r, err = gs[u%len(gs)].Do(context.Background(), strconv.Itoa(key), fetch)
				}
				now := time.Now()
				mu.Lock()
				o.requests++
				o.how[r.How]++
				if err != nil {
					o.errors++
					o.first = cmp.Or(o.first, err)
				} else if sent.After(o.native.settle) {
					read, _ := strconv.ParseInt(string(r.Value), 10, 64)
					o.times, o.ages = append(o.times, now.Sub(sent)), append(o.ages, now.Sub(time.Unix(0, read)))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return o
}

// bars prints a table of what was promised and what was measured, in the form
// that deployments/dev/bars gathers.
type bars struct {
	t     *testing.T
	lines []string
}

func (b *bars) add(name, promised, measured string, ok bool) {
	verdict := "holds"
	if !ok {
		verdict = "FAILS"
		b.t.Errorf("%s: promised %s, measured %s", name, promised, measured)
	}
	b.lines = append(b.lines, strings.Join([]string{"BAR", name, promised, measured, verdict}, "\t"))
}

func (b *bars) print() { b.t.Log("\n" + strings.Join(b.lines, "\n")) }

// TestBars measures B0.1, B0.2, B0.4, B0.5 and B0.9 to B0.11 in one run and one
// process; the other bars are tests of their own (B0.3 TestFigure6 and Figure 6 of
// `tidegate figures`, B0.6 TestNoAnswerIsOlderThanItsLife, B0.7 TestAHolderThatDies,
// B0.8 TestModel). TestGuardBars in test/e2e has separate processes.
// It takes a quiet machine for a minute, so it runs only when it is asked to:
// TIDEGATE_TEST_GUARD_BARS=2s is the time of each stretch.
func TestBars(t *testing.T) {
	d, err := time.ParseDuration(os.Getenv("TIDEGATE_TEST_GUARD_BARS"))
	if err != nil {
		t.Skip("set TIDEGATE_TEST_GUARD_BARS to the time of each stretch, for example 5s")
	}
	b := &bars{t: t}
	defer b.print()
	open, addr := opener(t), engine(t)
	number := 0
	fleet := func(open func(string) *redis.Client, addr string, change func(*guard.Config)) (gs []*guard.Guard, done func()) {
		number++
		cfg := guard.DefaultConfig()
		// A machine that also runs the users is not the network of a data centre: a
		// budget that only a real fault exceeds.
		cfg.Backend, cfg.Budget, cfg.WaitMax, cfg.Nodes = fmt.Sprint("bars-", number), time.Second, 10*time.Second, nodes
		change(&cfg)
		for range nodes {
			g, err := guard.New(cfg, guard.Deps{Redis: open(addr), Log: zaptest.NewLogger(t)})
			require.NoError(t, err)
			g.Flush(t.Context())
			gs = append(gs, g)
		}
		return gs, func() {
			for _, g := range gs {
				g.Close()
			}
		}
	}
	plain := func(*guard.Config) {}

	for _, users := range []int{100, 400, 800, 1600} {
		bare := crowd(nil, users, d)
		gs, done := fleet(open, addr, plain)
		o := crowd(gs, users, d)
		done()
		ttls := int(math.Ceil(d.Seconds()/2)) + 1
		n := fmt.Sprintf("%d users", users)
		b.add("B0.1", n+": steady native concurrency ≤ 100, 1 per resource", fmt.Sprintf("%d, %d per resource (without: %d, %d)", o.native.steady, o.native.steadyKey, bare.native.steady, bare.native.steadyKey),
			o.native.steady <= resources && o.native.steadyKey <= 1)
		b.add("B0.2", fmt.Sprintf("%s: fetches after the switch ≤ R·(⌈D/T⌉+1) = %d", n, resources*ttls), fmt.Sprintf("%d of %d native calls (without: %d)", o.how[guard.Lease], o.native.calls, bare.native.calls),
			o.how[guard.Lease] <= resources*ttls)
		b.add("B0.1", n+": nobody is refused", fmt.Sprintf("%d errors of %d requests, p50 %v p95 %v (without: %d requests, p50 %v p95 %v)", o.errors, o.requests, quantile(o.times, 0.5), quantile(o.times, 0.95),
			bare.requests, quantile(bare.times, 0.5), quantile(bare.times, 0.95)), o.errors == 0)
		if users == 800 {
			b.add("B0.11", "800 users: p95 of data age at delivery ≤ T = 2s", fmt.Sprintf("%v (without, since the call began: %v)", quantile(o.ages, 0.95), quantile(bare.times, 0.95)), quantile(o.ages, 0.95) <= 2*time.Second)
			open2, done2 := fleet(open, addr, func(c *guard.Config) { c.Gate, c.Nodes = 100000, nodes })
			noGate := crowd(open2, users, d)
			done2()
			b.add("B0.5", "800 users: peak at the switch ≤ gate + R = 150", fmt.Sprintf("%d (without the gate: %d)", o.native.peak, noGate.native.peak), o.native.peak <= 150)
		}
	}

	// B0.4: the ordinary system leaves the class of 2.5 s at 2.5 s ÷ 60 ms × 40 users.
	const ordinary = 1750
	bare := crowd(nil, ordinary, max(d, 6*time.Second))
	gs, done := fleet(open, addr, func(c *guard.Config) { c.MaxWaiting = 100000 })
	o := crowd(gs, 3*ordinary, max(d, 6*time.Second))
	done()
	b.add("B0.4", "p95 ≤ 2.5s with 3 × the users that the ordinary system bears", fmt.Sprintf("%d users %v; ordinary: %d users %v", 3*ordinary, quantile(o.times, 0.95), ordinary, quantile(bare.times, 0.95)),
		quantile(o.times, 0.95) <= 2500*time.Millisecond && quantile(bare.times, 0.95) > 2500*time.Millisecond && o.errors == 0)

	barAway(t, b, fleet, d)

	// B0.10: below the threshold, in turns.
	gs, done = fleet(open, addr, plain)
	with, without := 0, 0
	for range 4 {
		without += crowd(nil, 24, d/2).requests
		with += crowd(gs, 24, d/2).requests
	}
	passing := gs[0].View().Mode
	done()
	ratio := float64(with) / float64(without)
	b.add("B0.10", "below the threshold: throughput ≥ 0.95 × without", fmt.Sprintf("%.3f (%d against %d requests, mode %s)", ratio, with, without, passing), ratio >= 0.95 && passing == "pass")
}

// barAway is B0.9: Redis hangs in the middle of a stretch.
func barAway(t *testing.T, b *bars, fleet func(func(string) *redis.Client, string, func(*guard.Config)) ([]*guard.Guard, func()), d time.Duration) {
	p := proxy(t, engine(t))
	gs, done := fleet(opener(t), p.Addr(), func(c *guard.Config) { c.Budget = 200 * time.Millisecond })
	defer done()
	back := time.Duration(-1)
	var wg sync.WaitGroup
	wg.Go(func() {
		<-time.After(d / 2)
		p.Hang(true)
		<-time.After(d)
		p.Hang(false)
		since := time.Now()
		for time.Since(since) < 5*time.Second {
			if gs[0].View().Shared && gs[1].View().Shared && gs[2].View().Shared {
				back = time.Since(since)
				return
			}
			<-time.After(5 * time.Millisecond)
		}
	})
	o := crowd(gs, 400, 3*d)
	wg.Wait()
	require.Positive(t, p.Held(), "the fault happened")
	b.add("B0.9", fmt.Sprintf("Redis hangs for %v: no error, native concurrency ≤ gate = 50", d), fmt.Sprintf("%d errors of %d requests (%d local), peak %d; first error: %v", o.errors, o.requests, o.how[guard.Local], o.native.peak, o.first),
		o.errors == 0 && o.native.peak <= 50 && o.how[guard.Local] > 0)
	b.add("B0.9", "together again ≤ 2s after it is back", back.Round(time.Millisecond).String(), back >= 0 && back <= 2*time.Second)
}
