package kafka_test

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// realKafka is the bootstrap address of a real cluster to run the suite on, or
// empty for the embedded broker.
func realKafka() string { return os.Getenv("TIDEGATE_TEST_KAFKA") }

// engine gives the configuration of the engine under test.
func engine(t *testing.T) kafka.Config {
	t.Helper()
	cfg := kafka.DefaultConfig()
	if addr := realKafka(); addr != "" {
		cfg.Brokers = []string{addr}
		return cfg
	}
	b, err := kafkamem.Start(kafkamem.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	cfg.Brokers = []string{b.Addr()}
	return cfg
}

// unique makes a name that no other test or run uses.
func unique(t *testing.T, what string) string {
	return "tg-test." + strings.ReplaceAll(t.Name(), "/", ".") + "." + what + "." + rand.Text()[:8]
}

func admin(t *testing.T, cfg kafka.Config) *kafka.Admin {
	t.Helper()
	a, err := kafka.NewAdmin(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

func topic(t *testing.T, cfg kafka.Config, partitions int32) string {
	t.Helper()
	name := unique(t, "topic")
	makeTopic(t, cfg, name, partitions)
	return name
}

func makeTopic(t *testing.T, cfg kafka.Config, name string, partitions int32) {
	t.Helper()
	got, err := admin(t, cfg).EnsureTopics(t.Context(), []kafka.TopicSpec{{Name: name, Partitions: partitions, Replication: 1}})
	require.NoError(t, err)
	require.Equal(t, []string{name}, got.Created)
}

func producer(t *testing.T, cfg kafka.Config, opt kafka.ProducerOptions) *kafka.Producer {
	t.Helper()
	p, err := kafka.NewProducer(cfg, opt, logger(t), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, p.Close(ctx))
	})
	return p
}

// logger keeps the test output to problems. Sarama's own chatter belongs to
// whichever test made the first client, so it must not go through t.
func logger(t *testing.T) *zap.Logger {
	if !testing.Verbose() {
		return zap.NewNop()
	}
	return quietFirst(t)
}

var firstLogger sync.Once

func quietFirst(t *testing.T) *zap.Logger {
	out := zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	firstLogger.Do(func() { out = zap.NewNop() })
	return out
}

// member is a running group; stop ends it and waits.
type member struct {
	*kafka.Group
	stop func()
}

func run(t *testing.T, cfg kafka.Config, opt kafka.GroupOptions) *member {
	t.Helper()
	g, err := kafka.NewGroup(cfg, opt, logger(t), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	m := &member{Group: g}
	m.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(40 * time.Second):
			t.Error("the group did not stop")
		}
	})
	t.Cleanup(m.stop)
	return m
}

func publish(t *testing.T, p *kafka.Producer, topic, key, value string) kafka.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := p.Publish(ctx, kafka.Record{Topic: topic, Key: []byte(key), Value: []byte(value)})
	require.NoError(t, err)
	return r
}

// wait fails the test when nothing arrives in time.
func wait[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(30 * time.Second):
		require.FailNow(t, "timed out waiting for "+what)
		panic("not reached")
	}
}
