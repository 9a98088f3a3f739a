package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

// Reading is a consumer group and what it reads: partition counts by topic.
type Reading struct {
	Group  string
	Topics map[string]int32
}

// Standing is how far a group has come.
type Standing struct {
	Group string
	// Lags are sorted by topic and partition. A partition that could not be
	// measured, for instance because it has no leader, is missing.
	Lags []Lag
	// Err tells why this group alone could not be asked.
	Err error
}

// Survey measures many groups with few questions, as often as every second: one
// for committed offsets per coordinator, and two for the ends per leader, however
// many groups there are. It takes the partition counts from the caller, who asks
// DescribeTopics now and then. The answer has the order of readings.
//
// After an error the next survey begins with fresh connections: one that a
// broker left half-answered is of no use any more.
func (a *Admin) Survey(ctx context.Context, readings []Reading) ([]Standing, error) {
	if len(readings) == 0 {
		return nil, nil
	}
	var out []Standing
	err := a.ask(ctx, "survey consumer groups", func(c *adminConn) error {
		s, err := survey(c, readings)
		if err != nil {
			a.drop(c)
			return err
		}
		out = s
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// drop closes a connection that has failed.
func (a *Admin) drop(c *adminConn) {
	a.mu.Lock()
	mine := a.conn == c
	if mine {
		a.conn = nil
	}
	a.mu.Unlock()
	if mine && !c.client.Closed() {
		_ = c.admin.Close() // it has failed already
	}
}

type blocks map[string]map[int32]*sarama.OffsetFetchResponseBlock

func survey(c *adminConn, readings []Reading) ([]Standing, error) {
	// Committed first: the end only grows, so no lag comes out negative.
	committed, failed, err := committedOf(c, readings)
	if err != nil {
		return nil, err
	}
	ends, err := endsOf(c, readings)
	if err != nil {
		return nil, err
	}
	out := make([]Standing, len(readings))
	for i, r := range readings {
		out[i] = Standing{Group: r.Group, Err: failed[r.Group]}
		if out[i].Err == nil {
			out[i].Lags = r.lags(committed[r.Group], ends)
		}
	}
	return out, nil
}

func (r Reading) lags(committed blocks, ends map[string]map[int32]extent) []Lag {
	var out []Lag
	for topic, n := range r.Topics {
		for p := range n {
			e, ok := ends[topic][p]
			b := committed[topic][p]
			if !ok || b != nil && !errors.Is(b.Err, sarama.ErrNoError) {
				continue
			}
			at := int64(-1)
			if b != nil {
				at = b.Offset
			}
			out = append(out, lagOf(topic, p, at, e.start, e.end))
		}
	}
	slices.SortFunc(out, func(x, y Lag) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	return out
}

// committedOf reads committed offsets by group. A group that may not be read, or
// is in trouble of its own, is in failed and does not hold up the others.
func committedOf(c *adminConn, readings []Reading) (at map[string]blocks, failed map[string]error, err error) {
	at, failed = map[string]blocks{}, map[string]error{}
	ask := make(map[string]map[string][]int32, len(readings))
	for _, r := range readings {
		ask[r.Group] = r.partitions()
	}
	if c.client.Config().Version.IsAtLeast(sarama.V3_0_0_0) {
		groups, err := c.admin.ListConsumerGroupOffsetsBatch(ask)
		if err == nil {
			for name, g := range groups {
				take(at, failed, name, blocks(g.Blocks), g.Err)
			}
			return at, failed, nil
		}
		if !errors.Is(err, sarama.ErrUnsupportedVersion) {
			return nil, nil, err
		}
	}
	for name, parts := range ask { // a cluster before 3.0 takes one group at a time
		res, err := c.admin.ListConsumerGroupOffsets(name, parts)
		var kerr sarama.KError
		if err != nil && !errors.As(err, &kerr) {
			return nil, nil, err
		}
		var b blocks
		if res != nil {
			b = res.Blocks
		}
		take(at, failed, name, b, err)
	}
	return at, failed, nil
}

func take(at map[string]blocks, failed map[string]error, group string, b blocks, err error) {
	switch {
	case err == nil, errors.Is(err, sarama.ErrNoError), errors.Is(err, sarama.ErrGroupIDNotFound): // a group that never committed is no error
		at[group] = b
	default:
		failed[group] = adminFault("read offsets of group "+group, err)
	}
}

func (r Reading) partitions() map[string][]int32 {
	out := make(map[string][]int32, len(r.Topics))
	for topic, n := range r.Topics {
		for p := range n {
			out[topic] = append(out[topic], p)
		}
	}
	return out
}

// extent is what a partition keeps: offsets from start to just before end.
type extent struct{ start, end int64 }

// endsOf measures every partition once, also one that several groups read. One
// whose leader is unknown or has moved is left out, and looked for.
func endsOf(c *adminConn, readings []Reading) (map[string]map[int32]extent, error) {
	parts := map[string][]int32{}
	for _, r := range readings {
		for topic, ps := range r.partitions() {
			if len(ps) > len(parts[topic]) {
				parts[topic] = ps
			}
		}
	}
	if len(parts) == 0 {
		return nil, nil
	}
	start, err := c.admin.ListOffsets(everywhere(parts, sarama.OffsetOldest), nil)
	if err != nil {
		return nil, err
	}
	end, err := c.admin.ListOffsets(everywhere(parts, sarama.OffsetNewest), nil)
	if err != nil {
		return nil, err
	}
	out := make(map[string]map[int32]extent, len(parts))
	var lost []string
	var why error
	measured := 0
	for topic, ps := range parts {
		out[topic] = make(map[int32]extent, len(ps))
		before := measured
		for _, p := range ps {
			s, e := start[topic][p], end[topic][p]
			if err := firstErr(s, e); err != nil {
				why = fmt.Errorf("offset of %s/%d: %w", topic, p, err)
				continue
			}
			out[topic][p] = extent{s.Offset, e.Offset}
			measured++
		}
		if measured-before < len(ps) {
			lost = append(lost, topic)
		}
	}
	if measured == 0 {
		return nil, why
	}
	if len(lost) > 0 {
		_ = c.client.RefreshMetadata(lost...) // the next survey finds the new leader, if there is one
	}
	return out, nil
}

func everywhere(parts map[string][]int32, at int64) map[string]map[int32]int64 {
	out := make(map[string]map[int32]int64, len(parts))
	for t, ps := range parts {
		out[t] = make(map[int32]int64, len(ps))
		for _, p := range ps {
			out[t][p] = at
		}
	}
	return out
}

func firstErr(results ...*sarama.OffsetResult) error {
	for _, r := range results {
		switch {
		case r == nil:
			return sarama.ErrIncompleteResponse
		case r.Err != nil && !errors.Is(r.Err, sarama.ErrNoError):
			return r.Err
		}
	}
	return nil
}
