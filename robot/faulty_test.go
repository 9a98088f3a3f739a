package robot_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/alarm"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
	"tidegate/robot"
	"tidegate/robot/backend"
	"tidegate/robot/engine"
)

// hanging is an engine with a bug: some content makes it hang, deaf to
// everything, until it is released.
type hanging struct {
	robot.Engine
	on      string
	begun   chan struct{}
	once    sync.Once
	release chan struct{}
	woke    chan struct{}
}

func (h *hanging) Decide(c *wire.Callback) (engine.Decision, error) {
	if c.Content == h.on {
		h.once.Do(func() { close(h.begun) })
		<-h.release
		defer func() { h.woke <- struct{}{} }()
	}
	return h.Engine.Decide(c)
}

func (w *world) hanging(on string) *hanging {
	return &hanging{Engine: w.engine, on: on, begun: make(chan struct{}), release: make(chan struct{}), woke: make(chan struct{}, 100)}
}

// heard keeps what an alarm board tells.
type heard struct {
	mu  sync.Mutex
	all []alarm.Transition
}

func (h *heard) Tell(t alarm.Transition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, t)
}

func (h *heard) told() []alarm.Transition {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]alarm.Transition(nil), h.all...)
}

func (w *world) listen() *heard {
	h := &heard{}
	w.alarms = alarm.NewBoard(w.log, nil, nil, h)
	return h
}

func soon(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patient):
		require.FailNow(t, "timed out waiting for "+what)
	}
}

// TestHangingRobotIsReplaced: robot A hangs on one follower's callback (its
// heartbeats go on). It leaves with one alarm; B works everything of A's, in
// order and once, while B's own followers are answered all the time. When what
// hung wakes up it publishes nothing, and A works again.
func TestHangingRobotIsReplaced(t *testing.T) {
	t.Parallel() // it waits most of its time
	const users, each = 40, 6
	w := newWorld(t, "a")
	w.cfg.StalledAfter, w.cfg.GiveUpAfter = time.Second, time.Minute
	told := w.listen()
	sound, h := w.engine, w.hanging("say 3")
	w.engine = h
	a := w.start(account("a"))
	regA := w.reg
	w.engine, w.alarms = sound, nil
	b := w.start(account("a"))
	require.Eventually(t, func() bool { return len(a.Stats()) == 2 && len(b.Stats()) == 2 }, patient, 10*time.Millisecond, "the partitions must be shared")
	name := func(u int) string { return fmt.Sprintf("o%d", u) }
	say := func(n int) {
		for u := range users {
			w.send(callback("a", name(u), n, fmt.Sprintf("say %d", n)))
		}
	}
	for n := range each {
		say(n)
	}
	soon(t, h.begun, "the hang")
	w.awaitReceipts(users * each)
	fired := told.told()
	require.Len(t, fired, 1, "one alarm")
	require.True(t, fired[0].Firing)
	require.Equal(t, "robot_stalled", fired[0].Name)
	require.Regexp(t, `^node-1 a callbacks/[0-3](,[0-3])?$`, fired[0].Subject)
	require.Empty(t, a.Stats(), "A has left")
	require.Len(t, b.Stats(), wire.PartitionsEmbedded)
	require.Equal(t, 1, counted(t, regA, "tidegate_kafka_stalls_total"))

	close(h.release)
	soon(t, h.woke, "what hung")
	require.Eventually(t, func() bool { return len(a.Stats()) == 2 }, patient, 10*time.Millisecond, "A must work again")
	for n := each; n < 2*each; n++ {
		say(n)
	}
	w.awaitReceipts(users * each * 2) // exactly: what woke up has published nothing
	var want []string
	for n := range 2 * each {
		want = append(want, fmt.Sprintf("say %d", n))
	}
	for u := range users {
		require.Equal(t, want, w.texts(name(u)))
	}
	all := told.told()
	require.Len(t, all, 2)
	require.Equal(t, fired[0].Subject, all[1].Subject)
	require.False(t, all[1].Firing, "resolved after")
	a.stop()
	b.stop()
	require.Zero(t, w.uncommitted("a"))
}

// counted sums a counter of a registry.
func counted(t *testing.T, reg *prometheus.Registry, name string) int {
	t.Helper()
	sum := 0.0
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return int(sum)
}

// TestRobotThatHangsForGoodEnds: the room ends with an error that says what
// hangs, so that the process ends; the alarm does not outlive it.
func TestRobotThatHangsForGoodEnds(t *testing.T) {
	t.Parallel() // it waits most of its time
	w := newWorld(t, "a")
	w.cfg.StalledAfter, w.cfg.GiveUpAfter = time.Second, time.Second
	told := w.listen()
	h := w.hanging("x")
	r, err := robot.New(w.cfg, []robot.Account{account("a")}, robot.Deps{
		Kafka: w.kafka, Topics: w.topics, Publisher: w, Rules: h, Log: w.log, Hasher: telemetry.NewHasher([]byte("k")), Alarms: w.alarms, Node: "node-1",
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.Background()) }()
	w.send(callback("a", "o1", 1, "x"))
	soon(t, h.begun, "the hang")
	select {
	case err = <-ended:
	case <-time.After(patient):
		require.FailNow(t, "the room did not end")
	}
	require.ErrorContains(t, err, "account a")
	require.ErrorContains(t, err, "restart it")
	all := told.told()
	require.Len(t, all, 2)
	require.True(t, all[0].Firing)
	require.False(t, all[1].Firing)
	close(h.release)
	soon(t, h.woke, "what hung")
	require.Empty(t, w.receipts())
	require.EqualValues(t, 1, w.uncommitted("a"))
}

// TestSlowBackendIsNoFault: every call takes several times stalled_after, and
// followers wait in line for few permits even longer. Nothing moves and nobody
// is alarmed.
func TestSlowBackendIsNoFault(t *testing.T) {
	t.Parallel() // it waits most of its time
	const users = 6
	w := newWorld(t, "a")
	w.cfg.StalledAfter = time.Second
	told := w.listen()
	w.backend(func(rw http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(2500 * time.Millisecond):
		case <-r.Context().Done():
		}
		_, _ = rw.Write([]byte(`{"text":"late"}`))
	}, func(c *backend.Config) { c.Timeout = 10 * time.Second })
	r := w.start(robot.Account{Name: "a", Limits: robot.Limits{Rate: 1000, Burst: 10, Concurrency: 2}})
	require.Eventually(t, func() bool { return len(r.Stats()) == wire.PartitionsEmbedded }, patient, 10*time.Millisecond)
	before := counted(t, w.reg, "tidegate_kafka_rebalances_total")
	for u := range users {
		w.send(callback("a", fmt.Sprintf("o%d", u), 1, "ask x"))
	}
	w.awaitReceipts(users)
	require.Empty(t, told.told())
	require.Equal(t, before, counted(t, w.reg, "tidegate_kafka_rebalances_total"))
	require.Zero(t, counted(t, w.reg, "tidegate_kafka_stalls_total"))
	n, err := testutil.GatherAndCount(w.reg, "tidegate_kafka_stalls_total")
	require.NoError(t, err)
	require.Equal(t, 1, n, "the counter must be there, or its zero shows nothing")
}
