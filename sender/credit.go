package sender

import (
	"context"
	"time"

	"tidegate/pkg/credit"
	"tidegate/pkg/wire"
)

// windowOver and windowSpent are the reasons of replies that were not tried.
const (
	windowOver  = "the window of the follower's last action was over before it could be sent"
	windowSpent = "WeChat takes no more messages until the follower does something again"
)

// afford ends a reply that WeChat would not take any more (G24): the window that
// the follower opened is over, or its messages were sent. What is not known goes,
// and WeChat says what is so.
func (s *Sender) afford(ctx context.Context, p *parcel, g *progress) *ending {
	if p.push() || g.reserved > 0 { // the next part of a message whose first has gone
		return nil
	}
	n := p.parts - g.part
	t := s.credits.Take(ctx, p.account, p.base.OpenID, n, p.born)
	if !t.Verdict.Refused() {
		g.ticket, g.reserved = t, n
		return nil
	}
	why := windowOver
	if t.Verdict == credit.UsedUp {
		why = windowSpent
	}
	return unaffordable(p, g, why, s.now())
}

func unaffordable(p *parcel, g *progress, why string, now time.Time) *ending {
	switch {
	case g.part > 0:
		return end(p, g, wire.Rejected, why, now)
	case g.unsure > 0:
		return end(p, g, wire.Unknown, "no answer, and then "+why, now)
	}
	return end(p, g, wire.Expired, why, now)
}

// lapsed ends a reply whose window has ended while it waited for its permit.
func (s *Sender) lapsed(p *parcel, g *progress, now time.Time) *ending {
	if g.reserved == 0 || g.ticket.Till.IsZero() || now.Before(g.ticket.Till) {
		return nil
	}
	return unaffordable(p, g, windowOver, now)
}

// spend tells the ledger what became of a request. A message that may have arrived
// has used its credit.
func (s *Sender) spend(ctx context.Context, p *parcel, g *progress, a answer) {
	if g.reserved == 0 {
		return
	}
	switch a.class {
	case sent, unsure:
		g.reserved--
	case noUser:
		s.credits.Learn(ctx, g.ticket, a.code)
		g.reserved--
	}
	if a.class != sent || g.part+1 >= p.parts {
		s.release(ctx, g)
	}
}

// release gives back what was taken and not used.
func (s *Sender) release(ctx context.Context, g *progress) {
	if g.reserved == 0 {
		return
	}
	s.credits.Back(ctx, g.ticket, g.reserved)
	g.reserved = 0
}
