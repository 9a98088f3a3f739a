package kafka

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	silentFor = 30 * time.Second
	lookEvery = silentFor / looks
)

// bench runs a scheduler with one worker and a watch in a bubble of its own time.
type bench struct {
	*machine
	stalls chan []*call
	gaps   chan time.Duration
	stop   func()
}

func newBench(t *testing.T, h Handler) *bench {
	m := newMachine(t, GroupOptions{Handler: h, Workers: 2})
	b := &bench{machine: m, stalls: make(chan []*call, 1000), gaps: make(chan time.Duration, 1000)}
	// A machine's scheduler was made without a beat of its own.
	m.s.watch.frozen = func(gap time.Duration) { m.s.cutOff(nil); b.gaps <- gap }
	unwatch := m.s.watch.run(500*time.Millisecond, silentFor, func(c []*call) { b.stalls <- c })
	unwork := m.s.start()
	b.stop = func() { unwatch(); unwork(false) }
	return b
}

// A handler that never shows a sign of life is found after StallAfter, and at
// most two looks later; its partition is named.
func TestSilentHandlerIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBench(t, func(_ context.Context, r Record) error {
			if r.Offset == 1 {
				<-release
			}
			return nil
		})
		for range 5 {
			b.push(nil)
		}
		began := time.Now()
		calls := <-b.stalls
		took := time.Since(began)
		require.GreaterOrEqual(t, took, silentFor)
		require.LessOrEqual(t, took, silentFor+2*lookEvery)
		s := stallOf(calls, b.s.watch.now())
		require.Equal(t, []StalledPartition{{Topic: "t", Partition: 0, Offset: 1, Handlers: 1}}, s.Partitions)
		require.Equal(t, took, s.Silent)
		require.EqualValues(t, 1, b.sess.marked, "the others of the partition are done, and cannot be committed")
		close(release)
		synctest.Wait()
		require.Empty(t, b.s.watch.calls())
		for len(b.stalls) > 0 {
			<-b.stalls
		}
		<-time.After(10 * silentFor)
		require.Empty(t, b.stalls, "nobody is silent any more")
		b.stop()
	})
}

// What is slow and says so is never suspected: attempts of any number, a call
// within its deadline, a place in a line, and a key whose handler fails and is
// held with backoff.
func TestSlowHandlersAreNotSuspected(t *testing.T) {
	wait := func(ctx context.Context, d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	for name, h := range map[string]Handler{
		"attempts": func(ctx context.Context, _ Record) error {
			for range 60 {
				Alive(ctx, 0)
				wait(ctx, silentFor-lookEvery)
			}
			return nil
		},
		"within a deadline": func(ctx context.Context, _ Record) error {
			Alive(ctx, 10*time.Minute)
			wait(ctx, 10*time.Minute+silentFor-lookEvery)
			return nil
		},
		"in a line": func(ctx context.Context, _ Record) error {
			Alive(ctx, AsLongAsItTakes)
			wait(ctx, 1000*time.Hour)
			return nil
		},
		"failing": func(ctx context.Context, _ Record) error {
			wait(ctx, silentFor-lookEvery)
			return errors.New("the back end is away")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, h)
				b.s.opt.RetryMin, b.s.opt.RetryMax = 5*time.Second, time.Minute
				b.push([]byte("a"))
				b.push([]byte("b"))
				<-time.After(2 * time.Hour)
				require.Empty(t, b.stalls)
				require.Empty(t, b.gaps)
				b.s.drain(b.c, 0)
				b.stop()
			})
		})
	}
}

// A sign of life that comes from a handler that has returned counts for nobody.
func TestLateSignOfLifeIsNobodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := make(chan context.Context, 1)
		release := make(chan struct{})
		b := newBench(t, func(ctx context.Context, r Record) error {
			if r.Offset == 0 {
				first <- ctx
				return nil
			}
			<-release
			return nil
		})
		b.push([]byte("a"))
		late := <-first
		b.push([]byte("a"))
		for range 100 {
			Alive(late, time.Hour)
			<-time.After(time.Second)
		}
		require.NotEmpty(t, b.stalls)
		close(release)
		b.stop()
	})
}

// A process that stood still finds its handlers unchanged and the clock far
// ahead. That is no stall, and nothing is owned any more: a handler learns it
// before its next effect, even before the ticker has run.
func TestStandingStillIsNoStall(t *testing.T) {
	now := func(w *watch, d time.Duration) { w.epoch = w.epoch.Add(-d) }
	w := newWatch(1, 6*time.Second, time.Second, nil)
	gaps := 0
	w.frozen = func(gap time.Duration) { gaps++; require.Greater(t, gap, 5*time.Second) }
	c := &call{watch: w}
	w.running[0].Store(c)
	for range looks - 1 {
		now(w, time.Second)
		w.beat()
		require.Empty(t, w.look())
	}
	c.quiet.Store(w.now())
	now(w, time.Hour)
	require.Empty(t, w.look(), "one look after an hour is one look")
	require.NoError(t, Owned(context.WithValue(t.Context(), callKey{}, c)), "the context of this test is not a claim's")
	require.Equal(t, 1, gaps)
	w.beat()
	require.Equal(t, 1, gaps, "one gap is reported once")
	now(w, 4*time.Second)
	w.beat()
	require.Equal(t, 1, gaps, "a pause within the session is none")
}

// After a gap Owned refuses and the handler's context has ended; outside a
// handler all three calls do nothing.
func TestOwnedAfterStandingStill(t *testing.T) {
	m := newMachine(t, GroupOptions{Handler: func(context.Context, Record) error { return nil }})
	w := m.s.watch
	ctx := context.WithValue(m.c.ctx, callKey{}, &call{claim: m.c, watch: w})
	w.beat()
	require.NoError(t, Owned(ctx))
	w.epoch = w.epoch.Add(-5100 * time.Millisecond)
	require.Error(t, Owned(ctx))
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	m.push([]byte("a"))
	require.Zero(t, m.s.ring.len(), "nothing of it is begun")

	Alive(t.Context(), time.Second)
	require.NoError(t, Owned(t.Context()))
	n, at := Attempt(t.Context())
	require.Zero(t, n)
	require.True(t, at.IsZero())
}
