//go:build bench

// Command copy is the yardstick of the robot benchmark: what sarama costs when a
// consumer group copies the records of one topic into another and marks each when
// its copy is durable. It is frozen but for its settings: another way of copying
// would make figures of different commits incomparable.
//
// It refuses to run unless it tells sarama the same as the robot does, field by
// field, so that the comparison is between what is done and not between settings.
//
//	copy BROKER GROUP FROM TO
//
// It runs until SIGTERM, then prints how many records it has copied, and how many
// times and how many bytes it has allocated for that.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/IBM/sarama" //nolint:depguard // the loop is what pkg/kafka is measured beside

	"tidegate/pkg/kafka"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "copy:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 5 {
		return errors.New("use copy BROKER GROUP FROM TO")
	}
	broker, group, from, to := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	in, out := settings(), settings()
	consumer(in)
	producer(out)
	if err := same(broker, in, out); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	prod, err := sarama.NewAsyncProducer([]string{broker}, out)
	if err != nil {
		return err
	}
	cg, err := sarama.NewConsumerGroup([]string{broker}, group, in)
	if err != nil {
		return err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c := &copier{prod: prod, to: to}
	var wg sync.WaitGroup
	wg.Go(c.mark)
	wg.Go(func() {
		for err := range prod.Errors() {
			fmt.Fprintln(os.Stderr, "copy: produce:", err)
		}
	})
	wg.Go(func() {
		for err := range cg.Errors() {
			fmt.Fprintln(os.Stderr, "copy: consume:", err)
		}
	})
	for ctx.Err() == nil {
		if err := cg.Consume(ctx, []string{from}, c); err != nil && ctx.Err() == nil {
			return err
		}
	}
	prod.AsyncClose()
	err = cg.Close()
	wg.Wait()
	runtime.ReadMemStats(&after)
	fmt.Fprintln(os.Stdout, c.copied.Load(), after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc)
	return err
}

// settings are those that both clients share.
func settings() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "tidegate"
	c.Version = sarama.V3_6_0_0
	c.Net.DialTimeout, c.Net.ReadTimeout, c.Net.WriteTimeout = 2*time.Second, 5*time.Second, 5*time.Second
	c.Metadata.Full, c.Metadata.AllowAutoTopicCreation = false, false
	c.Metadata.RefreshFrequency = 30 * time.Second
	c.Metadata.Retry.Max, c.Metadata.Retry.Backoff = 3, 100*time.Millisecond
	c.Metadata.Timeout = 10 * time.Second
	return c
}

func consumer(c *sarama.Config) {
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Interval = time.Second
	c.Consumer.Group.Session.Timeout, c.Consumer.Group.Heartbeat.Interval = 6*time.Second, time.Second
	c.Consumer.Group.Rebalance.Timeout = 15 * time.Second
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
	c.Consumer.MaxProcessingTime = 10 * time.Millisecond
	c.Consumer.Fetch.Default = 256 << 10
	c.ChannelBufferSize = 64
	c.Net.ReadTimeout = 20 * time.Second
}

func producer(c *sarama.Config) {
	c.Producer.Idempotent, c.Producer.RequiredAcks, c.Net.MaxOpenRequests = true, sarama.WaitForAll, 1
	c.Producer.Timeout, c.Net.ReadTimeout = 5*time.Second, 6*time.Second
	c.Producer.Transaction.Retry.Max, c.Producer.Retry.Max, c.Producer.Retry.MaxBufferBytes = 1, 10, 64<<20
	c.Producer.Retry.BackoffFunc = func(retries, _ int) time.Duration {
		return min(25*time.Millisecond<<min(retries, 6), 500*time.Millisecond)
	}
	c.Producer.Flush.Frequency, c.Producer.Flush.Messages = time.Millisecond, 1000
	c.Producer.MaxMessageBytes = 1_000_000
	c.Producer.Compression = sarama.CompressionLZ4
	c.Producer.Partitioner = sarama.NewMurmur2Partitioner
	c.Producer.Return.Successes, c.Producer.Return.Errors = true, true
}

// same compares with what the robot's reader and its producer tell sarama.
func same(broker string, in, out *sarama.Config) error {
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{broker}
	theirs, err := kafka.GroupSettings(cfg, kafka.GroupOptions{})
	if err != nil {
		return err
	}
	differ := kafka.Differences(theirs, kafka.SettingsOf(in))
	if theirs, err = kafka.ProducerSettings(cfg, kafka.ProducerOptions{}); err != nil {
		return err
	}
	if differ = append(differ, kafka.Differences(theirs, kafka.SettingsOf(out))...); len(differ) > 0 {
		return fmt.Errorf("the robot's settings and mine differ, bring them together in test/bench/copy:\n%s", strings.Join(differ, "\n"))
	}
	return nil
}

// copier is the loop.
type copier struct {
	prod   sarama.AsyncProducer
	to     string
	copied atomic.Int64
}

// origin says what to mark when a copy is durable.
type origin struct {
	session sarama.ConsumerGroupSession
	msg     *sarama.ConsumerMessage
}

func (c *copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *copier) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			headers := make([]sarama.RecordHeader, len(m.Headers))
			for i, h := range m.Headers {
				headers[i] = *h
			}
			c.prod.Input() <- &sarama.ProducerMessage{
				Topic: c.to, Key: sarama.ByteEncoder(m.Key), Value: sarama.ByteEncoder(m.Value), Headers: headers, Metadata: origin{s, m},
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

func (c *copier) mark() {
	for m := range c.prod.Successes() {
		o, _ := m.Metadata.(origin)
		o.session.MarkMessage(o.msg, "")
		c.copied.Add(1)
	}
}
