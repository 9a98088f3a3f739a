package kafka_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
)

// TryPublish gives the same result as PublishAsync, and never waits: not for a
// cluster that takes connections and says nothing either.
func TestTryPublishNeverWaits(t *testing.T) {
	cfg := engine(t)
	tp := topic(t, cfg, 1)
	p := producer(t, cfg, kafka.ProducerOptions{})
	publish(t, p, tp, "k", "connected")
	got := make(chan kafka.Record, 1)
	require.NoError(t, p.TryPublish(kafka.Record{Topic: tp, Key: []byte("k"), Value: []byte("v")}, func(r kafka.Record, err error) {
		if err == nil {
			got <- r
		}
	}))
	require.EqualValues(t, 1, wait(t, got, "the result").Offset)

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	cfg.Brokers = []string{ln.Addr().String()}
	silent := producer(t, cfg, kafka.ProducerOptions{MaxBlock: 100 * time.Millisecond})
	ended := make(chan error, 1)
	require.NoError(t, silent.TryPublish(kafka.Record{Topic: tp}, func(_ kafka.Record, err error) { ended <- err }))
	require.Equal(t, 1, silent.InFlight())
	require.Equal(t, fault.Unavailable, fault.KindOf(wait(t, ended, "the refusal")))
	require.Zero(t, silent.InFlight())
}

// Without a connection all that TryPublish has taken is refused within one
// MaxBlock, and not one after the other.
func TestALongLineIsToldAtOnceThatTheClusterIsAway(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{ln.Addr().String()}
	const n, block = 100, 200 * time.Millisecond
	p := producer(t, cfg, kafka.ProducerOptions{MaxBlock: block})
	ended := make(chan error, n)
	began := time.Now()
	for range n {
		require.NoError(t, p.TryPublish(kafka.Record{Topic: "t"}, func(_ kafka.Record, err error) { ended <- err }))
	}
	for range n {
		require.Equal(t, fault.Unavailable, fault.KindOf(wait(t, ended, "the refusal")))
	}
	require.Less(t, time.Since(began), n*block/4, "each waited for those before it")
}

// What TryPublish has taken is written before Close returns, and told once.
func TestCloseWaitsForTheLine(t *testing.T) {
	cfg := engine(t)
	tp := topic(t, cfg, 1)
	p, err := kafka.NewProducer(cfg, kafka.ProducerOptions{MaxInFlight: 1000}, nil, nil)
	require.NoError(t, err)
	publish(t, p, tp, "k", "connected")
	var told, failed, refused atomic.Int32
	for range 3000 {
		if p.TryPublish(kafka.Record{Topic: tp, Value: []byte("v")}, func(_ kafka.Record, err error) {
			told.Add(1)
			if err != nil {
				failed.Add(1)
			}
		}) != nil {
			refused.Add(1)
		}
	}
	require.NoError(t, p.Close(t.Context()))
	require.Zero(t, failed.Load())
	require.EqualValues(t, 3000, told.Load()+refused.Load())
	require.Error(t, p.TryPublish(kafka.Record{Topic: tp}, nil), "closed")
	require.Zero(t, p.InFlight())
}
