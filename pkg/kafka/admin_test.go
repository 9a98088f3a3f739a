package kafka_test

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
)

func TestEnsureTopicsCreatesAndReports(t *testing.T) {
	cfg := engine(t)
	a := admin(t, cfg)
	one, two := unique(t, "one"), unique(t, "two")
	specs := []kafka.TopicSpec{
		{Name: one, Partitions: 3, Replication: 1, Retention: 48 * time.Hour, MinInsync: 1},
		{Name: two, Partitions: 1, Replication: 1, Retention: -1, Config: map[string]string{"max.message.bytes": "300000"}},
	}
	got, err := a.EnsureTopics(t.Context(), specs)
	require.NoError(t, err)
	require.Equal(t, kafka.Ensured{Created: []string{one, two}}, got)
	got, err = a.EnsureTopics(t.Context(), specs)
	require.NoError(t, err)
	require.Equal(t, kafka.Ensured{}, got, "a second run finds everything as it should be")

	infos, err := a.DescribeTopics(t.Context(), []string{two, unique(t, "none"), one})
	require.NoError(t, err)
	require.False(t, infos[1].Exists)
	require.Equal(t, int32(3), infos[2].Partitions)
	require.Equal(t, int16(1), infos[2].Replication)
	require.Equal(t, 1, infos[2].MinInsync)
	require.Equal(t, 48*time.Hour, infos[2].Retention)
	require.Negative(t, infos[0].Retention)
	require.Equal(t, "300000", infos[0].Config["max.message.bytes"])

	specs[0].Partitions, specs[0].Retention = 12, time.Hour
	got, err = a.EnsureTopics(t.Context(), specs)
	require.NoError(t, err)
	require.Empty(t, got.Created)
	require.Len(t, got.Differences, 2)
	require.Equal(t, "topic "+one+": partitions is 3, wanted 12", got.Differences[0].String())
	require.Equal(t, "topic "+one+": retention.ms is 172800000, wanted 3600000", got.Differences[1].String())
	infos, err = a.DescribeTopics(t.Context(), []string{one})
	require.NoError(t, err)
	require.Equal(t, int32(3), infos[0].Partitions, "a partition count is never changed")

	_, err = a.EnsureTopics(t.Context(), []kafka.TopicSpec{{Name: "no spaces", Partitions: 1, Replication: 1}})
	require.Equal(t, fault.Invalid, fault.KindOf(err), "%v", err)
	if realKafka() != "" { // the embedded broker lets every replication factor pass
		_, err = a.EnsureTopics(t.Context(), []kafka.TopicSpec{{Name: unique(t, "wide"), Partitions: 1, Replication: 9}})
		require.Equal(t, fault.Invalid, fault.KindOf(err), "%v", err)
	}
}

func TestClusterTellsAboutItself(t *testing.T) {
	cfg := engine(t)
	a := admin(t, cfg)
	require.NoError(t, a.Ping(t.Context()))
	info, err := a.Cluster(t.Context())
	require.NoError(t, err)
	require.Len(t, info.Brokers, 1)
	require.Contains(t, info.Version, "produce api ")
	t.Logf("engine %s: %s", info.Brokers[0], info.Version)
}

// A group that never committed, one that is behind, and one whose position was
// deleted (trap T30).
func TestLagAndSkipped(t *testing.T) {
	cfg := engine(t)
	tp := topic(t, cfg, 2)
	p := producer(t, cfg, kafka.ProducerOptions{})
	key := keyFor(1, 2, 0)
	for i := range 10 {
		publish(t, p, tp, key, strconv.Itoa(i))
	}
	a, group := admin(t, cfg), unique(t, "g")
	lag, err := a.Lag(t.Context(), group, []string{tp, unique(t, "none")})
	require.NoError(t, err)
	require.Equal(t, []kafka.Lag{{Topic: tp, Committed: -1}, {Topic: tp, Partition: 1, Committed: -1, End: 10, Lag: 10}}, lag)

	got := make(chan string, 20)
	g := run(t, cfg, kafka.GroupOptions{Group: group, Topics: []string{tp}, Workers: 1, RetryMin: time.Hour, RetryMax: time.Hour,
		Handler: func(_ context.Context, r kafka.Record) error {
			got <- string(r.Value)
			if r.Offset == 4 {
				return fault.New(fault.Unavailable, "test", "stay")
			}
			return nil
		}})
	for range 5 {
		wait(t, got, "five records")
	}
	g.stop()
	lag, err = a.Lag(t.Context(), group, []string{tp})
	require.NoError(t, err)
	require.Equal(t, kafka.Lag{Topic: tp, Partition: 1, Committed: 4, End: 10, Lag: 6}, lag[1])

	raw, err := sarama.NewClusterAdmin(cfg.Brokers, sarama.NewConfig())
	require.NoError(t, err)
	require.NoError(t, raw.DeleteRecords(tp, map[int32]int64{1: 7}))
	require.NoError(t, raw.Close())
	lag, err = a.Lag(t.Context(), group, []string{tp})
	require.NoError(t, err)
	require.Equal(t, kafka.Lag{Topic: tp, Partition: 1, Committed: 4, Start: 7, End: 10, Lag: 3, Skipped: 3}, lag[1])

	rest := make(chan string, 20)
	run(t, cfg, kafka.GroupOptions{Group: group, Topics: []string{tp}, Handler: func(_ context.Context, r kafka.Record) error {
		rest <- string(r.Value)
		return nil
	}})
	require.Equal(t, "7", wait(t, rest, "the oldest that is left"))
}

// A broker that accepts and stays silent: the question ends with its context.
func TestAdminDoesNotHang(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{ln.Addr().String()}
	cfg.RequestTimeout = 500 * time.Millisecond
	a, err := kafka.NewAdmin(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = a.Ping(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.NoError(t, a.Close(), "and Close waits for what is left of it")
	require.Equal(t, fault.Unavailable, fault.KindOf(a.Ping(t.Context())))
	require.NoError(t, a.Close())
}
