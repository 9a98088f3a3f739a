package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

// Lag is how far a group is behind in one partition.
type Lag struct {
	Topic     string
	Partition int32
	Committed int64 // next offset the group will read, -1 when it never committed
	Start     int64 // oldest offset that is kept
	End       int64 // next offset that will be written
	Lag       int64 // records that are kept and not committed
	// Skipped is how many records retention deleted before the group read them: a
	// loss, and a reason for an alarm (trap T30).
	Skipped int64
}

// Lag measures a group on topics: committed offsets against the ends of the log.
// A topic that does not exist gives no row.
func (a *Admin) Lag(ctx context.Context, group string, topics []string) ([]Lag, error) {
	infos, err := a.DescribeTopics(ctx, topics)
	if err != nil {
		return nil, err
	}
	parts := map[string][]int32{}
	for _, t := range infos {
		for p := int32(0); t.Exists && p < t.Partitions; p++ {
			parts[t.Name] = append(parts[t.Name], p)
		}
	}
	if len(parts) == 0 {
		return nil, nil
	}
	var out []Lag
	err = a.ask(ctx, "measure lag of group "+group, func(c *adminConn) error {
		rows, err := measure(c.admin, group, parts)
		out = rows
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func measure(admin sarama.ClusterAdmin, group string, parts map[string][]int32) ([]Lag, error) {
	// Committed first: the end only grows, so no lag comes out negative.
	committed, err := admin.ListConsumerGroupOffsets(group, parts)
	if err != nil && !errors.Is(err, sarama.ErrGroupIDNotFound) { // a group that never committed is no error
		return nil, err
	}
	start, err := offsetsAt(admin, parts, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	end, err := offsetsAt(admin, parts, sarama.OffsetNewest)
	if err != nil {
		return nil, err
	}
	var out []Lag
	for topic, ps := range parts {
		for _, p := range ps {
			at := int64(-1)
			if b := blockOf(committed, topic, p); b != nil && errors.Is(b.Err, sarama.ErrNoError) {
				at = b.Offset
			}
			out = append(out, lagOf(topic, p, at, start[topic][p], end[topic][p]))
		}
	}
	slices.SortFunc(out, func(x, y Lag) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	return out, nil
}

// lagOf does the sum. What was never committed begins at the oldest record: that
// is where our groups begin.
func lagOf(topic string, partition int32, committed, start, end int64) Lag {
	l := Lag{Topic: topic, Partition: partition, Committed: committed, Start: start, End: end}
	l.Lag = max(0, end-max(committed, start))
	if committed >= 0 {
		l.Skipped = max(0, start-committed)
	}
	return l
}

func blockOf(res *sarama.OffsetFetchResponse, topic string, partition int32) *sarama.OffsetFetchResponseBlock {
	if res == nil {
		return nil
	}
	return res.GetBlock(topic, partition)
}

func offsetsAt(admin sarama.ClusterAdmin, parts map[string][]int32, at int64) (map[string]map[int32]int64, error) {
	ask := make(map[string]map[int32]int64, len(parts))
	for t, ps := range parts {
		ask[t] = make(map[int32]int64, len(ps))
		for _, p := range ps {
			ask[t][p] = at
		}
	}
	res, err := admin.ListOffsets(ask, nil)
	if err != nil {
		return nil, err
	}
	for t, ps := range ask {
		for p := range ps {
			r := res[t][p]
			if r == nil {
				return nil, fmt.Errorf("no offset of %s/%d in the answer", t, p)
			}
			if r.Err != nil && !errors.Is(r.Err, sarama.ErrNoError) {
				return nil, fmt.Errorf("offset of %s/%d: %w", t, p, r.Err)
			}
			ask[t][p] = r.Offset
		}
	}
	return ask, nil
}
