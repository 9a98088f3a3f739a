package kafka_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
)

func TestPublishedRecordIsReadBack(t *testing.T) {
	cfg := engine(t)
	tp := topic(t, cfg, 4)
	p := producer(t, cfg, kafka.ProducerOptions{})
	sent := kafka.Record{
		Topic: tp, Key: []byte("oABC"), Value: []byte(`{"a":1}`), Timestamp: time.UnixMilli(1_700_000_000_123),
		Headers: []kafka.Header{{Key: "id", Value: []byte("7")}, {Key: "v", Value: []byte("1")}},
	}
	acked, err := p.Publish(t.Context(), sent)
	require.NoError(t, err)
	require.Equal(t, kafka.Partition([]byte("oABC"), 4), acked.Partition)
	got := make(chan kafka.Record, 1)
	run(t, cfg, kafka.GroupOptions{Group: unique(t, "g"), Topics: []string{tp}, Handler: func(_ context.Context, r kafka.Record) error {
		got <- r
		return nil
	}})
	r := wait(t, got, "the record")
	require.Equal(t, acked.Offset, r.Offset)
	require.Equal(t, "7", string(r.Header("id")))
	require.True(t, sent.Timestamp.Equal(r.Timestamp))
	require.Equal(t, sent.Key, r.Key)
	require.Equal(t, sent.Value, r.Value)
	require.Equal(t, sent.Headers, r.Headers)
}

// Parallel workers and handlers that fail at random must not change the order of
// a key, nor lose a record (G6).
func TestOrderPerKeySurvivesFailures(t *testing.T) {
	const keys, each = 20, 40
	cfg := engine(t)
	tp := topic(t, cfg, 3)
	p := producer(t, cfg, kafka.ProducerOptions{})
	var batch []kafka.Record
	for n := range each {
		for k := range keys {
			batch = append(batch, kafka.Record{Topic: tp, Key: fmt.Appendf(nil, "k%d", k), Value: strconv.AppendInt(nil, int64(n), 10)})
		}
	}
	require.NoError(t, p.PublishAll(t.Context(), batch))

	var mu sync.Mutex
	next, running := map[string]int{}, map[string]bool{}
	rng, failures := rand.New(rand.NewPCG(1, 2)), 0
	done := make(chan struct{})
	run(t, cfg, kafka.GroupOptions{
		Group: unique(t, "g"), Topics: []string{tp}, Workers: 8, RetryMin: time.Millisecond, RetryMax: 5 * time.Millisecond,
		Handler: func(_ context.Context, r kafka.Record) error {
			k := string(r.Key)
			mu.Lock()
			defer mu.Unlock()
			if running[k] {
				t.Errorf("two records of %s at once", k)
			}
			running[k] = true
			fail := rng.IntN(5) == 0
			mu.Unlock()
			for range r.Offset % 50 {
				runtime.Gosched() // let others run: the point is the overlap
			}
			mu.Lock()
			running[k] = false
			if want := strconv.Itoa(next[k]); string(r.Value) != want {
				t.Errorf("key %s: got %s, want %s", k, r.Value, want)
			}
			if fail {
				failures++
				return fault.New(fault.Unavailable, "test", "try again")
			}
			next[k]++
			for i := range keys {
				if next[fmt.Sprintf("k%d", i)] < each {
					return nil
				}
			}
			close(done)
			return nil
		},
	})
	wait(t, done, "all records")
	require.Greater(t, failures, 50, "the fault must have happened")
}

// Trap T15: ten finished, the first held; after a restart all from the held one
// on are seen again.
func TestCommitStopsAtTheHeldRecord(t *testing.T) {
	cfg := engine(t)
	tp := topic(t, cfg, 1)
	p := producer(t, cfg, kafka.ProducerOptions{})
	for i := range 12 {
		publish(t, p, tp, "k"+strconv.Itoa(i), strconv.Itoa(i))
	}
	group := unique(t, "g")
	finished := make(chan string, 20)
	first := run(t, cfg, kafka.GroupOptions{Group: group, Topics: []string{tp}, RetryMin: time.Hour, RetryMax: time.Hour,
		Handler: func(_ context.Context, r kafka.Record) error {
			if string(r.Value) == "2" {
				return fault.New(fault.Unavailable, "test", "held")
			}
			finished <- string(r.Value)
			return nil
		}})
	for range 11 {
		wait(t, finished, "the others")
	}
	first.stop()
	lag, err := admin(t, cfg).Lag(t.Context(), group, []string{tp})
	require.NoError(t, err)
	require.Equal(t, []kafka.Lag{{Topic: tp, Committed: 2, End: 12, Lag: 10}}, lag)

	again := make(chan string, 20)
	run(t, cfg, kafka.GroupOptions{Group: group, Topics: []string{tp}, Workers: 1,
		Handler: func(_ context.Context, r kafka.Record) error { again <- string(r.Value); return nil }})
	for i := 2; i < 12; i++ {
		require.Equal(t, strconv.Itoa(i), wait(t, again, "the repeat"))
	}
}
