package figures

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"tidegate/app/figures/chart"
	"tidegate/pkg/guard"
)

// lifeScene is Figure 6: users who ask once a second, so that their number is the
// demand of a window, and a threshold of the guard in the same unit.
type lifeScene struct {
	users     []int
	threshold int
	resources int
	ttl       time.Duration
	span      time.Duration
}

func (s *stage) lifeScene() lifeScene {
	if s.Short {
		return lifeScene{users: []int{60, 90, 150, 240}, threshold: 120, resources: 10, ttl: 400 * time.Millisecond, span: 2 * time.Second}
	}
	return lifeScene{users: []int{100, 200, 300, 400, 450, 550, 600, 700, 800, 1000}, threshold: 500, resources: 50, ttl: 2 * time.Second, span: s.span}
}

// lifePoint is what one number of users met.
type lifePoint struct {
	users     int
	demand    int // largest number of requests in any window
	protected bool
	life      time.Duration // how long one value was handed out, at most
	errors    int
}

// lifeFigure measures for how long one and the same value is handed out: not at
// all while everybody passes, for the set life when values are shared.
func lifeFigure(ctx context.Context, s *stage) (drawing, error) {
	scene := s.lifeScene()
	d := drawing{header: []string{"users", "demand_per_window", "protected", "life_s"}}
	points := make([]lifePoint, len(scene.users))
	err := s.each(len(points), func(i int) (err error) {
		points[i], err = scene.run(ctx, s, scene.users[i])
		s.progress("%5d users: %4d requests in the busiest second, life %v", scene.users[i], points[i].demand, points[i].life.Round(time.Millisecond))
		return err
	})
	if err != nil {
		return d, err
	}
	for _, p := range points {
		d.rows = append(d.rows, []any{p.users, p.demand, p.protected, p.life})
	}
	scene.claims(&d, points)
	d.chart = chart.Chart{
		Note: fmt.Sprintf("users who ask once a second, %d resources, %d nodes; longest time for which one value was handed out", scene.resources, s.nodes()),
		X:    chart.Axis{Label: "users"}, Y: chart.Axis{Label: "life of a value, s"},
		Series: []chart.Series{{Name: "measured life", Points: lifeSteps(points)}},
		Marks: []chart.Mark{
			{Value: float64(scene.threshold), Vertical: true, Label: fmt.Sprintf("threshold %d/s", scene.threshold)},
			{Value: scene.ttl.Seconds(), Label: fmt.Sprintf("T = %g s, as set", scene.ttl.Seconds())},
		},
	}
	return d, nil
}

func lifeSteps(points []lifePoint) (out []chart.Point) {
	for _, p := range points {
		out = append(out, chart.Point{X: float64(p.users), Y: p.life.Seconds()})
	}
	return out
}

// handed is when one value was given to somebody, first and last.
type handed struct{ first, last time.Time }

// lifeLog collects what the users of one run saw.
type lifeLog struct {
	mu       sync.Mutex
	arrivals []time.Time
	values   map[string]handed
	errors   int
}

func (l *lifeLog) asked(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrivals = append(l.arrivals, at)
}

func (l *lifeLog) got(value string, err error) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.errors++
		return
	}
	h, ok := l.values[value]
	if !ok {
		h.first = now
	}
	h.last = now
	l.values[value] = h
}

func (sc lifeScene) run(ctx context.Context, s *stage, users int) (lifePoint, error) {
	f, err := s.fleet(ctx, func(c *guard.Config) {
		c.Threshold, c.TTL, c.Gate = int64(sc.threshold), sc.ttl, 100000 // the demand alone is to decide
	})
	if err != nil {
		return lifePoint{}, err
	}
	defer f.close()
	begin := time.Now()
	n := newNative(60*time.Millisecond, 1000, begin)
	log := &lifeLog{values: map[string]handed{}}
	var wg sync.WaitGroup
	for u := range users {
		wg.Go(func() {
			// Everybody in turn, then everybody again: the demand is even.
			for due := time.Duration(u) * time.Second / time.Duration(users); due < sc.span && ctx.Err() == nil; due += time.Second {
				pause(ctx, time.Until(begin.Add(due)))
				key := strconv.Itoa((u + int(due/time.Second)) % sc.resources)
				log.asked(time.Now())
				r, err := f.of(u).Do(ctx, key, func(ctx context.Context) ([]byte, error) {
					value, err := n.call(ctx, key)
					return append(append([]byte(key), ' '), value...), err
				})
				log.got(string(r.Value), err)
			}
		})
	}
	wg.Wait()
	p := lifePoint{users: users, protected: f.protects(), demand: busiest(log.arrivals, time.Second), errors: log.errors}
	for _, h := range log.values {
		p.life = max(p.life, h.last.Sub(h.first))
	}
	return p, ctx.Err()
}

// busiest is the largest number of times within any window.
func busiest(at []time.Time, window time.Duration) (most int) {
	first := 0
	for i := range at { // in order: they were noted under a lock
		for at[i].Sub(at[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// claims: zero below, T above, and the step where the demand passes the
// threshold. The demand is the measured one, since a busy machine delays users;
// the guard counts in slices and is told of other nodes 50 ms late, so within an
// eighth of the threshold either is right.
func (sc lifeScene) claims(d *drawing, points []lifePoint) {
	var errs, below, above, wrong int
	var shortest, longest time.Duration = time.Hour, 0
	for _, p := range points {
		errs += p.errors
		switch {
		case p.life == 0:
			below++
			if p.protected || float64(p.demand) > 1.125*float64(sc.threshold) {
				wrong++
			}
		default:
			above++
			shortest, longest = min(shortest, p.life), max(longest, p.life)
			if !p.protected || float64(p.demand) < 0.875*float64(sc.threshold) {
				wrong++
			}
		}
	}
	rises := true
	for i := 1; i < len(points); i++ {
		rises = rises && !(points[i-1].life > 0 && points[i].life == 0)
	}
	d.timed(below > 0 && above > 0 && rises && wrong == 0, "B0.3 life 0 below the threshold, one step at it", "%d points at 0, %d above it, %d on the wrong side", below, above, wrong)
	d.timed(above > 0 && shortest >= sc.ttl/2 && longest <= sc.ttl*5/4, fmt.Sprintf("B0.3 life T = %v above the threshold", sc.ttl), "%v to %v", shortest.Round(time.Millisecond), longest.Round(time.Millisecond))
	d.timed(errs == 0, "nobody is refused", "%d errors", errs)
}
