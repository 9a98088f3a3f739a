package figures

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"tidegate/app/figures/chart"
	"tidegate/pkg/guard"
)

// concurrencyScene is Figure 7: users who ask again as soon as they are answered.
type concurrencyScene struct {
	users     []int
	resources int
	pace      time.Duration
	bearable  int
	threshold int64
	gate      int
	ttl       time.Duration
	span      time.Duration
	rest      time.Duration // between an answer and the next request
}

func (s *stage) concurrencyScene() concurrencyScene {
	sc := concurrencyScene{
		users: []int{10, 20, 40, 70, 100, 200, 400, 800, 1600}, resources: 100, pace: 60 * time.Millisecond, bearable: 40,
		threshold: 500, gate: 50, ttl: 2 * time.Second, span: s.span,
	}
	if s.Short {
		sc.users, sc.resources, sc.threshold, sc.gate, sc.ttl, sc.span = []int{4, 40, 120}, 20, 150, 15, 400*time.Millisecond, 1200*time.Millisecond
		sc.rest = time.Millisecond // on a clock that stands still while somebody runs, somebody must rest
	}
	return sc
}

// crowded is what the system behind met.
type crowded struct {
	steady, perKey, peak, calls int
	requests                    int64
	errors                      int64
	protected                   bool
}

func concurrencyFigure(ctx context.Context, s *stage) (drawing, error) {
	sc := s.concurrencyScene()
	d := drawing{header: []string{"users", "without_at_once", "without_of_one_resource", "without_calls", "with_at_once", "with_of_one_resource", "with_calls", "with_answers", "protected", "peak_at_the_switch"}}
	bare, kept := chart.Series{Name: "without a guard"}, chart.Series{Name: "with the guard"}
	without, with := make([]crowded, len(sc.users)), make([]crowded, len(sc.users))
	err := s.each(len(sc.users), func(i int) (err error) {
		if without[i], err = sc.run(ctx, nil, sc.users[i]); err != nil {
			return err
		}
		f, err := s.fleet(ctx, func(c *guard.Config) { c.Threshold, c.TTL, c.Gate = sc.threshold, sc.ttl, sc.gate })
		if err != nil {
			return err
		}
		defer f.close()
		with[i], err = sc.run(ctx, f, sc.users[i])
		s.progress("%5d users: %4d calls at once without, %3d with (%d of one resource)", sc.users[i], without[i].steady, with[i].steady, with[i].perKey)
		return err
	})
	if err != nil {
		return d, err
	}
	for i, n := range sc.users {
		a, b := without[i], with[i]
		bare.Points = append(bare.Points, chart.Point{X: float64(n), Y: float64(a.steady)})
		kept.Points = append(kept.Points, chart.Point{X: float64(n), Y: float64(b.steady)})
		d.rows = append(d.rows, []any{n, a.steady, a.perKey, a.calls, b.steady, b.perKey, b.calls, b.requests, b.protected, b.peak})
	}
	sc.claims(&d, without, with)
	d.chart = chart.Chart{
		Note: fmt.Sprintf("%d resources, calls of %v, slower above %d at once; threshold %d/s, gate %d, T = %v, %d nodes; most in the second half of %v",
			sc.resources, sc.pace, sc.bearable, sc.threshold, sc.gate, sc.ttl, s.nodes(), sc.span),
		X: chart.Axis{Label: "users at once", Log: true}, Y: chart.Axis{Label: "calls at the system behind, at once", Log: true},
		Series: []chart.Series{bare, kept},
		Marks: []chart.Mark{
			{Value: float64(sc.resources), Label: fmt.Sprintf("resources R = %d", sc.resources)},
			{Value: float64(sc.threshold) * sc.pace.Seconds(), Vertical: true, Label: fmt.Sprintf("threshold %d/s", sc.threshold)},
		},
	}
	return d, nil
}

// run lets users ask, through the guards or, without any, directly.
func (sc concurrencyScene) run(ctx context.Context, f *fleet, users int) (crowded, error) {
	begin := time.Now()
	n := newNative(sc.pace, sc.bearable, begin.Add(sc.span/2))
	var out crowded
	var requests, errs atomic.Int64
	var wg sync.WaitGroup
	for u := range users {
		wg.Go(func() {
			dice := rand.New(rand.NewPCG(uint64(u), 7))
			for time.Since(begin) < sc.span && ctx.Err() == nil {
				key := strconv.Itoa(dice.IntN(sc.resources))
				fetch := func(ctx context.Context) ([]byte, error) { return n.call(ctx, key) }
				var err error
				if f == nil {
					_, err = fetch(ctx)
				} else {
					_, err = f.of(u).Do(ctx, key, fetch)
				}
				requests.Add(1)
				if err != nil {
					errs.Add(1)
				}
				pause(ctx, sc.rest)
			}
		})
	}
	wg.Wait()
	out.requests, out.errors = requests.Load(), errs.Load()
	out.steady, out.perKey, out.peak, out.calls = n.steady, n.steadyKey, n.peak, n.calls
	out.protected = f != nil && f.protects()
	return out, ctx.Err()
}

// claims: without a guard the calls are the users; with it they are until
// protection begins, and then at most the resources, one of each.
func (sc concurrencyScene) claims(d *drawing, without, with []crowded) {
	straight, passing, bent, refused := true, 0, 0, int64(0)
	most, perKey, calls := 0, 0, 0
	for i, n := range sc.users {
		straight = straight && without[i].steady >= n*9/10 && without[i].steady <= n
		refused += with[i].errors
		if !with[i].protected {
			passing++
			straight = straight && with[i].steady <= n
			continue
		}
		bent++
		most, perKey = max(most, with[i].steady), max(perKey, with[i].perKey)
		calls = max(calls, with[i].calls)
	}
	d.timed(straight, "B0.1 without a guard the calls at once are the users", "%d of %d users at the end", without[len(without)-1].steady, sc.users[len(sc.users)-1])
	d.timed(passing > 0 && bent > 0, "B0.1 with it, a straight line and then a bend", "%d points pass, %d are protected", passing, bent)
	d.claim(bent > 0 && most <= min(sc.resources, sc.gate), fmt.Sprintf("B0.1 calls at once ≤ resources = %d and ≤ gate = %d", sc.resources, sc.gate), "at most %d", most)
	d.claim(bent > 0 && perKey <= 1, "B0.1 one call of a resource at once", "at most %d", perKey)
	d.claim(refused == 0, "nobody is refused", "%d errors", refused)
}
