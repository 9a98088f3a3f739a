package sender

import (
	"context"
	"time"

	"tidegate/pkg/wechat"
)

// again tells that the last request of a message failed in a way that counts
// against the road's budget of retries.
func (g *progress) again() bool { return g.last == unsure || g.last == unsent }

// early is how long a retry waits for the road's budget. A probe goes in any case:
// there is one at a time, and without it nothing would ever open the road.
func (r *road) early(t ticket, g *progress, now time.Time) time.Duration {
	if !g.again() || t.own || t.whole {
		return 0
	}
	return r.budget.wait(now)
}

// ask makes one request and reads what came of it. By which line it went is noted
// with the message, for its receipt.
func (r *road) ask(ctx context.Context, w WeChat, p *parcel, g *progress, token string) answer {
	r.budget.sent(g.again())
	call := &wechat.Call{Account: p.account}
	began := time.Now()
	res, err := p.send(wechat.WithCall(context.WithoutCancel(ctx), call), w, token, g.part)
	a := classify(r.policy.Load(), res, err)
	g.line, g.last = call.Line, a.class
	if a.class != unsent { // that says nothing about how fast WeChat answers
		r.places.heard(time.Since(began), time.Now())
	}
	return a
}
