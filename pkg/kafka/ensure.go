package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// topicsSettle bounds the wait for the brokers to learn of a new topic.
const topicsSettle = 15 * time.Second

// EnsureTopics creates the topics that do not exist, and reports how the
// existing ones differ. It returns when every broker that answers knows the new
// ones, so that they can be written to at once. It never changes a topic. Running it at the same time in
// several processes is harmless.
func (a *Admin) EnsureTopics(ctx context.Context, specs []TopicSpec) (Ensured, error) {
	var out Ensured
	names := make([]string, len(specs))
	for i, s := range specs {
		if err := s.validate(); err != nil {
			return out, err
		}
		names[i] = s.Name
	}
	have, err := a.DescribeTopics(ctx, names)
	if err != nil {
		return out, err
	}
	for i, s := range specs {
		if have[i].Exists {
			out.Differences = append(out.Differences, differences(have[i], s)...)
			continue
		}
		made, err := a.create(ctx, s)
		if err != nil {
			return out, err
		}
		if made {
			out.Created = append(out.Created, s.Name)
		}
	}
	if len(out.Created) > 0 {
		return out, a.awaitTopics(ctx, out.Created)
	}
	return out, nil
}

func (a *Admin) create(ctx context.Context, s TopicSpec) (made bool, err error) {
	d := &sarama.TopicDetail{NumPartitions: s.Partitions, ReplicationFactor: s.Replication, ConfigEntries: map[string]*string{}}
	if d.NumPartitions == 0 {
		d.NumPartitions = -1
	}
	if d.ReplicationFactor == 0 {
		d.ReplicationFactor = -1
	}
	for k, v := range s.entries() {
		d.ConfigEntries[k] = &v
	}
	err = a.ask(ctx, "create topic "+s.Name, func(c *adminConn) error {
		err := c.admin.CreateTopic(s.Name, d, false)
		if errors.Is(err, sarama.ErrTopicAlreadyExists) { // another process was faster
			return nil
		}
		made = err == nil
		return err
	})
	return err == nil && made, err // in this order: see ask
}

// awaitTopics asks each broker until it knows the topics with their leaders: the
// controller answers a creation before the brokers have heard of it.
func (a *Admin) awaitTopics(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, topicsSettle)
	defer cancel()
	return a.ask(ctx, "wait for new topics", func(c *adminConn) error {
		brokers, _, err := c.admin.DescribeCluster()
		if err != nil {
			return err
		}
		wait := backoff{min: 10 * time.Millisecond, max: 200 * time.Millisecond}
		for _, found := range brokers {
			b, err := c.client.Broker(found.ID()) // the client's own, which it closes
			if err != nil {
				return err
			}
			for !knows(b, c.client.Config().Version, names) {
				if ctx.Err() != nil {
					return fmt.Errorf("broker %s does not know them after %s: %w", b.Addr(), topicsSettle, context.Cause(ctx))
				}
				wait.sleep(ctx.Done())
			}
		}
		return nil
	})
}

// knows tells whether a broker has all the topics with leaders. One that does
// not answer at all counts as knowing: it is down, and learns when it comes up.
func knows(b *sarama.Broker, v sarama.KafkaVersion, names []string) bool {
	res, err := b.GetMetadata(sarama.NewMetadataRequest(v, names))
	if err != nil {
		return true
	}
	for _, t := range res.Topics {
		if !errors.Is(t.Err, sarama.ErrNoError) {
			return false
		}
		for _, p := range t.Partitions {
			if !errors.Is(p.Err, sarama.ErrNoError) || p.Leader < 0 {
				return false
			}
		}
	}
	return len(res.Topics) == len(names)
}

func differences(have TopicInfo, want TopicSpec) []Difference {
	var out []Difference
	add := func(setting string, h, w any) {
		out = append(out, Difference{want.Name, setting, fmt.Sprint(h), fmt.Sprint(w)})
	}
	if want.Partitions > 0 && have.Partitions != want.Partitions {
		add("partitions", have.Partitions, want.Partitions)
	}
	if want.Replication > 0 && have.Replication != want.Replication {
		add("replication", have.Replication, want.Replication)
	}
	entries := want.entries()
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		if h, known := have.Config[k]; known && h != entries[k] {
			add(k, h, entries[k])
		}
	}
	return out
}
