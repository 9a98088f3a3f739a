package sender

import (
	"context"
	"encoding/json"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/sender/hold"
)

// Letters that have to wait longer than a moment become rows (D8). Pushes only:
// a reply is never held. All replies of an account go by one API, so what keeps
// one of them for long keeps all, and nothing waits behind them in vain; in their
// queue they keep the order that each follower's replies have, and no reply can
// overtake an earlier one of the same follower. Pushes promise no order.

// aside says that a letter is put aside, and with what.
type aside struct {
	Due   int64  `json:"due"` // milliseconds
	Why   string `json:"why"`
	Cause string `json:"cause,omitempty"`
	Past  past   `json:"past"`
	again bool   // it was put aside before, and comes as an older copy
}

// mark is what the store of intents keeps for a life that ended with a hold: an
// older copy of the letter is recognised by it, and if the row could not be
// written any more it is written then.
type mark struct {
	Held *aside `json:"held"`
}

// forever is the due time of what waits for an order without an end: the
// releaser wakes it when the order is taken back.
const forever = 10 * 365 * 24 * time.Hour

// aside decides whether a letter that met a pause is put aside; nil lets it wait
// where it is.
func (s *Sender) aside(p *parcel, g *progress, stop pause) *ending {
	if p.base.Lane == wire.LaneReplies || stop.wait <= s.cfg.Hold.After || !s.held.HasRoom() {
		return nil
	}
	due := s.now().Add(stop.wait)
	if !p.expires.IsZero() && p.expires.Before(due) {
		due = p.expires // it comes back to end as expired
	}
	if safe := g.firstTry.Add(s.cfg.Retry.SafeRepeat); p.push() && g.unsure > 0 && safe.Before(due) {
		due = safe // and this one as unknown, or for the last repeat that is safe
	}
	a := &aside{Due: due.UnixMilli(), Why: stop.why, Past: p.next(g)}
	if stop.why == whyPaused {
		if f, paused := s.orders.Paused(p.message()); paused {
			a.Cause = f.Name
		}
	}
	return putAside(p, g, a, s.now())
}

func putAside(p *parcel, g *progress, a *aside, now time.Time) *ending {
	e := end(p, g, wire.Held, a.Why, now)
	e.receipt.Reason = a.Why // also of one that is half out: it goes on
	e.aside = a
	return e
}

// hold makes it so: first the mark, then the row, then the receipt. Whatever
// happens in between, the letter comes back from its partition and ends here
// again.
func (s *Sender) hold(ctx context.Context, p *parcel, g *progress, e *ending, rec kafka.Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), postTimeout)
	defer cancel()
	if g.begun && !e.written {
		news, err := json.Marshal(mark{e.aside})
		if err != nil {
			return fault.Wrap(fault.Internal, "hold "+p.key.ID, err)
		}
		if err := s.intents.Finish(ctx, p.tryKey(), string(news)); err != nil {
			return err
		}
		e.written = true
	}
	if e.aside.again {
		// If its next life has begun, the row was there and went back to the queue.
		if begun, err := s.intents.Begun(ctx, p.keyOf(e.aside.Past.Generation)); begun || err != nil {
			if begun {
				s.memory.drop(p.tryKey())
			}
			return err
		}
	}
	headers, err := e.aside.Past.headers(rec.Headers)
	if err != nil {
		return fault.Wrap(fault.Internal, "hold "+p.key.ID, err)
	}
	row := hold.Row{
		ID: p.key.ID, IdentityHash: p.key.IdentityHash, Generation: e.aside.Past.Generation, Due: time.UnixMilli(e.aside.Due),
		AcceptedAt: p.born.UnixMilli(), Account: p.account, App: p.base.App, Template: p.template, Lane: p.base.Lane,
		Reason: e.aside.Why, Cause: e.aside.Cause, Key: rec.Key, Value: rec.Value, Headers: headers, OnlyNew: e.aside.again,
	}
	if err := s.held.Put(ctx, row); err != nil {
		return err
	}
	if err := s.outbox.Post(ctx, s.topics.Receipts(), e.receipt); err != nil {
		return fault.Wrap(fault.Unavailable, "hold "+p.key.ID, err)
	}
	s.memory.drop(p.tryKey())
	return nil
}

// heldBefore reads the mark of a life that ended with a hold.
func heldBefore(news string) *aside {
	var m mark
	if json.Unmarshal([]byte(news), &m) != nil || m.Held == nil {
		return nil
	}
	m.Held.again = true
	return m.Held
}
