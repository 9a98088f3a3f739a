//go:build chaos

package chaos

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/herd"
)

// crashPoint is an instant of pkg/crash and what has to be going on for a door
// to come by.
type crashPoint struct {
	name, what string
	most       int  // the pass is drawn up to this
	away       bool // the broker is frozen from before the first callback
	awake      bool // and is awake again before the door dies
	doubles    bool // what was begun is in the log and is done again
	look       func(*crashRun)
}

var crashPoints = []crashPoint{
	{name: "CP1", what: "body read", most: 40},
	{name: "CP2", what: "claim written", most: 40},
	{name: "CP3", what: "produced, unacked", most: 8},
	{name: "CP4", what: "broker acked, before the answer", most: 40, doubles: true},
	{name: "CP4", what: "spool acked, before the answer", most: 40, away: true, doubles: true},
	{name: "CP5", what: "answer sent, mark not finalised", most: 40},
	{name: "CP6", what: "spool record half written", most: 8, away: true, look: (*crashRun).halfWritten},
	{name: "CP7", what: "during spool replay", most: 40, away: true, awake: true, doubles: true},
}

// A pass is 200 callbacks of 20 users, each of whom waits for his ack.
const (
	crashUsers = 20
	crashEach  = 10
)

// crashes kills a door at each crash point, on both brokers in turn, with
// WeChat's repeats going to the other door or to the same one when it is back:
// nothing acknowledged is lost, disordered or invented (G3, T1, T8, T27–T29).
func crashes(t *testing.T, e *engines, _ numbers) {
	passes := passesOf(t)
	_, err := builds.Make(".", "crash")
	require.NoError(t, err)
	for i, p := range crashPoints {
		s, whole := crashSum{}, true
		for pass := range passes {
			// The brokers take turns, and on each of them the doors for the repeats.
			broker, other := []*herd.Engine{e.kafka, e.node}[(i+pass)%2], (i+pass)/2%2 == 0
			name := fmt.Sprintf("%s_%s_%d", p.name, strings.ReplaceAll(p.what, " ", "_"), pass+1)
			if !t.Run(name, func(t *testing.T) { s.pass(t, e, p, broker, other) }) {
				whole = false
				e.mend(t)
			}
		}
		if whole && len(s.kills) > 0 {
			ci(t, "%s %s: %s", p.name, p.what, &s)
		}
	}
}

// passesOf is how often each point is reached.
func passesOf(t *testing.T) int {
	text := os.Getenv("TIDEGATE_CHAOS_PASSES")
	if text == "" {
		return max(1, map[string]int{"full": 2, "soak": 10}[os.Getenv("TIDEGATE_CHAOS")])
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, "TIDEGATE_CHAOS_PASSES is a number")
	require.Positive(t, n, "TIDEGATE_CHAOS_PASSES")
	return n
}

// crashSum adds up the passes of one point.
type crashSum struct {
	kills                                                 []string // pass on broker
	acked, lost, inversions, invented, late, bad, doubled int
	worst                                                 time.Duration
}

func (s *crashSum) String() string {
	return fmt.Sprintf("killed at pass %s; acked %d, lost %d, inversions %d, invented or misdirected %d, late %d, bad answers %d; worst ack %d ms; doubled in the log %d",
		strings.Join(s.kills, ", "), s.acked, s.lost, s.inversions, s.invented, s.late, s.bad, s.worst.Milliseconds(), s.doubled)
}

// crashRun is one pass over one point.
type crashRun struct {
	*world
	crashPoint
	routing drive.Routing
	door    *herd.Process // that dies
	back    chan struct{} // closed when it is back
}

func (s *crashSum) pass(t *testing.T, e *engines, p crashPoint, broker *herd.Engine, other bool) {
	routing := drive.Pinned // WeChat's repeats wait for the door that died
	if other && !p.away {
		routing = drive.ByUser // they go to the other door; what is in a spool must not be overtaken (D12)
	}
	w := newWorld(t, e, shape{doors: 2, broker: broker, routing: routing})
	r := &crashRun{world: w, crashPoint: p, routing: routing, door: w.doors[0], back: make(chan struct{})}
	n := 1 + w.dice.IntN(p.most)
	r.arm(n)
	if p.away {
		t.Cleanup(broker.Resume)
		broker.Pause()
	}
	through := make(chan struct{})
	go func() {
		defer close(through)
		r.load()
	}()
	if p.awake {
		herd.Wait(t, "half of the acks", w.patience(30*time.Second), func() bool { return w.acks() >= crashUsers*crashEach/2 })
		broker.Resume()
	}
	r.dies(n)
	r.door.Env = nil
	r.door.Restart()
	close(r.back)
	<-through
	broker.Resume()
	v := w.verify(w.killing())
	require.Equal(t, crashUsers*crashEach, v.acked, "callbacks that WeChat gave up")
	require.Positive(t, v.Faults[p.name], "the kill is not in the history")
	if p.doubles {
		require.Positive(t, v.Doubled, "nothing was done again, so nothing was begun when the door died")
	}
	where := "embedded"
	if broker.Real {
		where = "Kafka"
	}
	if routing == drive.ByUser {
		where += ", repeats to the other door"
	}
	s.kills = append(s.kills, fmt.Sprintf("%d (%s)", n, where))
	s.acked, s.lost, s.inversions, s.doubled = s.acked+v.acked, s.lost+v.lost, s.inversions+v.inversions, s.doubled+v.Doubled
	s.invented += v.Found["invented"] + v.Found["misdirected"] + v.Found["cross-account"]
	s.late += v.Found["late"] + v.Found["late effect"]
	s.bad += v.Found["malformed"] + v.Found["refused"]
	s.worst = max(s.worst, v.Worst)
}

// arm starts the door again as the program that dies.
func (r *crashRun) arm(n int) {
	r.t.Helper()
	path, err := builds.Make(".", "crash")
	require.NoError(r.t, err)
	r.door.Stop()
	r.door.Path, r.door.Env = path, []string{fmt.Sprintf("TIDEGATE_CRASH_AT=%s:%d", r.name, n)}
	r.door.Restart()
}

// load is every user's callbacks, one after the other.
func (r *crashRun) load() {
	crowd := r.crowd(crashUsers)
	var wg sync.WaitGroup
	for user := range crashUsers {
		wg.Go(func() {
			for i := range crashEach {
				r.send(crowd(i*crashUsers + user))
				select {
				case <-time.After(60 * time.Millisecond): // so that some are left for the time after the kill
				case <-r.t.Context().Done():
				}
			}
		})
	}
	wg.Wait()
}

// send is a callback with its repeats: soon where another door takes them, and
// when the door is back where none does.
func (r *crashRun) send(a drive.Act) {
	for n := 1; n <= 4 && !r.drive.Deliver(r.t.Context(), a, n, time.Time{}).Acked; n++ {
		var soon <-chan time.Time
		if r.routing != drive.Pinned {
			// At once, all four could meet kept connections to the dead door.
			soon = time.After(50 * time.Millisecond)
		}
		select {
		case <-soon:
		case <-r.back:
		case <-r.t.Context().Done():
		}
	}
}

// dies waits for the death and demands that it was at this instant.
func (r *crashRun) dies(n int) {
	r.t.Helper()
	signal := r.door.Died(r.name, r.patience(30*time.Second))
	require.Equal(r.t, syscall.SIGKILL, signal, "%s", r.door.Tail())
	require.True(r.t, r.door.Said(fmt.Sprintf("crash: killed at %s, pass %d", r.name, n)), "%s", r.door.Tail())
	if r.look != nil {
		r.look(r)
	}
}
