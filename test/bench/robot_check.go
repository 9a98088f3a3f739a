//go:build bench

package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidegate/pkg/wire"
)

// ends are the offsets of the next records of a topic, by partition.
func (st *station) ends(ctx context.Context, topic string) (map[int32]int64, error) {
	rows, err := st.w.admin.Lag(ctx, "bench.reads.nothing", []string{topic})
	if err != nil {
		return nil, err
	}
	out := map[int32]int64{}
	for _, r := range rows {
		out[r.Partition] = r.End
	}
	return out, nil
}

// grown is how many records a topic has got since the end of the last run.
func (st *station) grown(ctx context.Context, topic string) (int64, error) {
	ends, err := st.ends(ctx, topic)
	n := -st.used[topic]
	for _, end := range ends {
		n += end
	}
	return n, err
}

// await waits for a topic to have got all records.
func (st *station) await(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, fmt.Errorf("%s did not get all %d records", topic, st.n))
	defer cancel()
	for {
		n, err := st.grown(ctx, topic)
		if err != nil || n >= int64(st.n) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// check reads back what the run has left: one reply and one receipt of each
// callback, or one copy, and every offset committed. Without a receipts topic it
// is the copy loop's.
func (st *station) check(ctx context.Context, r *robotRow, group, replies, receipts string) error {
	var what []string
	causes, n, err := st.causes(ctx, replies)
	if err != nil {
		return err
	}
	if r.Replies = n; n != st.n || len(causes) != st.n {
		what = append(what, fmt.Sprintf("%d records of %d callbacks in %s", n, len(causes), replies))
	}
	if receipts != "" {
		answered, n, err := st.causes(ctx, receipts)
		if err != nil {
			return err
		}
		if r.Receipts = n; n != st.n || len(answered) != st.n {
			what = append(what, fmt.Sprintf("%d receipts of %d answered callbacks", n, len(answered)))
		}
		for id := range causes {
			if !answered[id] {
				what = append(what, "a reply has no receipt")
				break
			}
		}
	}
	rows, err := st.w.admin.Lag(ctx, group, []string{st.names.Callbacks(robotAccount)})
	if err != nil {
		return err
	}
	for _, row := range rows {
		r.Left += row.Lag
	}
	if r.Left != 0 {
		what = append(what, fmt.Sprintf("%d callbacks are not committed", r.Left))
	}
	r.Problem = strings.Join(what, "; ")
	return st.settle(ctx, replies, receipts)
}

// settle notes where the next run begins.
func (st *station) settle(ctx context.Context, topics ...string) error {
	for _, topic := range topics {
		if topic == "" {
			continue
		}
		ends, err := st.ends(ctx, topic)
		if err != nil {
			return err
		}
		st.begin[topic], st.used[topic] = ends, 0
		for _, end := range ends {
			st.used[topic] += end
		}
	}
	return nil
}

// causes reads the run's records of a topic with another Kafka client, and gives
// their number and the callbacks that they belong to.
func (st *station) causes(ctx context.Context, topic string) (map[string]bool, int, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	ends, err := st.ends(ctx, topic)
	if err != nil {
		return nil, 0, err
	}
	from, left := map[int32]kgo.Offset{}, int64(0)
	for p, end := range ends {
		begin := st.begin[topic][p]
		from[p] = kgo.NewOffset().At(begin)
		left += end - begin
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(st.w.kafkaAddr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchMaxBytes(16<<20))
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	causes, n := make(map[string]bool, st.n), 0
	for left > int64(n) {
		got := c.PollFetches(ctx)
		if err := got.Err0(); err != nil {
			return causes, n, err
		}
		var bad error
		got.EachRecord(func(r *kgo.Record) {
			n++
			id, err := cause(r)
			bad = cmp.Or(bad, err) // the first says enough
			causes[id] = true
		})
		if bad != nil {
			return causes, n, bad
		}
	}
	return causes, n, nil
}

// cause is the callback that a record is an effect or a copy of.
func cause(r *kgo.Record) (string, error) {
	headers := make([]wire.Header, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = wire.Header{Key: h.Key, Value: h.Value}
	}
	switch kind := wire.HeaderValue(headers, wire.HeaderKind); wire.Kind(kind) {
	case wire.KindReply:
		l, err := wire.Decode[wire.Reply](r.Value, headers)
		if err != nil {
			return "", err
		}
		return l.CallbackID, nil
	case wire.KindReceipt:
		l, err := wire.Decode[wire.Receipt](r.Value, headers)
		if err != nil {
			return "", err
		}
		if l.State != wire.Answered {
			return "", fmt.Errorf("the receipt of callback %s says %s: %s", l.ID, l.State, l.Reason)
		}
		if strings.HasPrefix(l.Reason, "fallback") {
			return "", fmt.Errorf("callback %s got the fallback text: %s", l.ID, l.Reason)
		}
		return l.ID, nil
	default:
		return wire.HeaderValue(headers, wire.HeaderID), nil
	}
}
