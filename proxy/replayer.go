package proxy

import (
	"context"
	"time"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/proxy/spool"
)

// replayer publishes what comes out of a spool. A record that the queue will
// never take becomes a dead letter; when even that cannot be taken the spool
// keeps it aside.
func replayer(pub Publisher, topics wire.Topics, now func() time.Time, died func()) spool.Publish {
	return func(ctx context.Context, r spool.Record) error {
		_, err := pub.Publish(ctx, kafka.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers})
		if !permanent(err) {
			return err
		}
		dead, whole := deadLetter(r, topics, err, now())
		if !whole {
			return err
		}
		if _, e := pub.Publish(ctx, dead); e != nil {
			return e // also a permanent one: then the spool parks the record
		}
		died()
		return nil
	}
}

// deadLetter keeps a record with the reason. It is whole unless the record is
// too large for a letter; then the spool's own file is the better place.
func deadLetter(r spool.Record, topics wire.Topics, why error, now time.Time) (rec kafka.Record, whole bool) {
	d := &wire.DeadLetter{
		ID: wire.HeaderValue(r.Headers, wire.HeaderID), Account: topics.Account(r.Topic), Room: "proxy",
		Reason: why.Error(), Topic: r.Topic, Partition: -1, Offset: -1,
		Headers: r.Headers, Key: r.Key, Value: r.Value, At: wire.Millis(now),
	}
	if k := string(r.Key); wire.ValidOpenID(k) {
		d.OpenID = k
	}
	key, value, headers, err := wire.Encode(d)
	rec = kafka.Record{Topic: topics.DeadLetters(), Key: key, Value: value, Headers: headers}
	return rec, err == nil && len(value) > len(r.Value) // in base64 it is longer, unless it was left out
}
