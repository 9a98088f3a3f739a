// Package reader writes into a run's history what the deployment has done: the
// records of callbacks topics, and the replies that the simulated WeChat showed.
//
// It reads Kafka with another client than the product does, every partition
// from its beginning, up to where it ended when the reading began. A record that
// cannot be understood is an error, not a gap.
package reader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidegate/pkg/kafka"
	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/history"
)

// letter is the part of a callback letter that the history needs, in words of
// our own: a reader that shared the product's type would share its mistakes.
type letter struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	OpenID  string `json:"openid"`
	Body    []byte `json:"body"`
}

// Callbacks writes every record of the topics and gives their number.
func Callbacks(ctx context.Context, broker string, topics []string, w *history.Writer) (int, error) {
	return each(ctx, broker, topics, func(r *kgo.Record) error {
		e, err := event(r)
		if err == nil {
			w.Add(e)
		}
		return err
	})
}

// each takes every record of the topics, up to where they end now, and gives their
// number.
func each(ctx context.Context, broker string, topics []string, take func(*kgo.Record) error) (int, error) {
	ends, err := patiently(ctx, func() (map[place]int64, error) { return endsOf(ctx, broker, topics) })
	if err != nil {
		return 0, err
	}
	from := map[string]map[int32]kgo.Offset{}
	for p := range ends {
		if from[p.topic] == nil {
			from[p.topic] = map[int32]kgo.Offset{}
		}
		from[p.topic][p.partition] = kgo.NewOffset().AtStart()
	}
	if len(ends) == 0 {
		return 0, nil
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumePartitions(from), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	n := 0
	for len(ends) > 0 {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return n, fmt.Errorf("read %v: %d partitions are not read to their ends: %w", topics, len(ends), err)
		}
		for _, r := range fetches.Records() {
			p := place{r.Topic, r.Partition}
			if r.Offset >= ends[p] {
				continue // written later, or the partition is through
			}
			if err := take(r); err != nil {
				return n, err
			}
			n++
			if r.Offset+1 == ends[p] {
				delete(ends, p)
			}
		}
	}
	return n, nil
}

// patiently asks again for up to 30 s: a broker that has just come back, or
// has just woken, loads its groups first.
func patiently[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	for deadline := time.Now().Add(30 * time.Second); ; {
		v, err := ask()
		if err == nil || time.Now().After(deadline) {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

type place struct {
	topic     string
	partition int32
}

// endsOf gives the ends of the partitions that hold anything.
func endsOf(ctx context.Context, broker string, topics []string) (map[place]int64, error) {
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{broker}
	a, err := kafka.NewAdmin(cfg)
	if err != nil {
		return nil, err
	}
	rows, err := a.Lag(ctx, "chaos.reads", topics)
	if err = errors.Join(err, a.Close()); err != nil {
		return nil, fmt.Errorf("find the ends of the callbacks: %w", err)
	}
	ends := map[place]int64{}
	for _, r := range rows {
		if r.Start != 0 {
			return nil, fmt.Errorf("%s/%d begins at %d: retention has deleted what the history needs", r.Topic, r.Partition, r.Start)
		}
		if r.End > 0 {
			ends[place{r.Topic, r.Partition}] = r.End
		}
	}
	return ends, nil
}

func event(r *kgo.Record) (history.Event, error) {
	var l letter
	if err := json.Unmarshal(r.Value, &l); err != nil {
		return history.Event{}, fmt.Errorf("record %s/%d:%d is no letter: %w", r.Topic, r.Partition, r.Offset, err)
	}
	token := drive.FindMark(l.Body)
	if token == "" {
		return history.Event{}, fmt.Errorf("record %s/%d:%d carries no mark: it was not sent by this run", r.Topic, r.Partition, r.Offset)
	}
	return history.Event{
		Kind: history.Logged, Node: "kafka", Token: token, ID: l.ID, Account: l.Account, OpenID: l.OpenID,
		Key: string(r.Key), Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(),
	}, nil
}
