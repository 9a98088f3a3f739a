package kafka_test

import (
	"context"
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
)

// When the coordinator says that the member is out, somebody else may be at work
// already: the context of what runs ends at once, long before DrainTimeout, and the
// unfinished record comes again (trap T20).
func TestLostMemberStopsAtOnce(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	defer c.Close()
	cfg := kafka.DefaultConfig()
	cfg.Brokers = c.ListenAddrs()
	publish(t, producer(t, cfg, kafka.ProducerOptions{}), "t", "k", "v")
	begun, ended, again := make(chan struct{}, 1), make(chan time.Time, 1), make(chan struct{})
	var calls atomic.Int32
	reg := prometheus.NewRegistry()
	g, err := kafka.NewGroup(cfg, kafka.GroupOptions{Group: "g", Topics: []string{"t"}, DrainTimeout: time.Minute,
		Handler: func(ctx context.Context, _ kafka.Record) error {
			if calls.Add(1) == 2 {
				close(again)
			}
			if calls.Load() > 1 {
				return nil
			}
			begun <- struct{}{}
			<-ctx.Done()
			ended <- time.Now()
			return ctx.Err()
		}}, nil, reg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	wait(t, begun, "the handler")
	at := time.Now()
	out := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, TopLevel: true, Err: kerr.UnknownMemberID})
	require.Less(t, wait(t, ended, "the end of the context").Sub(at), 10*time.Second)
	require.Equal(t, 1, out.Hits(), "the fault must have happened")
	wait(t, again, "the record again")
	cancel()
	require.NoError(t, wait(t, done, "the stop"))
	n, err := testutil.GatherAndCount(reg, "tidegate_kafka_rebalances_total")
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// A handler that ignores the end of its context is given up on, so that the
// partition moves; Run itself returns only when the handler has.
func TestDeafHandlerDoesNotHoldThePartition(t *testing.T) {
	t.Parallel()
	cfg := engine(t)
	tp := topic(t, cfg, 1)
	publish(t, producer(t, cfg, kafka.ProducerOptions{}), tp, "k", "v")
	group := unique(t, "g")
	begun, release := make(chan struct{}, 1), make(chan struct{})
	deaf := run(t, cfg, kafka.GroupOptions{Group: group, Topics: []string{tp}, DrainTimeout: 10 * time.Millisecond,
		Handler: func(context.Context, kafka.Record) error {
			begun <- struct{}{}
			<-release
			return nil
		}})
	wait(t, begun, "the deaf handler")
	stopped := make(chan struct{})
	go func() { deaf.stop(); close(stopped) }()
	got := make(chan struct{}, 1)
	run(t, cfg, kafka.GroupOptions{Group: group, Topics: []string{tp}, Handler: func(context.Context, kafka.Record) error {
		got <- struct{}{}
		return nil
	}})
	wait(t, got, "the record at the other member")
	select {
	case <-stopped:
		t.Fatal("Run returned while a handler of it runs")
	default:
	}
	close(release)
	wait(t, stopped, "the stop")
}

// Two runs of one group at the same time are a mistake of the caller; one after
// the other is fine.
func TestSecondRunIsRefused(t *testing.T) {
	cfg := engine(t)
	g, err := kafka.NewGroup(cfg, kafka.GroupOptions{Group: unique(t, "g"), Handler: func(context.Context, kafka.Record) error { return nil }}, nil, nil)
	require.NoError(t, err)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, 2)
		for range 2 {
			go func() { results <- g.Run(ctx) }()
		}
		err := wait(t, results, "the refused one") // the other runs until cancel
		require.Equal(t, fault.Conflict, fault.KindOf(err), "%v", err)
		cancel()
		require.NoError(t, wait(t, results, "the other"))
	}
}
