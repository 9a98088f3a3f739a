package app

import (
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/control"
	"tidegate/pkg/schedule"
	"tidegate/pkg/telemetry"
)

// startJobs runs a part with jobs behind an operations listener with keys, as a
// role does. It gives the listener's address and the keys' texts.
func startJobs(t *testing.T, node string, site func(*Config), jobs ...schedule.Job) (e *engines, url string, keys map[string]string) {
	t.Helper()
	c := DefaultConfig()
	c.Jobs.Lease = time.Second
	keys = map[string]string{}
	for name, scopes := range map[string][]string{"reader": {"read"}, "anna": {"read", "steer"}} {
		text, hash := telemetry.NewOpsKey()
		keys[name] = text
		c.Ops.Keys = append(c.Ops.Keys, telemetry.OpsKey{Name: name, SHA256: hash, Scopes: scopes})
	}
	site(&c)
	e = newEngines(c, zap.NewNop())
	e.node = node
	p := &part{role: RoleReceipts}
	require.NoError(t, e.withJobs(t.Context(), p, jobs))
	ops, err := e.newOps()
	require.NoError(t, err)
	p.register(ops)
	server := httptest.NewServer(ops)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, s := range p.services {
		all.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Errorf("run: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
		server.Close()
		require.NoError(t, e.stack.Stop(context.Background()))
	})
	return e, server.URL, keys
}

func yearly(t *testing.T, do func(context.Context, *schedule.Run) error) schedule.Job {
	t.Helper()
	spec, err := schedule.ParseSpec("0 0 1 1 *", "Asia/Shanghai")
	require.NoError(t, err)
	return schedule.Job{Name: "yearly", About: "what the test does", Spec: spec, Timeout: time.Minute, Retry: schedule.Retry{Most: 1}, Interrupted: schedule.Leave, Do: do}
}

// What a person does about jobs: look, run one by hand, see what became of it
// and who asked.
func TestJobsAreListedRunAndLogged(t *testing.T) {
	var mu sync.Mutex
	var slots []time.Time
	fail := errors.New("the disk is full")
	job := yearly(t, func(_ context.Context, r *schedule.Run) error {
		mu.Lock()
		defer mu.Unlock()
		slots = append(slots, r.Slot)
		if len(slots) > 1 {
			return fail
		}
		return nil
	})
	e, url, keys := startJobs(t, "a-1", shared(t), job)
	cli := func(key string, f func(JobsOptions) error) (string, error) {
		var out bytes.Buffer
		err := f(JobsOptions{Ops: url, Key: keys[key], Out: &out})
		return out.String(), err
	}
	list := func() string {
		out, err := cli("reader", func(o JobsOptions) error { return JobsList(t.Context(), o) })
		require.NoError(t, err)
		return out
	}
	require.Eventually(t, func() bool { return strings.Contains(list(), "a-1 leads since") }, 20*time.Second, 10*time.Millisecond)
	require.Regexp(t, `yearly +0 0 1 1 \* Asia/Shanghai +\d{4}-12-31 16:00:00 +- +- +-`, list())
	run := func(r JobRun) (string, error) {
		return cli("anna", func(o JobsOptions) error { return JobsRun(t.Context(), o, r) })
	}

	_, err := cli("reader", func(o JobsOptions) error { return JobsRun(t.Context(), o, JobRun{Name: "yearly", Reason: "x"}) })
	require.ErrorContains(t, err, "scope steer")
	_, err = run(JobRun{Name: "yearly"})
	require.ErrorIs(t, err, ErrUsage)
	_, err = run(JobRun{Name: "nightly", Reason: "x"})
	require.ErrorContains(t, err, "no job")
	_, err = run(JobRun{Name: "yearly", Reason: "x", Slot: "yesterday"})
	require.ErrorIs(t, err, ErrUsage)
	_, err = run(JobRun{Name: "yearly", Reason: "x", Slot: "2999-01-01T00:00:00Z"})
	require.ErrorContains(t, err, "still to come")

	require.Eventually(t, func() bool { // the first plan may still be to come
		out, err := run(JobRun{Name: "yearly", Reason: "audit of 2025", Slot: "2025-01-01T00:00:00+08:00", Wait: 20 * time.Second})
		return err == nil && strings.Contains(out, "done on a-1")
	}, 20*time.Second, 10*time.Millisecond)
	_, err = run(JobRun{Name: "yearly", Reason: "once more", Wait: 20 * time.Second})
	require.ErrorContains(t, err, "failed: the disk is full")
	mu.Lock()
	require.Len(t, slots, 2)
	require.Equal(t, "2025-01-01T00:00:00+08:00", slots[0].Format(time.RFC3339), "the run stands for what it was asked for, in the job's zone")
	mu.Unlock()

	out, err := cli("reader", func(o JobsOptions) error { return JobsLog(t.Context(), o, "yearly", 20) })
	require.NoError(t, err)
	require.Contains(t, out, "asked for by anna: audit of 2025")
	require.Contains(t, out, "asked for by anna: once more; the disk is full")
	require.Contains(t, list(), "failed")
	log, err := control.NewStore(e.db, nil).Log(t.Context(), control.LogQuery{Kind: auditJob, Subject: "yearly", Limit: 10})
	require.NoError(t, err)
	require.Equal(t, []string{"anna", "once more"}, []string{log[0].By, log[0].Reason})
	proof, err := control.NewStore(e.db, nil).Verify(t.Context())
	require.NoError(t, err)
	require.Empty(t, proof.Broken)
}

// Somebody who clicks twice runs it once.
func TestAJobThatWasAskedForIsNotAskedForAgain(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	_, url, keys := startJobs(t, "a-1", shared(t), yearly(t, func(context.Context, *schedule.Run) error {
		close(begun)
		<-release
		return nil
	}))
	run := func(wait time.Duration) (string, error) {
		var out bytes.Buffer
		err := JobsRun(t.Context(), JobsOptions{Ops: url, Key: keys["anna"], Out: &out}, JobRun{Name: "yearly", Reason: "x", Wait: wait})
		return out.String(), err
	}
	require.Eventually(t, func() bool { _, err := run(0); return err == nil }, 20*time.Second, 10*time.Millisecond)
	<-begun
	_, err := run(0)
	require.ErrorContains(t, err, "asked for already")
	close(release)
}

func TestARoleWithoutJobsSaysSo(t *testing.T) {
	e, url, keys := startJobs(t, "a-1", func(*Config) {})
	require.Nil(t, e.redis, "it needs no Redis")
	var out bytes.Buffer
	require.NoError(t, JobsList(t.Context(), JobsOptions{Ops: url, Key: keys["reader"], Out: &out}))
	require.Contains(t, out.String(), "receipts.report.dir")
	err := JobsRun(t.Context(), JobsOptions{Ops: url, Key: keys["anna"], Out: &out}, JobRun{Name: "x", Reason: "y"})
	require.ErrorContains(t, err, "no job is configured here")
}

// The alarm is about a success that is late, and ends with it.
func TestAnOverdueJobIsAnAlarm(t *testing.T) {
	e := newEngines(DefaultConfig(), zap.NewNop())
	e.tellOverdue("yearly", 59*time.Minute, "")
	require.Empty(t, e.Alarms().Firing())
	e.tellOverdue("yearly", 61*time.Minute, "the disk is full")
	firing := e.Alarms().Firing()
	require.Len(t, firing, 1)
	require.Equal(t, []string{alarmJobOverdue, "yearly"}, []string{firing[0].Name, firing[0].Subject})
	require.Contains(t, firing[0].Text, "the disk is full")
	e.tellOverdue("yearly", 0, "")
	require.Empty(t, e.Alarms().Firing())
}
