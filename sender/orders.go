package sender

import (
	"fmt"
	"time"

	"tidegate/pkg/control"
	"tidegate/pkg/wire"
)

// ordersAgain is how soon a letter that an order keeps looks again, where it
// waits in its queue.
const ordersAgain = time.Second

func (p *parcel) message() control.Message {
	return control.Message{
		Account: p.account, App: p.base.App, Template: p.template, Lane: p.base.Lane,
		AcceptedAt: p.born, Reply: p.base.Lane == wire.LaneReplies,
	}
}

// ordered is what operators' orders, the hour and the sender's own wish make of a
// letter now. It is asked at the beginning of a try and once more behind the
// permit, when nothing lies between it and the request (T50).
func (s *Sender) ordered(st *station, p *parcel) pause {
	now := s.now()
	reply := p.base.Lane == wire.LaneReplies
	if !reply && !s.orders.Current() {
		return pause{ordersAgain, whyNoView}
	}
	if f, paused := s.orders.Paused(p.message()); paused {
		if f.Until.IsZero() {
			return pause{forever, whyPaused}
		}
		return pause{max(f.Until.Sub(now), time.Millisecond), whyPaused}
	}
	if reply {
		return pause{}
	}
	if wait := p.notBefore.Sub(now); wait > 0 {
		return pause{wait, whyNotBefore}
	}
	if until := st.quietUntil(p.template, p.base.Lane, now); until.After(now) {
		return pause{until.Sub(now), whyQuietHours}
	}
	return pause{}
}

// here is how long a letter waits before it looks again if it is not held: an
// order may be taken back at any time.
func (w pause) here() time.Duration {
	if w.why == whyPaused || w.why == whyNoView {
		return min(w.wait, ordersAgain)
	}
	return w.wait
}

// over ends a letter that must not be tried any more: its time is over, or an
// operator has cancelled it.
func (s *Sender) over(p *parcel, g *progress) *ending {
	if e := stale(p, g, s.cfg.Retry, s.now()); e != nil {
		return e
	}
	f, cancelled := s.orders.Cancelled(p.message())
	if !cancelled {
		return nil
	}
	why := fmt.Sprintf("cancelled by %s (%s)", f.By, f.Name)
	if g.unsure > 0 {
		return end(p, g, wire.Unknown, "no answer, and then "+why, s.now())
	}
	return end(p, g, wire.Cancelled, why, s.now())
}
