//go:build chaos

package chaos

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat/wechatsim"
	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/herd"
	"tidegate/test/chaos/reader"
)

// road is a whole deployment in front of a simulated WeChat: doors, robots and a
// sender, so that what users see is in the history.
type road struct {
	*world
	sim    *wechatsim.Sim
	users  []string
	seen   uint64 // journal of the simulator before the run
	robots []*herd.Process
	sender *herd.Process
}

// sessions of 2 s, so that a robot's death does not cost the run 6 s each time;
// the doors wait for nobody's session.
const shortSessions = "robot: {session_timeout: 2s}"

// newRoad starts it. Robots are started by the caller.
func newRoad(w *world, sim *wechatsim.Sim) *road {
	w.t.Helper()
	r := &road{world: w, sim: sim}
	users, err := sim.Followers(accounts[0].AppID, 0)
	require.NoError(w.t, err)
	r.users = users
	openWindows(w.t, sim, users)
	r.seen, _ = sim.Journal().Len()
	r.sender = w.role("sender", "sender0", "sender.node=sender0", "api.addr="+herd.FreeAddr(w.t), "database.driver=sqlite", "database.dsn="+filepath.Join(w.h.Dir, "sender.db"))
	return r
}

// apis is the configuration that leads to a simulator, with more lines.
func apis(sim *wechatsim.Sim, more string) string {
	return fmt.Sprintf("wechat: {base_urls: [%q]}\n%s", sim.URL(), more)
}

// robot starts one more.
func (r *road) robot(set ...string) *herd.Process {
	r.t.Helper()
	p := r.role("robot", fmt.Sprintf("robot%d", len(r.robots)), set...)
	r.robots = append(r.robots, p)
	return p
}

// act is a user's next message.
func (r *road) act(user, n int) drive.Act { return r.text(n, accounts[0].Name, r.users[user]) }

// shown are the messages that users have seen, in order.
func (r *road) shown() []wechatsim.Entry {
	out, _ := r.sim.Journal().Read(r.seen, 1<<30, func(e *wechatsim.Entry) bool { return e.Kind == wechatsim.KindArrival && e.Visible })
	return out
}

// judged waits until everything is answered, puts what users saw into
// the history and demands that nothing is wrong with it: lost, doubled,
// disordered, invented.
func (r *road) judged() verdict {
	r.t.Helper()
	r.drained()
	_, _, err := reader.Replies(r.sim, r.seen, func(app string) string {
		for _, a := range accounts {
			if a.AppID == app {
				return a.Name
			}
		}
		return app
	}, r.log)
	require.NoError(r.t, err)
	o := r.killing()
	o.Replies = true
	return r.verify(o)
}

// robotDies kills a robot at CP8: callbacks are fetched, and the work on one is
// about to begin (T14, T15). The other robot goes on with them: nothing is lost,
// answered twice or out of order.
func robotDies(t *testing.T, e *engines, _ numbers) {
	s, passes := crashSum{}, passesOf(t)
	_, err := builds.Make(".", "crash")
	require.NoError(t, err)
	replies := 0
	for pass := range passes {
		broker := []*herd.Engine{e.node, e.kafka}[pass%2]
		if !t.Run(fmt.Sprintf("CP8_%d", pass+1), func(t *testing.T) { replies += s.robotPass(t, e, broker) }) {
			e.mend(t)
			return
		}
	}
	if len(s.kills) > 0 {
		ci(t, "CP8 fetched, not begun: robot killed at pass %s; acked %d, answered %d, lost 0, replies doubled 0, out of order 0", strings.Join(s.kills, ", "), s.acked, replies)
	}
}

// robotPass is 200 callbacks of 20 users with two robots, of which one dies.
func (s *crashSum) robotPass(t *testing.T, e *engines, broker *herd.Engine) (replies int) {
	sim := newSim(t, crashUsers)
	r := newRoad(newWorld(t, e, shape{doors: 1, broker: broker, extra: apis(sim, shortSessions)}), sim)
	n := 1 + r.dice.IntN(40)
	sick := r.robot()
	sick.Stop()
	path, err := builds.Make(".", "crash")
	require.NoError(t, err)
	sick.Path, sick.Env = path, []string{fmt.Sprintf("TIDEGATE_CRASH_AT=CP8:%d", n)}
	sick.Restart()
	r.robot()
	sent := make(chan int64, 1)
	go func() {
		sent <- r.drive.Closed(t.Context(), drive.Users{
			Count: crashUsers, Each: crashEach, Pause: 60 * time.Millisecond,
			Act: func(user, _, i int) drive.Act { return r.act(user, i) },
		})
	}()
	signal := sick.Died("CP8", r.patience(60*time.Second))
	require.Equal(t, syscall.SIGKILL, signal, "%s", sick.Tail())
	require.True(t, sick.Said(fmt.Sprintf("crash: killed at CP8, pass %d", n)), "%s", sick.Tail())
	sick.Env = nil
	sick.Restart()
	require.EqualValues(t, crashUsers*crashEach, <-sent)
	v := r.judged()
	require.Equal(t, crashUsers*crashEach, v.acked)
	require.Equal(t, crashUsers*crashEach, v.Replies, "replies")
	require.Positive(t, v.Faults["CP8"], "the kill is not in the history")
	s.kills = append(s.kills, fmt.Sprintf("%d (%s)", n, r.brokerName()))
	s.acked += v.acked
	return v.Replies
}
