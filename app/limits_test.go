package app

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/control"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wechat/wechatsim"
)

// desk is a process with live limits and an operations listener, on a database
// and a Redis that others may share.
type desk struct {
	t     *testing.T
	cfg   Config
	panel *control.Panel
	held  *holds
	url   string
	keys  map[string]string // by name
	stop  func()
	mu    sync.Mutex
	holds control.Limit
}

var deskFile = control.Limit{Rate: 200, Burst: 20, Concurrency: 64}

func newDesk(t *testing.T, name string, change func(*Config)) *desk {
	t.Helper()
	d := &desk{t: t, keys: map[string]string{}, holds: deskFile}
	c := DefaultConfig()
	c.Control.SlowStart = 0
	for _, scope := range []string{"read", "steer", "write"} {
		text, hash := telemetry.NewOpsKey()
		d.keys[scope] = text
		c.Ops.Keys = append(c.Ops.Keys, telemetry.OpsKey{Name: "anna-" + scope, SHA256: hash, Scopes: []string{scope}})
	}
	both, hash := telemetry.NewOpsKey()
	d.keys["both"] = both
	c.Ops.Keys = append(c.Ops.Keys, telemetry.OpsKey{Name: "anna", SHA256: hash, Scopes: []string{"read", "steer"}})
	change(&c)
	d.cfg = c
	e := newEngines(c, zap.NewNop())
	e.node = name
	live, err := e.Steering(t.Context())
	require.NoError(t, err)
	live.Knobs().Put(control.Knob{Subject: "robot.account.card", File: deskFile, Apply: func(s control.Step) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.holds = s.Now
	}})
	p := live.into(&part{role: RoleRobot})
	ops, err := e.newOps()
	require.NoError(t, err)
	p.register(ops)
	server := httptest.NewServer(ops)
	d.panel, d.url, d.held = live.Panel, server.URL, live.held
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- live.Run(ctx) }()
	d.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
		server.Close()
		require.NoError(t, e.stack.Stop(context.Background()))
	})
	t.Cleanup(d.stop)
	return d
}

// shared is what the nodes of a site share: a database and a Redis.
func shared(t *testing.T) func(*Config) {
	t.Helper()
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "site.db")
	return func(c *Config) {
		c.Redis.Addrs = []string{s.Addr()}
		c.Database.DSN, c.Database.Synchronous = file, "normal"
	}
}

func (d *desk) now() control.Limit {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.holds
}

// open waits until the node has read the settings.
func (d *desk) open() {
	d.t.Helper()
	require.Eventually(d.t, func() bool { return d.panel.View().Age() != control.Never }, 20*time.Second, 5*time.Millisecond)
}

func (d *desk) cli(f func(LimitsOptions) error) (string, error) {
	var out bytes.Buffer
	err := f(LimitsOptions{Ops: d.url, Key: d.keys["both"], Out: &out})
	return out.String(), err
}

func (d *desk) set(l LimitsChange) (string, error) {
	return d.cli(func(o LimitsOptions) error { return LimitsSet(d.t.Context(), o, l) })
}

func ptr[T any](v T) *T { return &v }

// D9: what one node is told holds on the other as well, and the command waits
// for both and says how long it took.
func TestLimitsAreSetShownResetAndLogged(t *testing.T) {
	site := shared(t)
	a, b := newDesk(t, "a-1", site), newDesk(t, "b-2", site)
	a.open()
	b.open()
	require.Eventually(t, func() bool { // that there are two comes by way of Redis
		out, err := a.cli(func(o LimitsOptions) error { return LimitsShow(t.Context(), o) })
		require.NoError(t, err)
		return strings.Contains(out, "a-1 ") && strings.Contains(out, "b-2 ")
	}, 20*time.Second, 5*time.Millisecond)
	out, err := a.set(LimitsChange{Subject: "robot.account.card", Rate: ptr(20.0), Reason: "the core is slow", Wait: 20 * time.Second, For: time.Hour})
	require.NoError(t, err)
	require.Contains(t, out, "robot.account.card: 200/s, burst 20, 64 at once → 20/s, burst 20, 64 at once until ")
	require.Regexp(t, `at work on 2 of 2 nodes after \d+\.\d\ds`, out)
	want := control.Limit{Rate: 20, Burst: 20, Concurrency: 64}
	require.Equal(t, want, a.now())
	require.Equal(t, want, b.now())

	show := func() string {
		out, err := b.cli(func(o LimitsOptions) error { return LimitsShow(t.Context(), o) })
		require.NoError(t, err)
		return out
	}
	// What another node says of itself comes by way of Redis, a moment after it is so.
	aSaid := regexp.MustCompile(`a-1 +1 +\d+\.\ds ago`)
	require.Eventually(t, func() bool { out = show(); return aSaid.MatchString(out) }, 20*time.Second, 5*time.Millisecond)
	require.Regexp(t, `robot.account.card +20/s, burst 20, 64 at once +200/s, burst 20, 64 at once +1 +anna +\d{4}-\S+ \S+ +\d{4}-\S+ \S+ +the core is slow`, out)
	require.Regexp(t, `b-2 +1 `, out)

	out, err = b.set(LimitsChange{Subject: "robot.account.card", Reset: true, Reason: "well again", Wait: 20 * time.Second})
	require.NoError(t, err)
	require.Contains(t, out, "→ 200/s, burst 20, 64 at once, as in the file (version 2)")
	require.Equal(t, deskFile, a.now())
	require.Contains(t, show(), "robot.account.card  200/s, burst 20, 64 at once  200/s, burst 20, 64 at once  -  ")

	out, err = a.cli(func(o LimitsOptions) error {
		return LimitsLog(t.Context(), AuditOptions{LimitsOptions: o, Limit: 10, Verify: true})
	})
	require.NoError(t, err)
	lines := strings.Split(out, "\n")
	require.Regexp(t, `^2 .* anna +limit +robot.account.card +20/s, burst 20, 64 at once +the file's +- +well again`, lines[1])
	require.Regexp(t, `^1 .* anna +limit +robot.account.card +the file's +20/s, burst 20, 64 at once +\d{4}.* +the core is slow`, lines[2])
	require.Contains(t, out, "the audit is whole: 2 entries")

	b.stop()
	_, err = a.set(LimitsChange{Subject: "robot.account.card", Concurrency: ptr(3), Reason: "x", Wait: 20 * time.Second})
	require.NoError(t, err, "a node that has stopped is not waited for")
}

// A change behind the audit is found by whoever asks.
func TestLimitsLogFindsWhatWasDoneByHand(t *testing.T) {
	d := newDesk(t, "a", shared(t))
	d.open()
	_, err := d.set(LimitsChange{Subject: "robot.account.card", Rate: ptr(20.0), Reason: "x"})
	require.NoError(t, err)
	db, err := sqldb.Open(t.Context(), d.cfg.Database)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	n, err := db.Exec(t.Context(), "UPDATE control_audit SET changed_by = 'nobody'")
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	out, err := d.cli(func(o LimitsOptions) error {
		return LimitsLog(t.Context(), AuditOptions{LimitsOptions: o, Limit: 10, Verify: true})
	})
	require.ErrorIs(t, err, ErrReported)
	require.Contains(t, out, "THE AUDIT IS BROKEN: entry 1 was edited")
}

// A role without a database, and one whose database is away, work with what
// their file says and tell why nothing can be changed.
func TestLimitsWithoutADatabase(t *testing.T) {
	off := newDesk(t, "a", func(*Config) {})
	_, err := off.set(LimitsChange{Subject: "robot.account.card", Rate: ptr(1.0), Reason: "x"})
	require.ErrorContains(t, err, "this role has no database in its configuration (database.dsn)")
	out, err := off.cli(func(o LimitsOptions) error { return LimitsShow(t.Context(), o) })
	require.NoError(t, err)
	require.Contains(t, out, "nothing can be changed here: this role has no database")
	require.Contains(t, out, "the file's limits hold")

	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	away := newDesk(t, "b", func(c *Config) {
		c.Redis.Addrs, c.Database.Driver, c.Database.DSN = []string{s.Addr()}, "postgres", "postgres://u:geheim@127.0.0.1:1/x?sslmode=disable"
	})
	_, err = away.set(LimitsChange{Subject: "robot.account.card", Rate: ptr(1.0), Reason: "x"})
	require.ErrorContains(t, err, "Nothing was done")
	require.NotContains(t, err.Error(), "geheim")
	out, err = away.cli(func(o LimitsOptions) error { return LimitsShow(t.Context(), o) })
	require.NoError(t, err)
	require.Contains(t, out, "the database has not been reached yet")
	require.Equal(t, deskFile, away.now())
}

// The whole gate, by effect: a robot that is slowed lets what comes wait, and
// works it off when it is let go.
func TestLimitsOfARunningGate(t *testing.T) {
	w, err := startDev(t.Context(), DevOptions{}, t.TempDir(), zap.NewNop())
	defer func() { require.NoError(t, w.stop()) }()
	require.NoError(t, err)
	users, err := w.sim.Followers("", 30)
	require.NoError(t, err)
	o := LimitsOptions{Ops: w.ops.Addr(), Out: io.Discard}
	require.Eventually(t, func() bool { return LimitsShow(t.Context(), o) == nil && w.engines.panel.View().Age() != control.Never }, 20*time.Second, 10*time.Millisecond)
	var out bytes.Buffer
	o.Out = &out
	require.NoError(t, LimitsSet(t.Context(), o, LimitsChange{Subject: "robot.account.demo", Rate: ptr(0.001), Burst: ptr(1), Reason: "test", Wait: 20 * time.Second}))
	require.Contains(t, out.String(), "at work on 1 of 1 nodes")
	for _, u := range users {
		d, err := w.sim.Act(t.Context(), "", wechatsim.Menu(u, "BILL:1"))
		require.NoError(t, err)
		require.True(t, d.Acked)
	}
	begun := func() (n int) {
		for _, s := range w.parts[RoleRobot].stats() {
			n += s.InFlight
		}
		return n
	}
	require.Eventually(t, func() bool { return begun() >= len(users)-1 }, 20*time.Second, 10*time.Millisecond, "all are in hand and wait")
	require.NoError(t, LimitsSet(t.Context(), o, LimitsChange{Subject: "robot.account.demo", Reset: true, Reason: "test", Wait: 20 * time.Second}))
	require.Contains(t, out.String(), "what rises does so in a straight line over 10s")
	require.Eventually(t, func() bool { return begun() == 0 }, 20*time.Second, 10*time.Millisecond)
	var v control.Overview
	out.Reset()
	o.JSON = true
	require.NoError(t, LimitsShow(t.Context(), o))
	require.NoError(t, json.Unmarshal(out.Bytes(), &v))
	var subjects []string
	for _, l := range v.Limits {
		subjects = append(subjects, l.Subject)
	}
	require.Subset(t, subjects, []string{"robot.account.demo", "sender.demo.replies", "sender.demo.subscription", "sender.demo.template"}, "robot and sender share the process")
}
