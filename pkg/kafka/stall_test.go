package kafka_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
)

// hang lets one member's handlers of some keys hang, deaf to their context,
// until it is released.
type hang struct {
	release chan struct{}
	begun   chan struct{}
	once    sync.Once
	late    chan error // what Owned says to a handler that woke up
}

func newHang() *hang {
	return &hang{release: make(chan struct{}), begun: make(chan struct{}), late: make(chan error, 100)}
}

func (h *hang) here(ctx context.Context) error {
	h.once.Do(func() { close(h.begun) })
	<-h.release
	err := kafka.Owned(ctx)
	h.late <- err
	return err
}

// Of three members one hangs on one key. It leaves by itself: another takes its
// partitions over, each record has its effect once and in order, and the
// partitions of the others go on. What hung learns that it owns nothing when it
// wakes up, and the member joins again.
func TestStalledMemberLeavesAndComesBack(t *testing.T) {
	t.Parallel()
	const parts, each = 6, 20
	cfg := engine(t)
	tp := topic(t, cfg, parts)
	p := producer(t, cfg, kafka.ProducerOptions{})
	group := unique(t, "g")
	seen := newLedger(t)
	h := newHang()
	stalls, resumed := make(chan kafka.Stall, 10), make(chan struct{}, 10)
	join := func(name string, sick bool) *member {
		return run(t, cfg, kafka.GroupOptions{Group: group, Topics: []string{tp}, Workers: 8, SessionTimeout: 6 * time.Second,
			StallAfter: time.Second, GiveUpAfter: time.Minute,
			OnStall: func(s kafka.Stall) { stalls <- s }, OnResume: func() { resumed <- struct{}{} },
			Handler: func(ctx context.Context, r kafka.Record) error {
				if sick && string(r.Value) == "5" {
					if err := h.here(ctx); err != nil {
						return err
					}
				}
				seen.note(name, string(r.Key), r)
				return nil
			}})
	}
	sick := join("sick", true)
	others := []*member{join("b", false), join("c", false)}
	require.Eventually(t, func() bool {
		return len(sick.Stats()) == 2 && len(others[0].Stats()) == 2 && len(others[1].Stats()) == 2
	}, 30*time.Second, 10*time.Millisecond, "the partitions must be shared")
	for n := range each {
		for part := range int32(parts) {
			publish(t, p, tp, keyFor(part, parts, 0), strconv.Itoa(n))
		}
	}
	wait(t, h.begun, "the hang")
	s := wait(t, stalls, "the stall")
	require.GreaterOrEqual(t, s.Silent, time.Second)
	require.GreaterOrEqual(t, s.Handlers, 1)
	require.NotEmpty(t, s.Partitions)
	wait(t, seen.reached(parts*each), "all records, without the one that hangs")
	require.Zero(t, seen.back(), "order of keys")
	require.Empty(t, sick.Stats(), "it has left")
	require.Empty(t, resumed, "it must not come back while its handlers hang")
	worked := func() int { return seen.by("sick") + seen.by("b") + seen.by("c") }
	before := worked()
	require.Equal(t, parts*each, before, "one by one, nothing was under way but what hung")

	close(h.release)
	require.Error(t, wait(t, h.late, "what hung"), "it must learn that the partition is lost")
	wait(t, resumed, "the return")
	require.Eventually(t, func() bool { return len(sick.Stats()) == 2 }, 30*time.Second, 10*time.Millisecond, "it must work again")
	require.Equal(t, before, worked(), "nothing is worked again")
	require.Empty(t, stalls, "one stall")
	lag, err := admin(t, cfg).Lag(t.Context(), group, []string{tp})
	require.NoError(t, err)
	for _, l := range lag {
		require.Zero(t, l.Lag, "partition %d", l.Partition)
	}
}

// Handlers that never return: Run gives up with an error that names them, so
// that the process ends and a new one begins. Until they return, the group of
// this process cannot be run again.
func TestStalledForGoodEndsRun(t *testing.T) {
	t.Parallel()
	cfg := engine(t)
	tp := topic(t, cfg, 1)
	publish(t, producer(t, cfg, kafka.ProducerOptions{}), tp, "k", "v")
	h := newHang()
	group := unique(t, "g")
	g, err := kafka.NewGroup(cfg, kafka.GroupOptions{Group: group, Topics: []string{tp}, StallAfter: 500 * time.Millisecond, GiveUpAfter: 300 * time.Millisecond,
		Handler: func(ctx context.Context, _ kafka.Record) error { return h.here(ctx) }}, logger(t), nil)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- g.Run(t.Context()) }()
	err = wait(t, done, "the end of Run")
	require.Equal(t, fault.Internal, fault.KindOf(err))
	require.ErrorContains(t, err, tp+"/0 at offset 0")
	require.ErrorContains(t, err, "restart it")
	require.Equal(t, fault.Conflict, fault.KindOf(g.Run(t.Context())))
	close(h.release)
	require.Error(t, wait(t, h.late, "the handler"))
	lag, err := admin(t, cfg).Lag(t.Context(), group, []string{tp})
	require.NoError(t, err)
	require.EqualValues(t, 1, lag[0].Lag, "it must not have committed")
}

// A failing handler holds its key with backoff for many times StallAfter, and a
// slow one says how long it waits: neither makes the member leave.
func TestHeldAndSlowKeysDoNotStall(t *testing.T) {
	t.Parallel()
	cfg := engine(t)
	tp := topic(t, cfg, 1)
	p := producer(t, cfg, kafka.ProducerOptions{})
	publish(t, p, tp, "failing", "v")
	publish(t, p, tp, "slow", "v")
	var stalled atomic.Int32
	slow, failing := make(chan struct{}), make(chan struct{})
	run(t, cfg, kafka.GroupOptions{Group: unique(t, "g"), Topics: []string{tp}, StallAfter: 200 * time.Millisecond, RetryMin: 100 * time.Millisecond, RetryMax: 400 * time.Millisecond,
		OnStall: func(kafka.Stall) { stalled.Add(1) },
		Handler: func(ctx context.Context, r kafka.Record) error {
			if string(r.Key) == "slow" {
				kafka.Alive(ctx, time.Minute)
				wait(t, failing, "the other key")
				close(slow)
				return nil
			}
			if n, _ := kafka.Attempt(ctx); n < 8 {
				return fault.New(fault.Unavailable, "test", "away")
			}
			close(failing)
			return nil
		}})
	wait(t, slow, "the slow key")
	require.Zero(t, stalled.Load())
}

// A process that stood still for a session gives everything up before anybody
// has told it so: what runs loses its context at once, long before DrainTimeout,
// the member joins again, and the record comes again.
func TestStandingStillGivesEverythingUp(t *testing.T) {
	t.Parallel()
	cfg := engine(t)
	tp := topic(t, cfg, 1)
	publish(t, producer(t, cfg, kafka.ProducerOptions{}), tp, "k", "v")
	begun, ended, again := make(chan struct{}, 1), make(chan error, 1), make(chan struct{})
	frozen, resumed := make(chan time.Duration, 10), make(chan struct{}, 10)
	var calls atomic.Int32
	g := run(t, cfg, kafka.GroupOptions{Group: unique(t, "g"), Topics: []string{tp}, DrainTimeout: time.Minute,
		OnFreeze: func(gap time.Duration) { frozen <- gap }, OnResume: func() { resumed <- struct{}{} },
		Handler: func(ctx context.Context, _ kafka.Record) error {
			if calls.Add(1) > 1 {
				close(again)
				return nil
			}
			begun <- struct{}{}
			<-ctx.Done()
			ended <- kafka.Owned(ctx)
			return ctx.Err()
		}})
	wait(t, begun, "the handler")
	kafka.StandStill(g.Group, 6*time.Second)
	require.Error(t, wait(t, ended, "the end of the context"))
	require.Greater(t, wait(t, frozen, "the word"), 5*time.Second)
	wait(t, again, "the record again")
	wait(t, resumed, "the return")
	require.Empty(t, frozen, "once")
}
