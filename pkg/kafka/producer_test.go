package kafka_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
)

func TestPublishErrorsHaveTheRightKind(t *testing.T) {
	cfg := engine(t)
	small := unique(t, "small")
	_, err := admin(t, cfg).EnsureTopics(t.Context(), []kafka.TopicSpec{{Name: small, Partitions: 1, Replication: 1,
		Config: map[string]string{"max.message.bytes": "2000"}}})
	require.NoError(t, err)
	p := producer(t, cfg, kafka.ProducerOptions{MaxRecordBytes: 10_000})
	noise := make([]byte, 9_000)
	_, _ = rand.Read(noise)
	for name, c := range map[string]struct {
		rec  kafka.Record
		kind fault.Kind
		says string
	}{
		"larger than our limit":    {kafka.Record{Topic: small, Value: bytes.Repeat([]byte("x"), 10_001)}, fault.Invalid, "limit is 10000"},
		"larger than the broker's": {kafka.Record{Topic: small, Value: noise}, fault.Invalid, "never be written"},
		"no topic":                 {kafka.Record{}, fault.Invalid, "not a topic name"},
		"bad topic":                {kafka.Record{Topic: "no spaces"}, fault.Invalid, "not a topic name"},
		"unknown topic":            {kafka.Record{Topic: unique(t, "none")}, fault.Unavailable, "create it first"},
	} {
		_, err := p.Publish(t.Context(), c.rec)
		require.Error(t, err, name)
		require.Equal(t, c.kind, fault.KindOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, c.says, name)
	}
	require.Zero(t, p.InFlight())
	publish(t, p, small, "k", "and on it goes")
}

// The context ends while sarama gathers a batch (the linger is far longer): the
// record cannot be taken back and is written after all.
func TestContextEndsWhileUnderWayIsAmbiguous(t *testing.T) {
	t.Parallel()
	cfg := engine(t)
	tp := topic(t, cfg, 1)
	p := producer(t, cfg, kafka.ProducerOptions{Linger: 2 * time.Second, BatchMessages: 10_000})
	publish(t, p, tp, "k", "connected")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := p.Publish(ctx, kafka.Record{Topic: tp, Key: []byte("k"), Value: []byte("late")})
	require.Equal(t, fault.Ambiguous, fault.KindOf(err), "%v", err)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	got := make(chan string, 3)
	run(t, cfg, kafka.GroupOptions{Group: unique(t, "g"), Topics: []string{tp}, Handler: func(_ context.Context, r kafka.Record) error {
		got <- string(r.Value)
		return nil
	}})
	for _, want := range []string{"connected", "late"} {
		require.Equal(t, want, wait(t, got, want))
	}
}

func TestProducerBufferIsBounded(t *testing.T) {
	cfg := engine(t)
	tp := topic(t, cfg, 1)
	reg := prometheus.NewRegistry()
	p, err := kafka.NewProducer(cfg, kafka.ProducerOptions{Linger: 300 * time.Millisecond, BatchMessages: 1000, MaxInFlight: 3}, nil, reg)
	require.NoError(t, err)
	var calls atomic.Int32
	results := make(chan error, 10)
	done := func(_ kafka.Record, err error) { calls.Add(1); results <- err }
	publish(t, p, tp, "k", "connected")
	for range 3 {
		require.NoError(t, p.PublishAsync(kafka.Record{Topic: tp, Value: []byte("x")}, done))
	}
	err = p.PublishAsync(kafka.Record{Topic: tp, Value: []byte("x")}, done)
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.ErrorContains(t, err, "producer buffer full")
	for range 3 {
		require.NoError(t, wait(t, results, "a result"))
	}
	require.NoError(t, p.PublishAsync(kafka.Record{Topic: tp, Value: []byte("x")}, done), "room again")
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, p.Close(t.Context()), "twice is fine")
	require.EqualValues(t, 4, calls.Load(), "Close waits for what is in flight, each callback runs once")
	_, err = p.Publish(t.Context(), kafka.Record{Topic: tp})
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.NoError(t, testutil.GatherAndCompare(reg, bytes.NewBufferString(`
# HELP tidegate_kafka_published_total Records that the cluster acknowledged.
# TYPE tidegate_kafka_published_total counter
tidegate_kafka_published_total{client="tidegate",topic="`+tp+`"} 5
`), "tidegate_kafka_published_total"))
}

func TestUnreachableClusterIsUnavailableAtOnce(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{ln.Addr().String()}
	require.NoError(t, ln.Close())
	p := producer(t, cfg, kafka.ProducerOptions{})
	require.Eventually(t, func() bool {
		_, err := p.Publish(t.Context(), kafka.Record{Topic: "t"})
		require.Equal(t, fault.Unavailable, fault.KindOf(err))
		return bytes.Contains([]byte(err.Error()), []byte("no connection to the cluster"))
	}, 20*time.Second, 10*time.Millisecond)
	a := admin(t, cfg)
	require.Equal(t, fault.Unavailable, fault.KindOf(a.Ping(t.Context())))
}

// The broker stops and comes back in the same directory, several times, under
// load: callers see errors, then success; everything acknowledged is there, in
// the order of the acknowledgements of its key; a group rides it out as well.
func TestBrokerRestartsLoseNothingAcked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, err := kafkamem.Start(kafkamem.Options{Dir: dir})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{b.Addr()}
	tp := topic(t, cfg, 4)
	p := producer(t, cfg, kafka.ProducerOptions{})

	var mu sync.Mutex
	read := map[string]int64{} // value -> first offset it was handled at
	run(t, cfg, kafka.GroupOptions{Group: unique(t, "g"), Topics: []string{tp}, Handler: func(_ context.Context, r kafka.Record) error {
		mu.Lock()
		defer mu.Unlock()
		if _, again := read[string(r.Value)]; !again {
			read[string(r.Value)] = r.Offset
		}
		return nil
	}})

	acked := map[string]int64{}
	kinds := map[fault.Kind]int{}
	quit := make(chan struct{})
	var ackedN, failedN, refused atomic.Int64
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			last := int64(-1)
			for n := 0; ; n++ {
				select {
				case <-quit:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				v := strconv.Itoa(w) + "." + strconv.Itoa(n)
				r, err := p.Publish(ctx, kafka.Record{Topic: tp, Key: []byte("w" + strconv.Itoa(w)), Value: []byte(v)})
				cancel()
				mu.Lock()
				if err != nil {
					kinds[fault.KindOf(err)]++
					failedN.Add(1)
					if fault.KindOf(err) == fault.Unavailable {
						refused.Add(1)
						runtime.Gosched()
					}
				} else {
					acked[v] = r.Offset
					ackedN.Add(1)
					if r.Offset <= last {
						t.Errorf("worker %d: offset %d after %d", w, r.Offset, last)
					}
					last = r.Offset
				}
				mu.Unlock()
			}
		})
	}
	for outage := range 2 {
		before := ackedN.Load()
		require.Eventually(t, func() bool { return ackedN.Load() > before+200 }, 30*time.Second, time.Millisecond, "publishing must work (again)")
		fails := failedN.Load()
		require.NoError(t, b.Close())
		require.Eventually(t, func() bool { return failedN.Load() > fails }, 30*time.Second, time.Millisecond, "the fault must be felt")
		if outage == 1 { // a long one: until callers are refused at once
			require.Eventually(t, func() bool { return refused.Load() > 20 }, 60*time.Second, time.Millisecond)
		}
		b, err = kafkamem.Start(kafkamem.Options{Dir: dir})
		require.NoError(t, err)
		require.Equal(t, cfg.Brokers[0], b.Addr())
	}
	before := ackedN.Load()
	require.Eventually(t, func() bool { return ackedN.Load() > before+200 }, 30*time.Second, time.Millisecond)
	close(quit)
	wg.Wait()
	for k := range kinds {
		require.Contains(t, []fault.Kind{fault.Unavailable, fault.Ambiguous}, k)
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		for v := range acked {
			if _, ok := read[v]; !ok {
				return false
			}
		}
		return true
	}, 60*time.Second, 20*time.Millisecond, "an acknowledged record was not read")
	mu.Lock()
	defer mu.Unlock()
	t.Logf("acked %d, refused %v", len(acked), kinds)
}

// Trap T24: leaders move and a fifth of the produce requests fail; an earlier
// acknowledgement of a key still means an earlier offset, nothing is lost, and
// the idempotent producer writes nothing twice.
func TestAckOrderIsOffsetOrderUnderFaults(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(3, "t"))
	require.NoError(t, err)
	defer c.Close()
	var n atomic.Int64
	faults := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: -1,
		When: func(kmsg.Request) bool { return n.Add(1)%5 == 0 }})
	cfg := kafka.DefaultConfig()
	cfg.Brokers = c.ListenAddrs()
	p := producer(t, cfg, kafka.ProducerOptions{MaxBlock: 10 * time.Second})
	const keys, each = 6, 60
	var wg sync.WaitGroup
	var mu sync.Mutex
	at := map[[2]int64]string{}
	var total atomic.Int64
	for k := range keys {
		wg.Go(func() {
			last := int64(-1)
			for i := range each {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				r, err := p.Publish(ctx, kafka.Record{Topic: "t", Key: []byte{byte('a' + k)}, Value: []byte(strconv.Itoa(i))})
				cancel()
				if err != nil {
					t.Errorf("key %d, %d: %v", k, i, err)
					return
				}
				if r.Offset <= last {
					t.Errorf("key %d: offset %d after %d", k, r.Offset, last)
				}
				last = r.Offset
				mu.Lock()
				at[[2]int64{int64(r.Partition), r.Offset}] = string(r.Key) + string(r.Value)
				mu.Unlock()
				if total.Add(1)%75 == 0 {
					c.ShufflePartitionLeaders()
				}
			}
		})
	}
	wg.Wait()
	require.Greater(t, faults.Hits(), 10, "the fault must have happened")
	require.Len(t, at, keys*each)
	var high int64
	for _, pi := range c.PartitionInfos("t") {
		high += pi.HighWatermark
	}
	require.EqualValues(t, keys*each, high, "the log holds each record once")
}
