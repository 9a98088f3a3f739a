package deadletters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wire"
)

// Publisher puts a record into a topic and returns when it is durable.
type Publisher interface {
	Publish(ctx context.Context, r kafka.Record) (kafka.Record, error)
}

// Order is what to replay, and how.
type Order struct {
	Filter Filter
	Max    int     // at most so many
	Rate   float64 // a second
	// Again replays what was replayed before as well, under one more new identity.
	Again bool
	By    string // who, for the audit
	Now   func() time.Time
	Log   *zap.Logger
}

// Plan is what an order comes to.
type Plan struct {
	Matched int            // dead letters that the filter means, each once
	Chosen  int            // that would be replayed
	Before  int            // left out: they were replayed before
	Skipped map[string]int // left out, by reason
	Over    int            // left out: beyond the maximum

	attempts map[string]int // of the chosen, by name
}

// Plan counts and changes nothing.
func (b Book) Plan(ctx context.Context, o Order) (Plan, error) {
	p := Plan{Skipped: map[string]int{}, attempts: map[string]int{}}
	var order []string // the first of them are chosen
	seen := map[string]bool{}
	now := o.Now()
	known, _, err := b.scan(ctx, o.Filter, func(l *Letter) error {
		if seen[l.name] { // written twice, by a room that died in between
			return nil
		}
		if len(seen) >= maxNames {
			return fmt.Errorf("more than %d dead letters are meant: narrow the filter", maxNames)
		}
		seen[l.name] = true
		p.Matched++
		if _, _, err := l.again(b.Topics, 1, now); err != nil {
			p.Skipped[err.Error()]++
			return nil //nolint:nilerr // it is counted, and the others go on
		}
		order = append(order, l.name)
		return nil
	})
	if err != nil {
		return Plan{}, err
	}
	for _, name := range order {
		attempt := 1
		if r := known[name]; r != nil {
			if attempt = r.Attempt + 1; !o.Again {
				p.Before++
				continue
			}
		}
		if p.Chosen == o.Max {
			p.Over++
			continue
		}
		p.Chosen++
		p.attempts[name] = attempt
	}
	return p, nil
}

// Replay does what was planned, in the order of the dead letters, and gives how
// many it replayed, also with an error.
func (b Book) Replay(ctx context.Context, o Order, p Plan, out Publisher) (done int, err error) {
	if p.Chosen == 0 {
		return 0, nil
	}
	pace := ratelimit.New(ratelimit.Limit{Rate: o.Rate, Burst: 1})
	left := p.attempts
	o.Log.Info("replay of dead letters begins", zap.String("by", o.By), zap.Int("letters", p.Chosen), zap.Any("accounts", o.Filter.Account), zap.String("reason", o.Filter.Reason))
	_, _, err = b.scan(ctx, o.Filter, func(l *Letter) error {
		attempt, chosen := left[l.name]
		if !chosen {
			return nil
		}
		delete(left, l.name)
		release, err := pace.Acquire(ctx, 0)
		if err != nil {
			return err
		}
		release()
		went, err := b.one(ctx, o, l, attempt, out)
		if err != nil {
			return fmt.Errorf("replay dead letter %s: %w", l.Name(), err)
		}
		if went {
			done++
		}
		if len(left) == 0 {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	o.Log.Info("replay of dead letters ended", zap.String("by", o.By), zap.Int("replayed", done), zap.Error(err))
	return done, err
}

// one publishes first and writes the audit behind that: a run that is broken off
// in between is repeated, and makes the same record again.
func (b Book) one(ctx context.Context, o Order, l *Letter, attempt int, out Publisher) (went bool, err error) {
	now := o.Now()
	rec, id, err := l.again(b.Topics, attempt, now)
	if err != nil { // it has expired since it was planned
		o.Log.Warn("dead letter left out", zap.String("dead_letter", l.Name()), zap.Error(err))
		return false, nil
	}
	if _, err := out.Publish(ctx, rec); err != nil {
		return false, err
	}
	key, value, headers, err := wire.Encode(&wire.Replay{
		ID: id, Of: l.name, ReplayOf: l.ID, Account: l.Account, OpenID: l.OpenID, Topic: l.Topic, Attempt: attempt, By: o.By, At: wire.Millis(now),
	})
	if err != nil {
		return false, err
	}
	o.Log.Info("dead letter replayed", zap.String("dead_letter", l.Name()), zap.String("message", l.ID), zap.String("as", id),
		zap.String("topic", l.Topic), zap.Int("attempt", attempt), zap.String("by", o.By))
	_, err = out.Publish(ctx, kafka.Record{Topic: b.Topics.DeadLetters(), Key: key, Value: value, Headers: headers})
	return err == nil, err
}
