package receipts

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/crash"
	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

// consume joins one batch of records of one partition. It returns nil once
// every record is in the rows or among the dead letters; an error repeats the
// whole batch, which changes nothing that was joined already.
func (r *Room) consume(ctx context.Context, rs []kafka.Record) error {
	var news []store.News
	var from []kafka.Record // the record of each piece of news
	var dead []kafka.Record
	for _, rec := range rs {
		n, err := r.read(rec)
		switch {
		case err != nil:
			dead = append(dead, r.deadLetter(rec, err))
		case n.Kind == wire.KindCallback && !r.cfg.KeepCallbacks && !isRepeat(n):
			r.met.news.WithLabelValues("not_kept").Inc()
		default:
			news, from = append(news, n), append(from, rec)
		}
	}
	if err := r.park(ctx, dead); err != nil {
		return err
	}
	if err := r.apply(ctx, news, from); err != nil {
		return err
	}
	r.countRepeats(news)
	return nil
}

// read turns a record into news. Its errors stay: the record is unreadable.
func (r *Room) read(rec kafka.Record) (store.News, error) {
	seen := rec.Timestamp
	if seen.IsZero() || seen.After(r.d.Now().Add(24*time.Hour)) {
		seen = r.d.Now()
	}
	switch kind := wire.HeaderValue(rec.Headers, wire.HeaderKind); wire.Kind(kind) {
	case wire.KindReceipt:
		l, err := wire.Decode[wire.Receipt](rec.Value, rec.Headers)
		if err != nil {
			return store.News{}, err
		}
		return store.FromReceipt(l, seen)
	case wire.KindRepeat:
		l, err := wire.Decode[wire.Repeat](rec.Value, rec.Headers)
		if err != nil {
			return store.News{}, err
		}
		return store.FromRepeat(l, seen)
	case wire.KindPush:
		l, err := wire.Decode[wire.Push](rec.Value, rec.Headers)
		if err != nil {
			return store.News{}, err
		}
		return r.ofTopic(rec, l.Account)(store.FromPush(l, rec.Value, seen))
	case wire.KindReply:
		l, err := wire.Decode[wire.Reply](rec.Value, rec.Headers)
		if err != nil {
			return store.News{}, err
		}
		return r.ofTopic(rec, l.Account)(store.FromReply(l, seen))
	}
	return store.News{}, wire.ErrUnknownKind
}

// ofTopic refuses a letter that names another account than its topic: it must
// not appear among that account's messages.
func (r *Room) ofTopic(rec kafka.Record, account string) func(store.News, error) (store.News, error) {
	return func(n store.News, err error) (store.News, error) {
		if err == nil && r.d.Topics.Account(rec.Topic) != account {
			err = errors.New("the letter names another account than its topic")
		}
		return n, err
	}
}

// apply joins the news. Where the database refuses a value, the batch is taken
// apart, so that one piece cannot hold up the others for ever; where it is
// away, or for an error of ours, the whole batch waits.
func (r *Room) apply(ctx context.Context, news []store.News, from []kafka.Record) error {
	if len(news) == 0 {
		return nil
	}
	began := time.Now()
	a, err := r.store.Apply(ctx, news)
	r.met.applied(a, time.Since(began))
	if err == nil {
		crash.At("CP13")
		return nil
	}
	if fault.KindOf(err) != fault.Invalid {
		if fault.KindOf(err) == fault.Internal {
			r.d.Log.Error("news cannot be joined; it is tried again", zap.Error(err))
		}
		return err
	}
	for i := range news {
		a, err := r.store.Apply(ctx, news[i:i+1])
		r.met.applied(a, 0)
		if fault.KindOf(err) == fault.Invalid && err != nil {
			err = r.park(ctx, []kafka.Record{r.deadLetter(from[i], err)})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// deadLetter keeps a record with the reason, as far as a letter can hold it.
func (r *Room) deadLetter(rec kafka.Record, why error) kafka.Record {
	d := &wire.DeadLetter{
		ID: wire.HeaderValue(rec.Headers, wire.HeaderID), Account: r.d.Topics.Account(rec.Topic), Room: r.Name(),
		Reason: reason(why), Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset,
		Headers: rec.Headers, Key: rec.Key, Value: rec.Value, At: wire.Millis(r.d.Now()),
	}
	if k := string(rec.Key); wire.ValidOpenID(k) {
		d.OpenID = k
	}
	key, value, headers, _ := wire.Encode(d) // a dead letter always fits
	r.met.news.WithLabelValues("dead_letter").Inc()
	r.d.Log.Warn("a letter cannot be read and becomes a dead letter", zap.String("topic", rec.Topic),
		zap.Int32("partition", rec.Partition), zap.Int64("offset", rec.Offset), zap.String("reason", d.Reason))
	return kafka.Record{Topic: r.d.Topics.DeadLetters(), Key: key, Value: value, Headers: headers}
}

// reason says what is wrong with a letter without quoting it.
func reason(err error) string {
	switch {
	case errors.Is(err, wire.ErrNewer):
		return "written by a newer release: upgrade the receipts room, then replay it"
	case errors.Is(err, wire.ErrUnknownKind):
		return "not a letter that this room reads"
	case errors.Is(err, wire.ErrTooLarge):
		return "larger than the limit of letters"
	}
	if f := fault.FieldOf(err); f != "" {
		return "field " + f + " cannot be used"
	}
	if fault.KindOf(err) == fault.Invalid {
		return "the database cannot store it"
	}
	return "not the JSON of such a letter, or of another account than its topic"
}

// park publishes dead letters; they are durable when it returns nil.
func (r *Room) park(ctx context.Context, dead []kafka.Record) error {
	if len(dead) == 0 {
		return nil
	}
	return r.d.Publisher.PublishAll(ctx, dead)
}
