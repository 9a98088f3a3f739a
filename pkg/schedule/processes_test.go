//go:build unix

package schedule_test

import (
	"bufio"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/redis"
	"tidegate/pkg/schedule"
	"tidegate/pkg/sqldb"
)

// nodeVar makes a process of this test's binary a node; its value is what it needs.
const nodeVar = "TIDEGATE_TEST_JOBS_NODE"

// nodeSettings go to a process over the environment.
type nodeSettings struct {
	Name, Redis, Prefix string
	DB                  sqldb.Config
	Lease               time.Duration
}

// everySecond is what the nodes do: a run takes a part of a second, so that a
// signal meets some of them in the middle.
func everySecond(name string) (schedule.Job, error) {
	spec, err := schedule.ParseSpec("@every 1s", "UTC")
	return schedule.Job{Name: "tick", Spec: spec, Timeout: time.Minute, CatchUp: 20 * time.Second, Retry: schedule.Retry{Most: 5}, Interrupted: schedule.Again,
		Do: func(ctx context.Context, r *schedule.Run) error {
			t := time.NewTimer(400 * time.Millisecond)
			defer t.Stop()
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-t.C:
			}
			return note(ctx, name, r)
		}}, err
}

// TestANode is no test but what a process of TestProcesses does.
func TestANode(t *testing.T) {
	text := os.Getenv(nodeVar)
	if text == "" {
		t.Skip("it is a process of TestProcesses")
	}
	var c nodeSettings
	require.NoError(t, json.Unmarshal([]byte(text), &c))
	db, err := sqldb.Open(t.Context(), c.DB)
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	rc := redis.DefaultConfig()
	rc.Addrs, rc.Prefix = []string{c.Redis}, c.Prefix
	client, err := redis.Open(rc, zap.NewNop())
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	j, err := everySecond(c.Name)
	require.NoError(t, err)
	o := schedule.Options{Config: schedule.DefaultConfig(), Team: "test", Node: c.Name, Jobs: []schedule.Job{j}, Store: schedule.NewStore(db, nil), Redis: client}
	o.Lease = c.Lease
	s, err := schedule.New(o)
	require.NoError(t, err)
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	_, err = os.Stdout.WriteString("up\n")
	require.NoError(t, err)
	require.NoError(t, s.Run(ctx))
}

type process struct {
	name string
	cmd  *exec.Cmd
}

func (w *world) spawn(name string, c nodeSettings) *process {
	w.Helper()
	c.Name = name
	text, err := json.Marshal(c)
	require.NoError(w, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestANode$", "-test.timeout=15m")
	cmd.Env = append(os.Environ(), nodeVar+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(w, err)
	require.NoError(w, cmd.Start())
	w.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill() // it may be gone
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(w, err)
	require.Equal(w, "up\n", line)
	return &process{name, cmd}
}

// G14 with processes and real time: the leader is killed, or stopped for twice
// its lease, again and again. TIDEGATE_TEST_JOBS_FOR says for how long; without
// it the test is left out, since slots are seconds.
func TestProcesses(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("TIDEGATE_TEST_JOBS_FOR"))
	if err != nil {
		t.Skip("it takes real time: set TIDEGATE_TEST_JOBS_FOR, for example to 60s")
	}
	each(t, func(w *world) {
		c := nodeSettings{Redis: w.redis, Prefix: w.prefix, DB: w.cfg, Lease: time.Second}
		nodes := map[string]*process{}
		made := 0
		add := func() {
			made++
			name := "node-" + strconv.Itoa(made)
			nodes[name] = w.spawn(name, c)
		}
		for range 3 {
			add()
		}
		leader := func() (name string) {
			w.eventually("one of the living leads and has begun something", func() bool {
				var fence, began int64
				err := w.db.QueryRow(w.Context(), "SELECT node, fence FROM job_head").Scan(&name, &fence)
				if err != nil || nodes[name] == nil {
					return false
				}
				err = w.db.QueryRow(w.Context(), "SELECT COUNT(*) FROM job_runs WHERE fence = $1", fence).Scan(&began)
				return err == nil && began > 0
			})
			return name
		}
		kills, stops := 0, 0
		began := time.Now()
		for time.Since(began) < length {
			name := leader()
			p := nodes[name]
			wait(t, rand.N(time.Second))
			if kills > stops {
				require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
				wait(t, 2*c.Lease)
				require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
				stops++
				continue
			}
			require.NoError(t, p.cmd.Process.Kill())
			require.Error(t, p.cmd.Wait())
			delete(nodes, name)
			kills++
			add()
		}
		leader()
		wait(t, 3*time.Second) // what is caught up still
		for _, p := range nodes {
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, p.cmd.Wait())
		}
		w.judgeProcesses(kills, stops)
	})
}

func wait(t *testing.T, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// judgeProcesses: rows follow one another second by second, each effect is there
// once, and none began later than a minute.
func (w *world) judgeProcesses(kills, stops int) {
	effects := map[time.Time]int{}
	for _, slot := range w.effects("tick") {
		effects[slot]++
	}
	rows := w.history("tick")
	require.NotEmpty(w, rows)
	next, again, open := rows[0].Slot, 0, 0
	var worst time.Duration
	for _, r := range rows {
		require.Equal(w, next, r.Slot, "no slot is skipped and none is there twice")
		next = r.LastSlot.Add(time.Second)
		if r.Attempt > 1 {
			again++
		}
		switch {
		case r.State == schedule.Done:
			require.Equal(w, 1, effects[r.Slot], "%+v", r)
			worst = max(worst, r.Ended.Sub(r.Slot))
		case r.Open():
			require.Zero(w, effects[r.Slot], "%+v", r)
			open++
		default:
			require.Zero(w, effects[r.Slot], "%+v", r)
			require.NotEqual(w, schedule.Missed, r.State, "within the window nothing is missed: %+v", r)
		}
	}
	require.Less(w, open, 5, "only the last ones may wait when everybody is stopped")
	require.Positive(w, kills)
	require.Positive(w, stops)
	require.Positive(w, again, "a signal has met a run in its middle")
	w.Logf("BAR G14 with processes: %d slots, %d kills, %d stops of twice the lease: %d runs met in the middle, doubled 0, missing 0, latest success %s behind its slot; bar 60s",
		len(rows), kills, stops, again, worst.Round(100*time.Millisecond))
	require.Less(w, worst, time.Minute)
}
