package kafka_test

import (
	"net"
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
	silent := producer(t, cfg, kafka.ProducerOptions{MaxBlock: time.Minute})
	err = silent.TryPublish(kafka.Record{Topic: tp}, func(kafka.Record, error) { t.Error("it was not taken") })
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.Zero(t, silent.InFlight())
}
