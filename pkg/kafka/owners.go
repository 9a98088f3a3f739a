package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// Owners tells who holds what of one group: client id and host by topic and
// partition. A partition that nobody holds is missing.
type Owners map[string]map[int32]string

// Owners asks who reads. A group whose answer cannot be had is missing; one that
// nobody is in has no owners.
func (a *Admin) Owners(ctx context.Context, groups []string) (map[string]Owners, error) {
	if len(groups) == 0 {
		return nil, nil
	}
	out := map[string]Owners{}
	err := a.ask(ctx, "describe consumer groups", func(c *adminConn) error {
		found, err := c.admin.DescribeConsumerGroups(groups)
		if err != nil {
			return err
		}
		for _, g := range found {
			if o, ok := ownersOf(g); ok {
				out[g.GroupId] = o
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func ownersOf(g *sarama.GroupDescription) (Owners, bool) {
	o := Owners{}
	if errors.Is(g.Err, sarama.ErrGroupIDNotFound) {
		return o, true
	}
	if !errors.Is(g.Err, sarama.ErrNoError) {
		return nil, false
	}
	for _, m := range g.Members {
		has, err := m.GetMemberAssignment()
		if err != nil {
			return nil, false
		}
		if has == nil {
			continue
		}
		for topic, ps := range has.Topics {
			if o[topic] == nil {
				o[topic] = map[int32]string{}
			}
			for _, p := range ps {
				o[topic][p] = m.ClientId + " at " + strings.TrimPrefix(m.ClientHost, "/")
			}
		}
	}
	return o, true
}

// Place is one record's address.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
}

// WrittenAt reads the timestamps of records, those of the producer or of the
// broker as the topic is set. A place whose record is gone, or not there yet, is
// missing. Each place costs one fetch of one batch, so ask about few.
func (a *Admin) WrittenAt(ctx context.Context, places []Place) (map[Place]time.Time, error) {
	if len(places) == 0 {
		return nil, nil
	}
	out := make(map[Place]time.Time, len(places))
	err := a.ask(ctx, "read timestamps", func(c *adminConn) error {
		var last error
		for _, p := range places {
			at, err := writtenAt(c.client, p)
			if err != nil {
				last = fmt.Errorf("%s/%d at %d: %w", p.Topic, p.Partition, p.Offset, err)
				continue
			}
			if !at.IsZero() {
				out[p] = at
			}
		}
		if len(out) > 0 {
			return nil
		}
		return last
	})
	return out, err
}

// writtenAt fetches the batch that holds the record. A broker gives a first batch
// whole, however small the limit.
func writtenAt(client sarama.Client, p Place) (time.Time, error) {
	leader, err := client.Leader(p.Topic, p.Partition)
	if err != nil {
		return time.Time{}, err
	}
	req := &sarama.FetchRequest{Version: 4, MaxBytes: 1, MaxWaitTime: 100, Isolation: sarama.ReadUncommitted}
	req.AddBlock(p.Topic, p.Partition, p.Offset, 1, -1)
	res, err := leader.Fetch(req)
	if err != nil {
		return time.Time{}, err
	}
	b := res.GetBlock(p.Topic, p.Partition)
	if b == nil {
		return time.Time{}, sarama.ErrIncompleteResponse
	}
	if !errors.Is(b.Err, sarama.ErrNoError) {
		return time.Time{}, b.Err
	}
	for _, set := range b.RecordsSet {
		if at := timeIn(set.RecordBatch, p.Offset); !at.IsZero() {
			return at, nil
		}
	}
	return time.Time{}, nil
}

func timeIn(b *sarama.RecordBatch, offset int64) time.Time {
	if b == nil {
		return time.Time{}
	}
	for _, r := range b.Records {
		if b.FirstOffset+r.OffsetDelta < offset {
			continue
		}
		if b.LogAppendTime {
			return b.MaxTimestamp
		}
		return b.FirstTimestamp.Add(r.TimestampDelta)
	}
	return time.Time{}
}
