package proxy

import (
	"context"
	"errors"
	"time"

	"tidegate/pkg/kafka"
)

// limit is how long the queue has for a record.
func (o *outlet) limit(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	switch {
	case !ok:
		return o.timeout
	case o.spool == nil:
		return time.Until(end)
	}
	return min(o.timeout, time.Until(end)/2)
}

// direct hands a record to the queue without ever waiting.
type direct interface {
	TryPublish(r kafka.Record, done func(kafka.Record, error)) error
}

func directOf(p Publisher) direct {
	d, _ := p.(direct)
	return d
}

// errNotTried says that the queue was not asked, or had no time for the record:
// nothing is known against it.
var errNotTried = errors.New("not tried")

func isNotTried(err error) bool { return errors.Is(err, errNotTried) }

// try hands the record to the queue if that is possible at once; done is called
// with the result. After an error it is not called, and nothing was written.
func (o *outlet) try(r kafka.Record, done func(kafka.Record, error)) error {
	if o.spool != nil && (o.spool.Holds(r.Topic, r.Key) || o.isOpen(r.Topic)) {
		return errNotTried
	}
	if o.direct.TryPublish(r, done) != nil {
		return errNotTried // put tries again, with patience, and says why not
	}
	return nil
}
