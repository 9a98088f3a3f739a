package robot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/robot/engine"
)

// admit waits for a callback's turn: a place and a permit of its account. It
// decides before anything is waited for, so that a backlog of what is refused
// runs through as fast as refusals can be published, and keeps nobody waiting
// behind it. An error is a refusal, an expiry, or the end of ctx.
//
// The wait ends soon after a stop or the loss of the partition (kafka.Open), since
// nothing has been begun. To wait in line is no sign of trouble, however long:
// those who hold permits are watched.
func (r *Robot) admit(ctx context.Context, m *member, c *wire.Callback, terms engine.Terms) (turn, stay, error) {
	t := turn{level: terms.Level, expires: expiry(c, terms)}
	if terms.Idle {
		return t, stay{}, nil
	}
	if t.expired(r.d.Now()) {
		return t, stay{}, errExpired
	}
	if no := r.lines[terms.Backend].refuses(t.level); no != nil {
		return t, stay{}, no
	}
	if terms.Engine != "" {
		if no := r.lines[engineLine(terms.Engine)].refuses(t.level); no != nil {
			return t, stay{}, no
		}
	}
	if !m.places.take(t.level) {
		return t, stay{}, &refusal{line: m.line, why: "places"}
	}
	s := stay{m: m}
	if ctx.Err() == nil && m.line.TryTake() {
		return t, s, nil
	}
	release, err := m.permit(ctx, t)
	if err == nil && t.expired(r.d.Now()) {
		release()
		err = errExpired
	}
	if err != nil {
		m.places.give()
		return t, stay{}, err
	}
	s.release = release
	return t, s, nil
}

// stay is what a callback has while it is worked: a place and a permit. The zero
// value is nothing.
type stay struct {
	m       *member
	release func() // of a permit that was waited for; nil: it was there
}

func (s stay) end() {
	switch {
	case s.m == nil:
		return
	case s.release != nil:
		s.release()
	default:
		s.m.line.Back()
	}
	s.m.places.give()
}

// permit waits for a permit of the account.
func (m *member) permit(ctx context.Context, t turn) (release func(), err error) {
	kafka.Alive(ctx, kafka.AsLongAsItTakes)
	defer kafka.Alive(ctx, 0)
	return m.line.acquire(kafka.Open(ctx), t)
}

// expiry is when a callback becomes too old for its rule. Its age counts from its
// arrival at the door, by the clock of the door. A replay is old, and wanted.
func expiry(c *wire.Callback, t engine.Terms) time.Time {
	if t.MaxAge == 0 || c.ReceivedAt <= 0 || c.ReplayOf != "" {
		return time.Time{}
	}
	return time.UnixMilli(c.ReceivedAt).Add(t.MaxAge)
}

func (t turn) expired(now time.Time) bool { return !t.expires.IsZero() && now.After(t.expires) }

// turnedAway makes the verdict on a callback that gets no turn. ok is false for
// every other error.
func (r *Robot) turnedAway(m *member, t engine.Terms, err error) (v verdict, ok bool) {
	if err == nil {
		return verdict{}, false
	}
	v = verdict{rule: t.Rule, class: t.Class, validFor: t.ValidFor, detail: "rule " + t.Rule}
	text, no := t.Busy, (*refusal)(nil)
	switch {
	case errors.Is(err, errExpired):
		text, v.state = t.Expired, wire.Expired
		v.reason = fmt.Sprintf("older than the rule's max_age %s when its turn came", t.MaxAge)
		r.m.refused.WithLabelValues(m.name, t.Level.String(), "max_age").Inc()
	case errors.As(err, &no):
		v.state = wire.Rejected
		v.reason = fmt.Sprintf("overload, level %s: %s", t.Level, no.Error())
		r.m.refused.WithLabelValues(m.name, t.Level.String(), no.label()).Inc()
		m.shedding.note(t.Level, time.Now())
	default:
		return verdict{}, false
	}
	if text != "" {
		v.replies = []wire.Content{{Type: "text", Text: text}}
	}
	return v, true
}
