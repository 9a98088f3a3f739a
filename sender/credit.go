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
// and WeChat says what is so. A message in parts is paid for once.
func (s *Sender) afford(ctx context.Context, p *parcel, g *progress) *ending {
	if p.push() || s.credits == nil || g.part > 0 {
		return nil
	}
	g.ticket = s.credits.Take(ctx, credit.Want{Account: p.account, OpenID: p.base.OpenID, Message: p.key.ID, N: p.parts, Cause: p.cause()})
	switch g.ticket.Verdict {
	case credit.Closed:
		return unaffordable(p, g, windowOver, s.now())
	case credit.UsedUp:
		return unaffordable(p, g, windowSpent, s.now())
	case credit.Granted, credit.Unknown:
	}
	return nil
}

// cause is when the follower did what the letter answers. A push answers nothing:
// it spends of whatever window there is.
func (p *parcel) cause() time.Time {
	if p.base.MessageKind == wire.KindPush {
		return time.UnixMilli(0)
	}
	return p.born
}

func unaffordable(p *parcel, g *progress, why string, now time.Time) *ending {
	if g.unsure > 0 {
		return end(p, g, wire.Unknown, "no answer, and then "+why, now)
	}
	return end(p, g, wire.Expired, why, now)
}

// lapsed looks again at a window that has ended while the reply waited for its
// permit: the follower may have opened another one.
func (s *Sender) lapsed(ctx context.Context, p *parcel, g *progress) *ending {
	if g.ticket.Till.IsZero() || s.now().Before(g.ticket.Till) {
		return nil
	}
	return s.afford(ctx, p, g)
}

// learn tells the ledger what WeChat says about windows.
func (s *Sender) learn(ctx context.Context, g *progress, a answer) {
	if a.class == noUser && s.credits.Learn(ctx, g.ticket, a.code) {
		g.ticket = credit.Ticket{} // there is nothing to give back
	}
}

// giveBack returns the credits of messages that did not go. One that may have
// arrived has used its credit.
func (s *Sender) giveBack(ctx context.Context, p *parcel, g *progress, e *ending) {
	if g.ticket.Verdict == "" {
		return
	}
	used := g.part
	if e.receipt.State == wire.Accepted || g.unsure > 0 {
		used = p.parts
	}
	s.credits.Back(ctx, g.ticket, p.parts-used)
	g.ticket = credit.Ticket{}
}
