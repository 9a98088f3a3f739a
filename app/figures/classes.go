package figures

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"tidegate/app/figures/chart"
	"tidegate/pkg/guard"
)

// classesScene is Figure 8: users who look at seats again and again, with a pause
// to think, and once in a while choose some. To look can be shared; to choose is
// a write that always goes to the system behind, through the gate.
type classesScene struct {
	ordinary, guarded []int // numbers of users, rising
	classes           []time.Duration
	resources         int
	pace              time.Duration
	bearable          int
	threshold         int64
	ttl               time.Duration
	think             time.Duration
	looks             int // to one choice
	// span is how long the users of the guarded system are at it, half of it those
	// of the ordinary one. Too many choices pile up over about the time in which
	// everybody has chosen once, looks × think, so it takes that long to see it.
	span  time.Duration
	ratio float64 // that the last class is to show
}

func (s *stage) classesScene() classesScene {
	sc := classesScene{
		ordinary: []int{75, 100, 125, 150, 200, 250, 300, 400, 500, 600, 700}, guarded: []int{250, 500, 1000, 1500, 1750, 2000, 2250, 2500, 2750, 3000, 3500, 4000, 4500},
		classes:   []time.Duration{100 * time.Millisecond, time.Second, 2500 * time.Millisecond},
		resources: 100, pace: 60 * time.Millisecond, bearable: 12, threshold: 150, ttl: 2 * time.Second, think: 500 * time.Millisecond, looks: 19,
		span: 5 * s.span, ratio: 3,
	}
	if s.Short {
		// The ordinary system beyond the last class, the new one with three times as
		// many users within it: that is the ratio, in two runs.
		sc.ordinary, sc.guarded, sc.classes = []int{30, 140}, []int{30, 420}, []time.Duration{800 * time.Millisecond}
		sc.resources, sc.pace, sc.bearable, sc.threshold, sc.ttl = 5, 30*time.Millisecond, 3, 75, 600*time.Millisecond
		sc.think, sc.span = 300*time.Millisecond, 7*time.Second
	}
	return sc
}

// The two interfaces.
const (
	look = iota
	choose
)

var interfaces = [2]string{"look at seats", "choose seats"}

// systems are the two that are compared.
var systems = [2]string{"ordinary", "guarded"}

// served is what one number of users met: the 95th percentile of each interface.
type served struct {
	users  int
	p95    [2]time.Duration
	errors int
}

// sweep is one system over all numbers of users.
type sweep []served

// within is how many users a class holds: by a straight line between the last
// number whose 95th percentile is within it and the next. more says that no
// larger number was tried.
func (w sweep) within(what int, class time.Duration) (users int, more bool) {
	for i, p := range w {
		if p.p95[what] <= class {
			continue
		}
		if i == 0 {
			return 0, false
		}
		before := w[i-1]
		part := float64(class-before.p95[what]) / float64(p.p95[what]-before.p95[what])
		return before.users + int(part*float64(p.users-before.users)), false
	}
	return w[len(w)-1].users, true
}

func classesFigure(ctx context.Context, s *stage) (drawing, error) {
	sc := s.classesScene()
	d := drawing{header: []string{"system", "users", "look_p95_s", "choose_p95_s", "errors"}}
	ordinary, err := sc.sweep(ctx, s, systems[0], sc.ordinary)
	if err != nil {
		return d, err
	}
	guarded, err := sc.sweep(ctx, s, systems[1], sc.guarded)
	if err != nil {
		return d, err
	}
	for i, w := range []sweep{ordinary, guarded} {
		for _, p := range w {
			d.rows = append(d.rows, []any{systems[i], p.users, p.p95[look], p.p95[choose], p.errors})
		}
	}
	sc.claims(&d, ordinary, guarded)
	d.chart = chart.Chart{
		Note: fmt.Sprintf("95th percentile; %d looks and a choice, pauses of %v; calls of %v, slower above %d at once; threshold %d/s, T = %v", sc.looks, sc.think, sc.pace, sc.bearable, sc.threshold, sc.ttl),
		X:    chart.Axis{Label: "answered within"}, Y: chart.Axis{Label: "users"},
	}
	for _, c := range sc.classes {
		d.chart.Groups = append(d.chart.Groups, fmt.Sprintf("%g s", c.Seconds()))
	}
	for what, name := range interfaces {
		for i, w := range []sweep{ordinary, guarded} {
			d.chart.Series = append(d.chart.Series, chart.Series{Name: name + ", " + systems[i], Points: sc.bars(w, what)})
		}
	}
	return d, nil
}

func (sc classesScene) bars(w sweep, what int) (out []chart.Point) {
	for _, class := range sc.classes {
		n, more := w.within(what, class)
		text := strconv.Itoa(n)
		if more {
			text = "≥ " + text
		}
		out = append(out, chart.Point{Y: float64(n), Text: text})
	}
	return out
}

// sweep gives what each number of users met. Users of the ordinary system only
// wait, so that all numbers are run at the same time; those of the guarded one
// share the machine with the guard and come one number after the other, until
// both interfaces have left the last class.
func (sc classesScene) sweep(ctx context.Context, s *stage, system string, numbers []int) (sweep, error) {
	w := make(sweep, len(numbers))
	last := sc.classes[len(sc.classes)-1]
	if system == systems[0] || s.Short {
		return w, together(len(numbers), func(i int) (err error) {
			w[i], err = sc.point(ctx, s, system, numbers[i])
			return err
		})
	}
	for i, users := range numbers {
		var err error
		if w[i], err = sc.point(ctx, s, system, users); err != nil {
			return nil, err
		}
		if w[i].p95[look] > last && w[i].p95[choose] > last {
			return w[:i+1], nil
		}
	}
	return w, nil
}

func (sc classesScene) point(ctx context.Context, s *stage, system string, users int) (served, error) {
	var f *fleet
	if system == systems[1] {
		var err error
		if f, err = s.fleet(ctx, func(c *guard.Config) {
			c.Threshold, c.TTL, c.Gate, c.MaxWaiting = sc.threshold, sc.ttl, sc.bearable, 100000
		}); err != nil {
			return served{}, err
		}
		defer f.close()
	}
	p, err := sc.run(ctx, f, users)
	s.progress("%-8s %5d users: look %7v, choose %7v", system, users, p.p95[look].Round(time.Millisecond), p.p95[choose].Round(time.Millisecond))
	return p, err
}

// run lets users look and choose and gives what those saw who asked in the last
// third; their answers are waited for.
func (sc classesScene) run(ctx context.Context, f *fleet, users int) (served, error) {
	begin, span := time.Now(), sc.span
	if f == nil {
		span /= 2
	}
	n := newNative(sc.pace, sc.bearable, begin)
	out := served{users: users}
	var mu sync.Mutex
	var took [2][]time.Duration
	var wg sync.WaitGroup
	for u := range users {
		wg.Go(func() {
			dice := rand.New(rand.NewPCG(uint64(u), 8))
			turn := dice.IntN(sc.looks + 1)
			for {
				pause(ctx, time.Duration((0.5+dice.Float64())*float64(sc.think)))
				sent := time.Now()
				if sent.Sub(begin) >= span || ctx.Err() != nil {
					return
				}
				what := look
				if turn++; turn%(sc.looks+1) == 0 {
					what = choose
				}
				err := sc.ask(ctx, n, f, u, what, strconv.Itoa(dice.IntN(sc.resources)))
				mu.Lock()
				if err != nil {
					out.errors++
				} else if sent.Sub(begin) >= span*2/3 {
					took[what] = append(took[what], time.Since(sent))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for what := range took {
		out.p95[what] = percentile(took[what], 0.95)
	}
	return out, ctx.Err()
}

func (sc classesScene) ask(ctx context.Context, n *native, f *fleet, user, what int, key string) error {
	if f == nil {
		_, err := n.call(ctx, key)
		return err
	}
	if what == look {
		_, err := f.of(user).Do(ctx, key, func(ctx context.Context) ([]byte, error) { return n.call(ctx, key) })
		return err
	}
	_, err := f.of(user).Through(ctx, func(ctx context.Context) error { _, err := n.call(ctx, key); return err })
	return err
}

// percentile of times; an hour if there is none, since nobody was served.
func percentile(of []time.Duration, q float64) time.Duration {
	if len(of) == 0 {
		return time.Hour
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(int(math.Ceil(q*float64(len(sorted))))-1, len(sorted)-1)]
}

func (sc classesScene) claims(d *drawing, ordinary, guarded sweep) {
	last := sc.classes[len(sc.classes)-1]
	for what, name := range interfaces {
		before, open := ordinary.within(what, last)
		after, more := guarded.within(what, last)
		sign := ""
		if more {
			sign = "≥ "
		}
		d.timed(!open && before > 0 && float64(after) >= sc.ratio*float64(before), fmt.Sprintf("B0.4 %s within %v: ≥ %g × the users", name, last, sc.ratio),
			"%s%d against %d (%s%.1f ×)", sign, after, before, sign, float64(after)/float64(max(before, 1)))
	}
	errs := 0
	for _, p := range guarded {
		errs += p.errors
	}
	d.timed(errs == 0, "nobody is refused", "%d errors", errs)
}
