//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/guard"
	"tidegate/test/chaos/herd"
)

// TestGuardBars measures those bars of paper 000 that are about a cluster (flow.md
// B0.1, B0.2, B0.5, B0.7 and B0.9 to B0.11) with three processes of `tidegate
// guard` on a real Redis, in front of a system that slows down. What takes a free
// machine is measured with TIDEGATE_TEST_BARS=full; without it a holder of a lease
// is killed once, Redis is away for a moment, and what is counted must hold.
func TestGuardBars(t *testing.T) {
	full := os.Getenv("TIDEGATE_TEST_BARS") == "full"
	w := newGuardWorld(t)
	if full {
		w.barCrowd()
		w.barUnnoticed()
	}
	nodes := w.fleet("guard.threshold=0", "guard.token_timeout=1s")
	w.barHolder(nodes, full)
	w.barRedisAway(nodes, full)
	w.stop(nodes)
}

// barCrowd: 800 users with the guards and without, in one run.
func (w *guardWorld) barCrowd() {
	const users, span, rest, ttl = 800, 8 * time.Second, 200 * time.Millisecond, 2 * time.Second
	bareBegin := time.Now()
	bare := w.crowd([]string{w.system.URL}, users, span, rest)
	bareSteady, barePeak := w.system.steady, w.system.peak
	nodes := w.fleet()
	begin := time.Now()
	kept := w.crowd(addrs(nodes), users, span, rest)
	w.stop(nodes)
	failed, how := outcomes(kept)
	// Everything that began after the first request which was not passed on: some
	// calls of before the switch are among them.
	change := begin.Add(span)
	for _, g := range kept {
		if g.how != string(guard.Pass) && g.sent.Before(change) {
			change = g.sent
		}
	}
	after := begin.Add(span).Sub(change)
	allowed := guardResources * (int(math.Ceil(after.Seconds()/ttl.Seconds())) + 1)
	s := w.system
	bar(w.t, how[string(guard.Hit)] > 0 && s.steady <= guardResources && s.steadyKey <= 1 && bareSteady >= users/2, "B0.1",
		"3 processes, 800 users: steady native concurrency ≤ R = 100 and 1 per resource", "%d, %d of one resource; without %d", s.steady, s.steadyKey, bareSteady)
	bar(w.t, s.callsSince(change) <= allowed, "B0.2", fmt.Sprintf("3 processes, 800 users: native calls in D after the switch ≤ R·(⌈D/T⌉+1) = %d", allowed),
		"%d in %.1f s; without %d", s.callsSince(change), after.Seconds(), len(bare))
	bar(w.t, s.peak <= 50+guardResources, "B0.5", "3 processes, 800 users: peak at the switch ≤ gate + R = 150", "%d; without %d", s.peak, barePeak)
	ordinary, guarded := ages(bare, bareBegin.Add(span/2)), ages(kept, begin.Add(span/2))
	bar(w.t, len(guarded) > users && quantileOf(guarded, 0.95) <= ttl, "B0.11", "3 processes, 800 users: p95 of data age at delivery ≤ T = 2 s",
		"%.2f s; ordinary system, at once before, %.2f s", quantileOf(guarded, 0.95).Seconds(), quantileOf(ordinary, 0.95).Seconds())
	bar(w.t, failed == 0, "B0.1", "3 processes, 800 users: nobody is refused", "%d refused of %d: %v", failed, len(kept), how)
}

// ages are (delivery − native read) of what was asked for after a moment.
func ages(of []gotten, after time.Time) (out []time.Duration) {
	for _, g := range of {
		if g.status == 200 && g.sent.After(after) {
			out = append(out, g.came.Sub(g.read))
		}
	}
	return out
}

func quantileOf(of []time.Duration, q float64) time.Duration {
	if len(of) == 0 {
		return time.Hour
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// outcomes counts the ways, and the requests without a good answer.
func outcomes(of []gotten) (failed int, how map[string]int) {
	how = map[string]int{}
	for _, g := range of {
		if g.status != 200 {
			failed++
		}
		how[g.how]++
	}
	return failed, how
}

// barUnnoticed: below the threshold, in turns with and without.
func (w *guardWorld) barUnnoticed() {
	const users, span, turns = 24, 2 * time.Second, 3
	nodes := w.fleet()
	defer w.stop(nodes)
	with, without, failed, how := 0, 0, 0, map[string]int{}
	for range turns {
		without += len(w.crowd([]string{w.system.URL}, users, span, 0))
		got := w.crowd(addrs(nodes), users, span, 0)
		f, ways := outcomes(got)
		with, failed = with+len(got), failed+f
		for k, n := range ways {
			how[k] += n
		}
	}
	ratio := float64(with) / float64(without)
	bar(w.t, ratio >= 0.95 && failed == 0 && how[string(guard.Pass)] == with, "B0.10", "3 processes, below the threshold: throughput ≥ 0.95 × without",
		"%.3f (%d against %d requests, %v)", ratio, with, without, how)
}

// barHolder: the process that holds a lease is killed while users of the others
// wait for its value.
func (w *guardWorld) barHolder(nodes []*guardNode, full bool) {
	const timeout, callers = time.Second, 20
	rounds := 1
	if full {
		rounds = 5
	}
	worst, fetches, wrong := time.Duration(0), 0, 0
	for round := range rounds {
		w.system.reset(time.Now())
		herd.Wait(w.t, "the guards to be together", 10*time.Second, func() bool {
			return all(nodes, func(v guard.View) bool { return v.Shared && v.Nodes == guardNodes })
		})
		key := fmt.Sprint("held-", round)
		holder := make(chan gotten, 1)
		go func() { holder <- w.get(w.t.Context(), nodes[0].url, key) }()
		require.Equal(w.t, "/r/"+key, w.held(), "the first caller's process asks")
		others := make(chan gotten, callers)
		for i := range callers {
			go func() { others <- w.get(w.t.Context(), nodes[1+i%2].url, key) }()
		}
		herd.Wait(w.t, "the others to wait", 5*time.Second, func() bool { return nodes[1].view().Waiting+nodes[2].view().Waiting == callers })
		require.Equal(w.t, 1, nodes[0].view().Leases, "it holds the lease")
		nodes[0].Kill()
		killed := time.Now()
		require.NotEqual(w.t, 200, (<-holder).status, "the fault happened: its own caller got nothing")
		close(w.system.let) // calls from now on are answered
		for range callers {
			g := <-others
			worst = max(worst, g.came.Sub(killed))
			if g.status != 200 {
				wrong++
			}
		}
		fetches += w.system.callsSince(killed)
		require.Equal(w.t, "/r/"+key, w.held(), "that of the others")
		nodes[0].Restart()
	}
	inTime := worst <= timeout+200*time.Millisecond
	if full {
		bar(w.t, inTime, "B0.7", "3 processes, kill -9 of the holder: the others are answered within token_timeout + 0.2 s = 1.2 s", "after at most %.2f s in %d rounds of %d callers", worst.Seconds(), rounds, callers)
	}
	bar(w.t, wrong == 0 && fetches == rounds, "B0.7", "3 processes, kill -9 of the holder: exactly one new fetch, nobody is refused", "%d fetches in %d kills, %d refused", fetches, rounds, wrong)
}

// held is the next call of a held resource at the system behind.
func (w *guardWorld) held() string {
	select {
	case key := <-w.system.hold:
		return key
	case <-time.After(10 * time.Second):
		return "no call within 10 s"
	}
}

// barRedisAway: Redis is killed under load and comes back.
func (w *guardWorld) barRedisAway(nodes []*guardNode, full bool) {
	users, away, rest, gate := 100, 300*time.Millisecond, 50*time.Millisecond, 50
	if full {
		users, away, rest = 400, 10*time.Second, 100*time.Millisecond
	}
	w.system.reset(time.Now())
	var got []gotten
	ctx, end := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		got = w.crowdUntil(ctx, addrs(nodes), users, rest)
	}()
	herd.Wait(w.t, "shared values to be handed out", 20*time.Second, func() bool {
		return all(nodes, func(v guard.View) bool { return v.Mode == "protect" && v.Shared && v.Cached > 0 })
	})
	w.redis.Kill()
	<-time.After(away)
	herd.Wait(w.t, "every process to be alone", 5*time.Second, func() bool { return all(nodes, func(v guard.View) bool { return !v.Shared }) })
	w.redis.Restart()
	since := time.Now()
	herd.Wait(w.t, "the guards to be together", 20*time.Second, func() bool { return all(nodes, func(v guard.View) bool { return v.Shared }) })
	back := time.Since(since)
	<-time.After(2 * rest) // and somebody asks
	end()
	<-ended
	failed, how := outcomes(got)
	ways := slices.Sorted(maps.Keys(how))
	bar(w.t, failed == 0 && how[string(guard.Local)] > 0 && w.system.peak <= gate, "B0.9", fmt.Sprintf("3 processes, Redis killed for %v under load: 0 errors, native concurrency ≤ gate = %d", away, gate),
		"%d errors of %d requests, %d of them answered alone (%v), peak %d", failed, len(got), how[string(guard.Local)], ways, w.system.peak)
	if full {
		bar(w.t, back <= 2*time.Second, "B0.9", "3 processes: shared again ≤ 2 s after Redis is back", "%.2f s", back.Seconds())
	}
}
