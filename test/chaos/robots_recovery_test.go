//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/herd"
)

// recovery (G17): how soon users are answered again, and how fast what has
// gathered is worked off.
func recovery(t *testing.T, e *engines, n robotNumbers) {
	const users = 400
	sim := newSim(t, users)
	r := newRoad(newWorld(t, e, shape{doors: 1, extra: apis(sim, "")}), sim) // sessions of 6 s, as shipped
	for range 2 {
		r.robot()
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	sent := make(chan drive.Sum, 1)
	go func() {
		sent <- r.drive.Open(ctx, drive.Load{Rate: r.rate(100), Act: func(i int) drive.Act { return r.act(i%users, i) }, Dice: r.dice})
	}()
	r.moreAnswers(200)
	var broker, worker []time.Duration
	for range n.times {
		r.broker.Kill()
		r.goOn(50)
		r.broker.Restart() // returns when it answers
		back := time.Now()
		r.moreAnswers(1)
		broker = append(broker, time.Since(back))
		r.answered("", r.sim.Journal().Now())
	}
	for range n.times {
		p := r.robots[r.dice.IntN(2)]
		r.waitForWork()
		p.Kill()
		dead := r.sim.Journal().Now()
		r.goOn(100)
		r.answered("", r.sim.Journal().Now())
		worker = append(worker, r.longest(dead-int64(time.Second)))
		p.Restart()
		r.moreAnswers(300)
	}
	stop()
	<-sent
	r.drained()
	normal, after := r.speed(n, (*herd.Process).Stop), r.speed(n, (*herd.Process).Kill)
	v := r.judged()
	require.LessOrEqual(t, slices.Max(broker), r.patience(10*time.Second))
	require.LessOrEqual(t, slices.Max(worker), r.patience(15*time.Second))
	require.Greater(t, slices.Max(worker), 3*time.Second, "the group cannot have known so soon: was a robot with work killed?")
	require.GreaterOrEqual(t, after, 0.8*normal)
	row(t, "G17", fmt.Sprintf("%d times: answers <= 10 s after Kafka is back, <= 15 s after kill -9; drain >= 80 %%", n.times),
		"Kafka back: first answer after %s at most; robot killed: no user waited longer than %s; drain %.0f/s behind deaths, %.0f/s behind a stop (%.0f %%); lost %d, inversions %d",
		slices.Max(broker).Round(10*time.Millisecond), slices.Max(worker).Round(10*time.Millisecond), after, normal, 100*after/normal, v.lost, v.inversions)
}

// speed is how fast robots work a backlog off that has gathered since their end.
func (r *road) speed(n robotNumbers, end func(*herd.Process)) float64 {
	r.t.Helper()
	for _, p := range r.robots {
		end(p)
	}
	before := len(r.shown())
	s := r.drive.Open(r.t.Context(), drive.Load{Rate: r.rate(1000), Count: n.backlog, Act: func(i int) drive.Act { return r.act(i%len(r.users), 1_000_000+before+i) }, Dice: r.dice})
	require.Zero(r.t, s.Skipped)
	r.settled()
	for _, p := range r.robots {
		p.Restart()
	}
	tenth := n.backlog / 10
	herd.Wait(r.t, "the drain to begin", r.patience(time.Minute), func() bool { return len(r.shown()) >= before+tenth })
	begun := time.Now()
	herd.Wait(r.t, "the drain to end", r.patience(5*time.Minute), func() bool { return len(r.shown()) >= before+n.backlog-tenth })
	took := time.Since(begun)
	r.drained()
	return float64(n.backlog-2*tenth) / took.Seconds()
}
