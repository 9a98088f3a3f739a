package kafka_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
)

func benchEngine(b *testing.B, topic string) kafka.Config {
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{realKafka()}
	if realKafka() == "" {
		mem, err := kafkamem.Start(kafkamem.Options{Dir: b.TempDir()})
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, mem.Close()) })
		cfg.Brokers = []string{mem.Addr()}
	}
	a, err := kafka.NewAdmin(cfg)
	require.NoError(b, err)
	_, err = a.EnsureTopics(b.Context(), []kafka.TopicSpec{{Name: topic, Partitions: 4, Replication: 1}})
	require.NoError(b, err)
	require.NoError(b, a.Close())
	return cfg
}

func benchProducer(b *testing.B, cfg kafka.Config) *kafka.Producer {
	p, err := kafka.NewProducer(cfg, kafka.ProducerOptions{}, nil, nil)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, p.Close(context.Background())) })
	return p
}

// 256 callers publish 600-byte records and wait for each acknowledgement.
func BenchmarkPublish(b *testing.B) {
	topic := "bench.publish." + strconv.Itoa(b.N)
	p := benchProducer(b, benchEngine(b, topic))
	body := make([]byte, 600)
	var n atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range 256 {
		wg.Go(func() {
			for {
				i := n.Add(1)
				if i > int64(b.N) {
					return
				}
				if _, err := p.Publish(context.Background(), kafka.Record{Topic: topic, Key: strconv.AppendInt(nil, i%5000, 10), Value: body}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// One member reads records of 5,000 keys through 64 workers.
func BenchmarkConsume(b *testing.B) {
	topic := "bench.consume." + strconv.Itoa(b.N)
	cfg := benchEngine(b, topic)
	p := benchProducer(b, cfg)
	body := make([]byte, 600)
	for left := b.N; left > 0; left -= 5000 {
		rs := make([]kafka.Record, min(left, 5000))
		for i := range rs {
			rs[i] = kafka.Record{Topic: topic, Key: strconv.AppendInt(nil, int64(i), 10), Value: body}
		}
		require.NoError(b, p.PublishAll(b.Context(), rs))
	}
	var n atomic.Int64
	done := make(chan struct{})
	g, err := kafka.NewGroup(cfg, kafka.GroupOptions{Group: topic, Topics: []string{topic}, Handler: func(context.Context, kafka.Record) error {
		if n.Add(1) == int64(b.N) {
			close(done)
		}
		return nil
	}}, nil, nil)
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	b.ResetTimer()
	go func() { ended <- g.Run(ctx) }()
	<-done
	b.StopTimer()
	cancel()
	require.NoError(b, <-ended)
}
