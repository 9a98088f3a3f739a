package sender

import (
	"context"
	"fmt"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
)

// Publisher makes records durable; *kafka.Producer is one.
type Publisher interface {
	Publish(ctx context.Context, r kafka.Record) (kafka.Record, error)
}

// outbox publishes letters.
type outbox struct{ p Publisher }

// Post implements intake.Outbox.
func (o outbox) Post(ctx context.Context, topic string, l wire.Letter) error {
	key, value, headers, err := wire.Encode(l)
	if err != nil {
		return err
	}
	if _, err := o.p.Publish(ctx, kafka.Record{Topic: topic, Key: key, Value: value, Headers: headers}); err != nil {
		return fmt.Errorf("publish %s %s: %w", l.Kind(), l.LetterID(), err)
	}
	return nil
}
