//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/wire"
)

// effects counts what the door has left behind: an answer alone proves nothing.
type effects struct {
	admin  *kafka.Admin
	redis  *redis.Client
	topics []string // that the door writes to
	broker string
	all    []string // topics of this run
}

func newEffects(kafkaAddr, redisAddr, prefix string) (*effects, error) {
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{kafkaAddr}
	admin, err := kafka.NewAdmin(cfg)
	if err != nil {
		return nil, err
	}
	rc := redis.DefaultConfig()
	rc.Addrs, rc.Prefix, rc.Timeout = []string{redisAddr}, prefix, 5*time.Second
	c, err := redis.Open(rc, zap.NewNop())
	if err != nil {
		return nil, err
	}
	names := wire.Topics{Prefix: prefix}
	return &effects{
		admin: admin, redis: c, broker: kafkaAddr,
		topics: []string{names.Callbacks("safe"), names.Callbacks("plain"), names.Repeats()},
		all:    slices.Concat(names.Shared(), names.OfAccount("safe"), names.OfAccount("plain")),
	}, nil
}

// close also removes the run's topics, so that runs do not fill a disk.
func (e *effects) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	return errors.Join(e.deleteTopics(ctx), e.redis.Close(), e.admin.Close())
}

func (e *effects) deleteTopics(ctx context.Context) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(e.broker))
	if err != nil {
		return err
	}
	defer c.Close()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 10_000
	for _, name := range e.all {
		req.TopicNames = append(req.TopicNames, name)
		topic := kmsg.NewDeleteTopicsRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, topic)
	}
	res, err := req.RequestWith(ctx, c)
	if err != nil {
		return fmt.Errorf("delete topics: %w", err)
	}
	for _, t := range res.Topics {
		if t.ErrorCode != 0 && t.ErrorCode != unknownTopic {
			return fmt.Errorf("delete topic %s: error code %d", *t.Topic, t.ErrorCode)
		}
	}
	return nil
}

// unknownTopic is Kafka's error code of a topic that is not there.
const unknownTopic = 3

// records is the number of records ever written to the door's topics.
func (e *effects) records(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	rows, err := e.admin.Lag(ctx, "bench.reads.nothing", e.topics)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, r := range rows {
		n += int(r.End)
	}
	return n, nil
}

// takeMarks counts and removes some done marks.
// KEYS[1]: pattern of the marks; ARGV[1]: cursor, ARGV[2]: keys per step.
// Result: {next cursor, done marks removed, marks that are only claimed}.
var takeMarks = redis.NewScript(`
local page = redis.call('SCAN', ARGV[1], 'MATCH', KEYS[1], 'COUNT', ARGV[2])
local done, claimed = 0, 0
for _, key in ipairs(page[2]) do
  local mark = redis.call('GET', key)
  if mark and string.sub(mark, 1, 5) == 'done:' then
    done = done + redis.call('DEL', key)
  elseif mark then
    claimed = claimed + 1
  end
end
return {page[1], done, claimed}`)

// sweep walks over all marks once.
func (e *effects) sweep(ctx context.Context) (done, claimed int, err error) {
	for cursor := "0"; ; {
		v, err := takeMarks.Run(ctx, e.redis, []string{redis.Key("claim", "*")}, cursor, 5000)
		if err != nil {
			return done, claimed, fmt.Errorf("count claims: %w", err)
		}
		reply, _ := v.([]any)
		if len(reply) != 3 {
			return done, claimed, fmt.Errorf("count claims: unexpected reply %v", v)
		}
		d, _ := reply[1].(int64)
		c, _ := reply[2].(int64)
		done, claimed = done+int(d), claimed+int(c)
		if cursor = fmt.Sprint(reply[0]); cursor == "0" {
			return done, claimed, nil
		}
	}
}

// marks takes the done marks until there are as many as wanted, for up to 5 s:
// the door writes them after its answer.
func (e *effects) marks(ctx context.Context, wanted int) (done, claimed int, err error) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		d, c, err := e.sweep(ctx)
		done, claimed = done+d, c
		if err != nil || done >= wanted && c == 0 || time.Now().After(deadline) {
			return done, claimed, err
		}
		select {
		case <-ctx.Done():
			return done, claimed, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// serveEngines is the process of the embedded engines: it prints their
// addresses and runs until it is told to end.
func serveEngines(ctx context.Context) error {
	if len(os.Args) != 3 {
		return fmt.Errorf("use %s DIRECTORY", enginesCommand)
	}
	broker, err := kafkamem.Start(kafkamem.Options{Dir: os.Args[2], Partitions: wire.PartitionsEmbedded})
	if err != nil {
		return err
	}
	memory, err := redismem.Start("")
	if err != nil {
		_ = broker.Close()
		return err
	}
	defer memory.Close()
	fmt.Fprintln(os.Stdout, strings.Join([]string{broker.Addr(), memory.Addr()}, " "))
	<-ctx.Done()
	return broker.Close()
}
