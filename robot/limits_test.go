package robot_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/control"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
	"tidegate/robot"
	"tidegate/robot/backend"
)

// steered gives the world live limits, on a database of its own.
func (w *world) steered() *control.Panel {
	w.t.Helper()
	db := sqldbtest.OpenSQLite(w.t)
	require.NoError(w.t, control.Migrate(w.t.Context(), db))
	p, err := control.New(control.Options{DB: db, Node: "node-1"})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); require.NoError(w.t, <-done) })
	w.knobs = p.Knobs()
	return p
}

// set changes a limit and waits until it is at work.
func (w *world) set(p *control.Panel, subject string, l *control.Limit) {
	w.t.Helper()
	e, err := p.SetLimit(w.t.Context(), control.LimitChange{Subject: subject, To: l, By: "duty", Reason: "test"})
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool {
		v := p.Overview(w.t.Context())
		return v.Nodes[0].Version >= e.Version
	}, patient, time.Millisecond)
}

// inHand is how many callbacks a robot has begun and not finished.
func inHand(r *running) (n int) {
	for _, s := range r.Stats() {
		n += s.InFlight
	}
	return n
}

// D9: an account's cap is changed under load, without a restart: what waits
// waits, a configuration that is read again does not undo it, and taken back the
// file's value holds.
func TestAnAccountsCapIsChangedWhileItWorks(t *testing.T) {
	const users = 20
	w := newWorld(t, "a")
	w.cfg.Overload = robot.OverloadConfig{AlarmAfter: time.Minute} // nobody is refused
	p := w.steered()
	r := w.start(account("a"))
	w.send(callback("a", "o0", 1, "hello"))
	w.awaitReceipts(1)
	w.set(p, "robot.account.a", &control.Limit{Rate: 1e-4, Burst: 1})
	for i := range users {
		w.send(callback("a", fmt.Sprint("o", i), 2, "hello"))
	}
	atMost := func() int { return len(w.receipts()) }
	require.Eventually(t, func() bool { return inHand(r)+atMost() >= users+1 }, patient, 5*time.Millisecond, "all have been fetched")
	require.LessOrEqual(t, atMost(), 2, "and wait")
	require.NoError(t, r.SetAccounts([]robot.Account{account("a")}))
	require.LessOrEqual(t, atMost(), 2)
	w.set(p, "robot.account.a", &control.Limit{Rate: 1e5, Burst: 100, Concurrency: 1})
	w.awaitReceipts(users + 1)
	w.set(p, "robot.account.a", nil)
	v := p.Overview(t.Context())
	require.Equal(t, control.Limit{}, v.Limits[0].Nodes[0].Now)
	require.NoError(t, r.SetAccounts(nil))
	require.Empty(t, only(p.Overview(t.Context()).Limits, "robot.account.a"), "an account that is gone has no limit")
}

func only(all []control.LimitView, subject string) (found []control.LimitView) {
	for _, l := range all {
		if l.Subject == subject {
			found = append(found, l)
		}
	}
	return found
}

// More at once than the configuration had connections, and the account workers,
// for: both follow.
func TestConcurrencyIsRaisedAboveTheConfiguration(t *testing.T) {
	const many = 12
	w := newWorld(t, "a")
	var now, most atomic.Int64
	all := make(chan struct{})
	var once sync.Once
	w.backend(func(rw http.ResponseWriter, req *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if n == many {
			once.Do(func() { close(all) })
		}
		select { // each holds its place until all are here
		case <-all:
		case <-req.Context().Done():
		}
		_, _ = rw.Write([]byte(`{"text":"hi"}`))
	}, func(c *backend.Config) { c.Rate, c.Burst, c.Concurrency, c.Timeout = 1000, 100, 2, 30*time.Second })
	w.cfg.Workers = 2
	w.cfg.Overload = robot.OverloadConfig{AlarmAfter: time.Minute}
	p := w.steered()
	r := w.start(account("a"))
	w.set(p, "robot.account.a", &control.Limit{Concurrency: many})
	for i := range many {
		w.send(callback("a", fmt.Sprint("o", i), 1, "ask x"))
	}
	require.Eventually(t, func() bool { return now.Load() == 2 && inHand(r) == many }, patient, time.Millisecond)
	w.set(p, "robot.backend.core", &control.Limit{Rate: 1000, Burst: 100, Concurrency: many})
	select {
	case <-all:
	case <-time.After(patient):
		t.Fatalf("only %d at once", most.Load())
	}
	require.Eventually(t, func() bool { return len(w.receipts()) == many }, patient, 10*time.Millisecond)
	for _, one := range w.receipts() {
		require.Equal(t, wire.Answered, one.State)
	}
	require.NoError(t, r.SetAccounts([]robot.Account{account("a")}), "a configuration that is read again does not take workers away")
	require.EqualValues(t, many, most.Load())
}
