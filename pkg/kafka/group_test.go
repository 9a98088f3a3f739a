package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
)

// keyFor finds a key that lies in the wanted partition.
func keyFor(partition, partitions int32, n int) string {
	for i := 0; ; i++ {
		k := fmt.Sprintf("p%d-%d-%d", partition, n, i)
		if kafka.Partition([]byte(k), partitions) == partition {
			return k
		}
	}
}

// A handler that hangs on one partition holds one worker and its own queue;
// everything else flows (libraries.md 8.1: not so with a naive claim loop).
func TestSlowPartitionDoesNotSlowOthers(t *testing.T) {
	const slow, rest = 3000, 3000
	cfg := engine(t)
	tp := topic(t, cfg, 4)
	p := producer(t, cfg, kafka.ProducerOptions{})
	var rs []kafka.Record
	for i := range slow { // more than the queue's high mark, all of one key
		rs = append(rs, kafka.Record{Topic: tp, Key: []byte(keyFor(0, 4, 0)), Value: []byte(strconv.Itoa(i))})
	}
	for i := range rest {
		rs = append(rs, kafka.Record{Topic: tp, Key: []byte(keyFor(int32(1+i%3), 4, i%7)), Value: []byte("x")})
	}
	require.NoError(t, p.PublishAll(t.Context(), rs))
	release := make(chan struct{})
	others, all := make(chan struct{}), make(chan struct{})
	var nOther, nSlow atomic.Int64
	g := run(t, cfg, kafka.GroupOptions{Group: unique(t, "g"), Topics: []string{tp}, Workers: 4, QueueHigh: 300, QueueLow: 100,
		Handler: func(ctx context.Context, r kafka.Record) error {
			if r.Partition == 0 {
				select {
				case <-release:
				case <-ctx.Done():
					return ctx.Err()
				}
				if nSlow.Add(1) == slow {
					close(all)
				}
				return nil
			}
			if nOther.Add(1) == rest {
				close(others)
			}
			return nil
		}})
	wait(t, others, "the other partitions")
	var st kafka.PartitionStats
	require.Eventually(t, func() bool {
		for _, s := range g.Stats() {
			if s.Partition == 0 {
				st = s
			}
		}
		return st.Paused && st.InFlight > 0
	}, 10*time.Second, 5*time.Millisecond, "the slow partition must be paused with a handler that hangs, or the test shows nothing")
	require.Equal(t, 1, st.InFlight)
	require.EqualValues(t, 0, st.LowWater)
	require.Greater(t, st.Oldest, time.Duration(0))
	close(release)
	wait(t, all, "the slow partition after its resume")
}

// T17: the error of one key holds that key only, in the same partition.
func TestErrorHoldsItsKeyOnly(t *testing.T) {
	cfg := engine(t)
	tp := topic(t, cfg, 1)
	p := producer(t, cfg, kafka.ProducerOptions{})
	var rs []kafka.Record
	for i := range 10 {
		for _, k := range []string{"bad", "a", "b"} {
			rs = append(rs, kafka.Record{Topic: tp, Key: []byte(k), Value: []byte(k + strconv.Itoa(i))})
		}
	}
	require.NoError(t, p.PublishAll(t.Context(), rs))
	var healed atomic.Bool
	var mu sync.Mutex
	var bad []string
	var tries []int
	good, done := make(chan string, 30), make(chan struct{})
	g := run(t, cfg, kafka.GroupOptions{Group: unique(t, "g"), Topics: []string{tp}, Workers: 2, RetryMin: 5 * time.Millisecond, RetryMax: 10 * time.Millisecond,
		Handler: func(ctx context.Context, r kafka.Record) error {
			if string(r.Key) != "bad" {
				good <- string(r.Value)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			n, first := kafka.Attempt(ctx)
			if !first.Before(time.Now()) {
				t.Error("the first try lies in the future")
			}
			if string(r.Value) == "bad2" {
				tries = append(tries, n)
				if !healed.Load() {
					return errors.New("not yet")
				}
			}
			bad = append(bad, string(r.Value))
			if len(bad) == 10 {
				close(done)
			}
			return nil
		}})
	for range 20 {
		wait(t, good, "the other keys")
	}
	require.Eventually(t, func() bool { st := g.Stats(); return len(st) == 1 && st[0].HeldKeys == 1 && st[0].LowWater == 6 },
		10*time.Second, 5*time.Millisecond, "bad2 is record 6")
	healed.Store(true)
	wait(t, done, "the held key")
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"bad0", "bad1", "bad2", "bad3", "bad4", "bad5", "bad6", "bad7", "bad8", "bad9"}, bad)
	require.Greater(t, len(tries), 1)
	for i, n := range tries {
		require.Equal(t, i+1, n)
	}
}

func TestPanicIsAnErrorOfItsKey(t *testing.T) {
	cfg := engine(t)
	tp := topic(t, cfg, 1)
	p := producer(t, cfg, kafka.ProducerOptions{})
	publish(t, p, tp, "k", "boom")
	publish(t, p, tp, "other", "fine")
	var calls atomic.Int32
	done := make(chan string, 2)
	run(t, cfg, kafka.GroupOptions{Group: unique(t, "g"), Topics: []string{tp}, RetryMin: time.Millisecond,
		Handler: func(_ context.Context, r kafka.Record) error {
			if string(r.Value) == "boom" && calls.Add(1) < 3 {
				panic("secret body")
			}
			done <- string(r.Value)
			return nil
		}})
	require.ElementsMatch(t, []string{"boom", "fine"}, []string{wait(t, done, "one"), wait(t, done, "two")})
	require.EqualValues(t, 3, calls.Load())
}

// Two members share the partitions; when the second joins and when the first
// leaves in the middle of its work, every record is handled and no key goes back.
func TestRebalanceKeepsOrderAndLosesNothing(t *testing.T) {
	for _, cooperative := range []bool{false, true} {
		t.Run(map[bool]string{false: "sticky", true: "cooperative"}[cooperative], func(t *testing.T) {
			testRebalance(t, cooperative)
		})
	}
}

func testRebalance(t *testing.T, cooperative bool) {
	t.Parallel()
	const keys, each, parts = 40, 50, 6
	cfg := engine(t)
	tp := topic(t, cfg, parts)
	p := producer(t, cfg, kafka.ProducerOptions{})
	seen := newLedger(t)
	group := unique(t, "g")
	var revoked atomic.Int32
	opt := func(name string) kafka.GroupOptions {
		return kafka.GroupOptions{Group: group, Topics: []string{tp}, Workers: 6, Cooperative: cooperative,
			OnRevoke: func(string, int32) { revoked.Add(1) },
			Handler: func(_ context.Context, r kafka.Record) error {
				seen.note(name, string(r.Key), r)
				return nil
			}}
	}
	half := func(from, to int) {
		var rs []kafka.Record
		for n := from; n < to; n++ {
			for k := range keys {
				rs = append(rs, kafka.Record{Topic: tp, Key: []byte("k" + strconv.Itoa(k)), Value: []byte(strconv.Itoa(n))})
			}
		}
		require.NoError(t, p.PublishAll(t.Context(), rs))
	}
	half(0, each/2)
	one := run(t, cfg, opt("one"))
	wait(t, seen.reached(keys*5), "the first member to work")
	two := run(t, cfg, opt("two"))
	require.Eventually(t, func() bool { return len(one.Stats()) == parts/2 && len(two.Stats()) == parts/2 },
		30*time.Second, 10*time.Millisecond, "the partitions must be shared")
	require.NotZero(t, revoked.Load())
	half(each/2, each)
	one.stop() // in the middle of its work
	wait(t, seen.reached(keys*each), "all records")
	two.stop()
	require.Zero(t, seen.back(), "a key went back by more than what was not committed")
	require.NotZero(t, seen.by("one"))
	require.NotZero(t, seen.by("two"))
	lag, err := admin(t, cfg).Lag(t.Context(), group, []string{tp})
	require.NoError(t, err)
	for _, l := range lag {
		require.Zero(t, l.Lag, "partition %d", l.Partition)
	}
}

// SetTopics drains, then reads the new set; a topic that appears later is found.
func TestSetTopicsWhileRunning(t *testing.T) {
	t.Parallel()
	cfg := engine(t)
	first, second, late := topic(t, cfg, 2), topic(t, cfg, 2), unique(t, "late")
	p := producer(t, cfg, kafka.ProducerOptions{})
	got := make(chan string, 10)
	begun, release := make(chan struct{}, 9), make(chan struct{})
	var slowCalls atomic.Int32
	g := run(t, cfg, kafka.GroupOptions{Group: unique(t, "g"), Topics: []string{first}, Handler: func(_ context.Context, r kafka.Record) error {
		if string(r.Value) == "slow" {
			slowCalls.Add(1)
			begun <- struct{}{}
			<-release
		}
		got <- string(r.Value)
		return nil
	}})
	publish(t, p, first, "k", "slow")
	publish(t, p, second, "k", "second")
	wait(t, begun, "the slow record")
	g.SetTopics([]string{second, first, late, second})
	close(release)
	require.ElementsMatch(t, []string{"slow", "second"}, []string{wait(t, got, "slow"), wait(t, got, "second")})
	makeTopic(t, cfg, late, 1)
	publish(t, p, late, "k", "late")
	require.Equal(t, "late", wait(t, got, "the late topic"))
	g.SetTopics([]string{late})
	require.Eventually(t, func() bool { st := g.Stats(); return len(st) == 1 && st[0].Topic == late }, 20*time.Second, 10*time.Millisecond)
	require.EqualValues(t, 1, slowCalls.Load(), "it was begun before the change and must be committed by it")
	g.SetTopics(nil)
	require.Eventually(t, func() bool { return len(g.Stats()) == 0 }, 20*time.Second, 10*time.Millisecond)
}

func TestBatchesComeInOrderAndRepeatWhole(t *testing.T) {
	const n = 1000
	cfg := engine(t)
	tp := topic(t, cfg, 2)
	p := producer(t, cfg, kafka.ProducerOptions{})
	var rs []kafka.Record
	for i := range n {
		rs = append(rs, kafka.Record{Topic: tp, Key: []byte("k" + strconv.Itoa(i)), Value: []byte("x")})
	}
	require.NoError(t, p.PublishAll(t.Context(), rs))
	var mu sync.Mutex
	next, failed := map[int32]int64{}, map[int32][]kafka.Record{}
	total, failures, largest := 0, 0, 0
	done := make(chan struct{})
	group := unique(t, "g")
	g := run(t, cfg, kafka.GroupOptions{Group: group, Topics: []string{tp}, BatchMax: 64, BatchLinger: 20 * time.Millisecond, RetryMin: time.Millisecond,
		Batch: func(_ context.Context, rs []kafka.Record) error {
			mu.Lock()
			defer mu.Unlock()
			part := rs[0].Partition
			if again := failed[part]; again != nil {
				if len(again) != len(rs) || again[0].Offset != rs[0].Offset {
					t.Errorf("the batch was not repeated whole: %d at %d, then %d at %d", len(again), again[0].Offset, len(rs), rs[0].Offset)
				}
			} else if failures < 5 && len(rs) > 1 {
				failures++
				failed[part] = rs
				return fault.New(fault.Unavailable, "test", "no")
			}
			delete(failed, part)
			for _, r := range rs {
				if r.Partition != part || r.Offset != next[part] {
					t.Errorf("partition %d: offset %d, want %d", r.Partition, r.Offset, next[part])
				}
				next[part]++
			}
			largest = max(largest, len(rs))
			if total += len(rs); total == n {
				close(done)
			}
			return nil
		}})
	wait(t, done, "all batches")
	g.stop()
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, 5, failures)
	require.Equal(t, 64, largest)
	lag, err := admin(t, cfg).Lag(t.Context(), group, []string{tp})
	require.NoError(t, err)
	require.Zero(t, lag[0].Lag+lag[1].Lag)
}

// A record that runs when the group stops is finished and committed; one that
// ignores the deadline sees its context end, and is repeated later.
func TestStopDrains(t *testing.T) {
	cfg := engine(t)
	tp := topic(t, cfg, 1)
	p := producer(t, cfg, kafka.ProducerOptions{})
	publish(t, p, tp, "quick", "quick")
	publish(t, p, tp, "endless", "endless")
	group := unique(t, "g")
	begun := make(chan string, 2)
	quick := make(chan struct{})
	ended := make(chan error, 1)
	g := run(t, cfg, kafka.GroupOptions{Group: group, Topics: []string{tp}, DrainTimeout: 300 * time.Millisecond,
		Handler: func(ctx context.Context, r kafka.Record) error {
			begun <- string(r.Value)
			if string(r.Value) == "quick" {
				<-quick
				return nil
			}
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		}})
	wait(t, begun, "one")
	wait(t, begun, "two")
	stopped := make(chan struct{})
	go func() { g.stop(); close(stopped) }()
	close(quick)
	require.ErrorIs(t, wait(t, ended, "the end of the context"), context.Canceled)
	wait(t, stopped, "the stop")
	lag, err := admin(t, cfg).Lag(t.Context(), group, []string{tp})
	require.NoError(t, err)
	require.EqualValues(t, 1, lag[0].Committed)
}
