//go:build bench

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidegate/pkg/wire"
)

// check looks at what the run has left: each push reached WeChat once, has one
// receipt that says accepted, and an intent with its outcome, and everything is
// committed. The bare loop leaves only requests.
func (w *sendWorld) check(ctx context.Context, r *sendRow, group string) error {
	var what []string
	var bad int
	if r.Reached, r.Requests, bad = w.wechat.tally(); r.Reached != w.station.n || r.Requests != w.station.n || bad != 0 {
		what = append(what, fmt.Sprintf("%d requests for %d of %d pushes, %d others", r.Requests, r.Reached, w.station.n, bad))
	}
	if r.Target == targetSender {
		wrong, err := w.receipts(ctx, r)
		if err != nil {
			return err
		}
		if wrong != "" {
			what = append(what, wrong)
		}
		if err := w.intents(ctx, r); err != nil {
			return err
		}
		if r.Intents != w.station.n {
			what = append(what, fmt.Sprintf("%d intents with an outcome", r.Intents))
		}
	}
	rows, err := w.admin.Lag(ctx, group, []string{w.topic()})
	if err != nil {
		return err
	}
	for _, row := range rows {
		r.Left += row.Lag
	}
	if r.Left != 0 {
		what = append(what, fmt.Sprintf("%d pushes are not committed", r.Left))
	}
	r.Problem = strings.Join(what, "; ")
	return w.station.settle(ctx, w.station.names.Receipts())
}

// receipts reads those of the run with another Kafka client, and says what is wrong
// with them.
func (w *sendWorld) receipts(ctx context.Context, r *sendRow) (string, error) {
	topic := w.station.names.Receipts()
	ends, err := w.station.ends(ctx, topic)
	if err != nil {
		return "", err
	}
	from, left := map[int32]kgo.Offset{}, int64(0)
	for p, end := range ends {
		begin := w.station.begin[topic][p]
		from[p] = kgo.NewOffset().At(begin)
		left += end - begin
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(w.kafkaAddr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchMaxBytes(16<<20))
	if err != nil {
		return "", err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	accepted, other, n := map[string]int{}, 0, int64(0)
	for n < left {
		got := c.PollFetches(ctx)
		if err := got.Err0(); err != nil {
			return "", err
		}
		var bad error
		got.EachRecord(func(rec *kgo.Record) {
			n++
			headers := make([]wire.Header, len(rec.Headers))
			for i, h := range rec.Headers {
				headers[i] = wire.Header{Key: h.Key, Value: h.Value}
			}
			l, err := wire.Decode[wire.Receipt](rec.Value, headers)
			switch {
			case err != nil:
				bad = err
			case l.State == wire.Accepted && !l.PossibleDuplicate:
				accepted[l.ID]++
			default:
				other++
			}
		})
		if bad != nil {
			return "", bad
		}
	}
	r.Receipts = int(n)
	missing := 0
	for _, id := range w.ids {
		if accepted[id] != 1 {
			missing++
		}
	}
	if missing == 0 && other == 0 && int(n) == w.station.n {
		return "", nil
	}
	return fmt.Sprintf("%d receipts, of them %d that do not say accepted; %d pushes without exactly one", n, other, missing), nil
}

// intents counts the rows that the run has made.
func (w *sendWorld) intents(ctx context.Context, r *sendRow) error {
	var all int
	err := w.db.QueryRow(ctx, "SELECT COUNT(*) FROM intent i JOIN outcome o ON o.id = i.id AND o.identity_hash = i.identity_hash").Scan(&all)
	r.Intents = all - w.counted
	w.counted = all
	return err
}
