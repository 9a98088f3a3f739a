//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat/wechatsim"
	"tidegate/test/chaos/herd"
)

const (
	faultyPartitions = 12
	sessionTimeout   = 6 * time.Second // robot.session_timeout as it is shipped
	stalledAfter     = 7 * time.Second // longer, so that only heartbeats can have kept the member that long
	normal, slow     = 200 * time.Millisecond, 8 * time.Second

	faultyRules = `
version: 1
fallback: "busy"
rules:
  - name: ask
    match: {message_type: text}
    call: {backend: core, method: POST, path: /ask, body: {text: "{{ .Content }}"}}
    reply: [{text: "{{ .Answer.text }} {{ .Content }}"}]
`
)

var fourRobots = []string{"robot0", "robot1", "robot2", "robot3"}

func without(name string) []string {
	return slices.DeleteFunc(slices.Clone(fourRobots), func(n string) bool { return n == name })
}

// TestFaultyRobots shows D13 under 100 callbacks/s of 240 users on 12 partitions
// with 4 robots: one killed, one livelocked, one stopped: its partitions move,
// and no others. All back ends slow: nothing moves. Nothing is lost, doubled or
// disordered, and the users of the other partitions hardly notice.
func TestFaultyRobots(t *testing.T) {
	_, err := builds.Make(".", "crash") // before the clock runs
	require.NoError(t, err)
	core := newBusiness(t, normal)
	w := newBareWorld(t, shape{
		partitions: faultyPartitions, proxies: 1, robots: 4, senders: 1, receiptsWorkers: 1, followers: 240, rules: faultyRules,
		more: fmt.Sprintf("robot: {stalled_after: %s, give_up_after: 2s, backends: [{name: core, base_url: %q, timeout: 10s, rate: 1000, burst: 100, concurrency: 200}]}\n"+
			"proxy: {queues: {poll: 500ms, window: 9s, warn_depth: 30, max_depth: 40}}\n", stalledAfter, core.url),
	})
	w.command("topics", "--config", w.file)
	w.key = w.makeKey()
	w.startAll(shape{proxies: 1, robots: 4, senders: 1, receiptsWorkers: 1})
	g := w.robots()
	g.await(fourRobots...)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	talked := make(chan error, 1)
	go func() {
		_, err := w.sim.Load(ctx, wechatsim.LoadSpec{Rate: 100, For: time.Hour, Loop: wechatsim.LoopClosed, LoseAckShare: 0.01})
		talked <- err
	}()
	w.wait("replies without a backlog", func() bool { // what came while the rooms found each other is worked off
		v := w.sim.Verdict(0)
		return v.Replies.Answered >= 200 && inFlight(v) <= 60
	})
	calm := phase{from: w.sim.Journal().Now()}
	w.waitForAcks(w.sim.Verdict(0).Callbacks.Acked + 200)
	calm.to = w.sim.Journal().Now()
	w.waitForAcks(w.sim.Verdict(0).Callbacks.Acked + 100) // what was sent in calm is answered in calm

	killed := w.killed(g)
	hung := w.livelocked(g)
	stopped := w.stoppedAndWoken(g, core)
	slowed := w.allSlow(g, core)

	stop()
	require.ErrorIs(t, <-talked, context.Canceled)
	v := w.settle(60 * time.Second)
	requireRight(t, v)
	flagged, _ := w.flagged()
	require.Zero(t, flagged, "no reply may have been seen twice")
	before := w.replyTimes(calm)
	again := w.publishedAgain(stopped.at)
	require.LessOrEqual(t, again, 2, "the woken robot published what others had published before, beyond what was on the wire when it was stopped")
	for _, f := range []fault{killed, hung, stopped} {
		r := w.replyTimes(f.phase)
		require.LessOrEqual(t, p99(r.others), 2*p99(before.others)+3*time.Second, "%s: users of the other partitions", f.what)
		require.LessOrEqual(t, worst(r.moved), f.within+10*time.Second, "%s: users of its partitions", f.what)
		ci(t, "%s: %d of 12 partitions moved, to the 3 others, after %.1f s, the other %d stayed; replies to %d messages of their users p99 %s (%s in calm), of the moved ones' %d worst %s; alarms of the door %s, all resolved; %s",
			f.what, len(f.moved), f.took.Seconds(), faultyPartitions-len(f.moved), len(r.others), p99(r.others), p99(before.others), len(r.moved), worst(r.moved), f.queues, f.alarm)
	}
	r := w.replyTimes(slowed.phase)
	ci(t, "%s: 0 of 12 partitions moved, 0 rebalances, 0 alarms of robots; alarms of the door %s, all resolved; %d messages meanwhile, replies p99 %s",
		slowed.what, slowed.queues, len(r.others), p99(r.others))
	ci(t, "faulty robots: %d callbacks acked, %d answered, lost 0, doubled 0, out of order 0; %d callbacks worked again, letters published again by the woken robot %d",
		v.Callbacks.Acked, v.Replies.Answered, core.again(), again)
}

// fault is one that happened: what moved, and how long that took.
type fault struct {
	phase
	what   string
	took   time.Duration // until the partitions had moved
	within time.Duration // in which that had to be
	at     time.Time     // when the process was woken
	alarm  string
	queues told // what the door's watch over the queues said
}

// hit begins a phase with a fault and follows it until the partitions of the
// process have moved and a little more of the load has passed.
func (w *world) hit(g *group, name string, within time.Duration, seen told, do func()) fault {
	w.t.Helper()
	before := g.await(fourRobots...)
	do()
	began := time.Now()
	f := fault{within: within, phase: phase{from: w.sim.Journal().Now()}}
	after := g.await(without(name)...)
	f.took = time.Since(began)
	f.moved = g.moved(before, after, name)
	require.LessOrEqual(w.t, f.took, within)
	w.waitForAcks(w.sim.Verdict(0).Callbacks.Acked + 100)
	f.to = w.sim.Journal().Now()
	f.queues = w.quiet().since(seen)
	w.requireOf(f.queues, seen, f.moved)
	return f
}

// atWork waits until a robot has several callbacks in hand.
func (w *world) atWork(p *herd.Process) {
	w.t.Helper()
	w.wait(p.Name+" to be at work", func() bool { return p.Metric("tidegate_backend_in_flight") >= 2 })
}

// killed dies without a word; its session of 6 s ends.
func (w *world) killed(g *group) fault {
	w.t.Helper()
	p := w.parts["robot0"]
	f := w.hit(g, p.Name, sessionTimeout+6*time.Second, w.quiet(), func() { w.atWork(p); p.Kill() })
	f.what, f.alarm = "kill -9", "its session of 6 s ended"
	require.Greater(w.t, f.took, sessionTimeout/2, "the group cannot have known so soon: was it killed?")
	p.Restart()
	g.await(fourRobots...)
	return f
}

// livelocked stops making progress after some work, and its heartbeats go on.
func (w *world) livelocked(g *group) fault {
	w.t.Helper()
	p := w.parts["robot1"]
	seen := w.quiet()
	p.Terminate()
	path, err := builds.Make(".", "crash")
	require.NoError(w.t, err)
	spec := p.Spec
	spec.Path, spec.Env, spec.AnyExit = path, []string{"TIDEGATE_LIVELOCK=CP8:60"}, true
	sick := w.herd.Start(spec)
	f := w.hit(g, p.Name, stalledAfter+8*time.Second, seen, func() {
		w.wait("the livelock", func() bool {
			text, err := os.ReadFile(filepath.Join(w.herd.Dir, p.Name+".log"))
			return err == nil && strings.Contains(string(text), "held at CP8")
		})
	})
	require.Greater(w.t, f.took, sessionTimeout, "only heartbeats keep a member for longer than its session")
	w.wait("the process to end", func() bool { return !sick.Running() })
	require.Equal(w.t, 1, w.logged(p.Name, "handlers show no sign of life, leaving the group so that others work its partitions"))
	require.Contains(w.t, sick.Tail(), "restart it", "it must say why it ends")
	w.requireAlarm(p.Name, "robot_stalled")
	f.what, f.alarm = "livelock", "alarm robot_stalled once, resolved when the process ended for its supervisor"
	p.Restart() // as a supervisor does
	g.await(fourRobots...)
	return f
}

// stoppedAndWoken is SIGSTOP until the others have its partitions, with work in
// hand, and SIGCONT.
func (w *world) stoppedAndWoken(g *group, core *business) fault {
	w.t.Helper()
	p := w.parts["robot2"]
	again := core.again()
	f := w.hit(g, p.Name, sessionTimeout+6*time.Second, w.quiet(), func() { w.atWork(p); p.Pause() })
	f.what, f.at = "SIGSTOP", time.Now()
	require.Greater(w.t, core.again(), again, "it must have been stopped with work in hand, which others did again")
	p.Resume()
	g.await(fourRobots...)
	require.EqualValues(w.t, 1, p.Metric("tidegate_kafka_frozen_total"), "it must have noticed")
	w.requireAlarm(p.Name, "robot_frozen")
	f.alarm = "woken it gave everything up by itself: alarm robot_frozen once, resolved when it was back"
	return f
}

// allSlow makes every back end slower than stalled_after, within its deadline.
func (w *world) allSlow(g *group, core *business) fault {
	w.t.Helper()
	before := g.await(fourRobots...)
	counts := func() (rebalances, stalls, firing float64) {
		for _, name := range fourRobots {
			rebalances += w.parts[name].Metric("tidegate_kafka_rebalances_total")
			stalls += w.parts[name].Metric("tidegate_kafka_stalls_total")
			firing += w.parts[name].Metric("tidegate_alarm_firing")
		}
		return rebalances, stalls, firing
	}
	seen := w.quiet()
	r0, s0, _ := counts()
	still := time.Now()
	w.wait("every robot to have counted the last rebalance", func() bool {
		r, s, _ := counts()
		if r != r0 || s != s0 {
			r0, s0, still = r, s, time.Now()
		}
		return time.Since(still) > time.Second
	})
	f := fault{what: fmt.Sprintf("all back ends take %s (stalled_after %s)", slow, stalledAfter), phase: phase{from: w.sim.Journal().Now()}}
	core.takes.Store(int64(slow))
	herd.Wait(w.t, "slow answers", 30*time.Second, func() bool { return core.slow.Load() >= 200 })
	require.Equal(w.t, before, g.owners())
	r1, s1, firing := counts()
	require.Equal(w.t, r0, r1, "rebalances")
	require.Equal(w.t, s0, s1, "stalls")
	require.Zero(w.t, firing, "alarms of robots")
	core.takes.Store(int64(normal))
	f.to = w.sim.Journal().Now()
	f.queues = w.quiet().since(seen)
	require.Equal(w.t, 1, f.queues["queue_overload"], "one alarm for all: %v", f.queues)
	require.NotContains(w.t, f.queues.String(), "queue_faulty", "nobody is at fault")
	return f
}

// publishedAgain counts the replies that were in the topic already when they
// were published once more after the robot woke up.
func (w *world) publishedAgain(woken time.Time) (n int) {
	w.t.Helper()
	for _, at := range w.replies() {
		slices.SortFunc(at, time.Time.Compare)
		if len(at) > 1 && at[0].Before(woken) && !at[len(at)-1].Before(woken) {
			n++
		}
	}
	return n
}
