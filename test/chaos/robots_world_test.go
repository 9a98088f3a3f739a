//go:build chaos

package chaos

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
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

	refused int // answered with a text that quotes nothing, when judged

	asked sync.Map // message's mark to ask
	told  []wechatsim.Entry
	next  uint64
}

// ask is when a message was sent, by the journal's time, and to which account.
type ask struct {
	at      int64
	account string
}

// Sessions of 2 s, so that a robot's death does not cost the run 6 s each time;
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
func (r *road) act(user, n int) drive.Act { return r.asks(r.text(n, accounts[0].Name, r.users[user])) }

// asks notes when a message was sent.
func (r *road) asks(a drive.Act) drive.Act {
	r.asked.Store(a.Token, ask{r.sim.Journal().Now(), a.Account})
	return a
}

// shown are the messages that users have seen, in order. One goroutine asks.
func (r *road) shown() []wechatsim.Entry {
	for {
		more, next := r.sim.Journal().Read(max(r.next, r.seen), 1000, func(e *wechatsim.Entry) bool { return e.Kind == wechatsim.KindArrival && e.Visible })
		r.told = append(r.told, more...)
		if next == r.next || len(more) == 0 {
			r.next = next
			return r.told
		}
		r.next = next
	}
}

// moreAnswers waits for so many.
func (r *road) moreAnswers(n int) {
	r.t.Helper()
	have := len(r.shown())
	herd.Wait(r.t, fmt.Sprint(n, " more answers"), r.patience(time.Minute), func() bool { return len(r.shown()) >= have+n })
}

// waits are the times from message to answer, of those that were sent to an
// account in a span; "" is every account.
func (r *road) waits(account string, from, to int64) (out []time.Duration) {
	for _, e := range r.shown() {
		v, _ := r.asked.Load(drive.FindMark([]byte(e.Text)))
		if a, ok := v.(ask); ok && a.at >= from && a.at <= to && (account == "" || a.account == account) {
			out = append(out, time.Duration(e.At-a.at))
		}
	}
	return out
}

// longest is the longest of those that were sent since a moment.
func (r *road) longest(since int64) time.Duration {
	return slices.Max(r.waits("", since, math.MaxInt64))
}

// answered waits until whatever was sent to an account, or any, up to a moment is
// answered.
func (r *road) answered(account string, upTo int64) {
	r.t.Helper()
	open := map[string]bool{}
	r.asked.Range(func(mark, v any) bool {
		if a := v.(ask); a.at <= upTo && (account == "" || a.account == account) {
			open[mark.(string)] = true
		}
		return true
	})
	read := 0
	herd.Wait(r.t, "everything to be answered", r.patience(time.Minute), func() bool {
		for all := r.shown(); read < len(all); read++ {
			delete(open, drive.FindMark([]byte(all[read].Text)))
		}
		return len(open) == 0
	})
}

// judged waits until everything is answered, puts what users saw into
// the history and demands that nothing is wrong with it: lost, doubled,
// disordered, invented.
func (r *road) judged() verdict {
	r.t.Helper()
	r.drained()
	var replies []string
	for _, a := range accounts {
		replies = append(replies, wire.Topics{Prefix: r.run}.Replies(a.Name))
	}
	unmarked, err := reader.ReadUnmarked(r.t.Context(), r.broker.Addr, r.topics(), replies)
	require.NoError(r.t, err)
	r.refused = unmarked.Len()
	_, _, err = reader.Replies(r.sim, r.seen, func(app string) string {
		for _, a := range accounts {
			if a.AppID == app {
				return a.Name
			}
		}
		return app
	}, unmarked, r.log)
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
