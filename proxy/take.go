package proxy

import (
	"context"
	"net/http"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/crash"
	"tidegate/pkg/dedupe"
	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
)

// arrival is one authentic callback on its way through the door.
type arrival struct {
	acc    *entry
	query  wechat.Query
	opened wechat.Opened
	msg    *wechat.Message
	began  time.Time
}

// kindAccepted is how nearly every callback counts: durable, and the first of its
// identity.
const kindAccepted = "accepted"

// take makes an arrival durable and answers. It is the whole of D6's order:
// claim, publish or spool, answer from the result, done mark.
func (p *Proxy) take(w http.ResponseWriter, r *http.Request, a arrival) {
	ctx := newBudget(r.Context(), p.cfg.Budget)
	defer ctx.release()
	a.acc.tally.seen.Add(1)
	if a.msg.IsReceipt() && !a.msg.Quarantined {
		if p.reused(ctx, a) {
			p.refuse(w, a.acc, errNonce)
			return
		}
		p.receipts(ctx, w, a)
		return
	}
	c := p.letter(a)
	f := p.fly(a.acc.topics.callbacks, c)
	got := p.claim(ctx, a, claimKey(c), f)
	if got.Nonce == dedupe.NonceReused {
		p.refuse(w, a.acc, errNonce)
		return
	}
	p.watch.asked(got.Verdict == dedupe.Unchecked)
	switch got.Verdict {
	case dedupe.Fresh: // published already, or the next to do
	case dedupe.Duplicate:
		p.m.taken.WithLabelValues(a.acc.Name, "duplicate").Inc()
		p.answer(ctx, w, a, c, true)
		return
	case dedupe.Unchecked:
		c.Unchecked = true
		p.m.taken.WithLabelValues(a.acc.Name, "unchecked").Inc()
	case dedupe.Overdue:
		p.m.taken.WithLabelValues(a.acc.Name, "overdue").Inc()
	}
	kind, forget, err := p.durable(ctx, a, c, f, got)
	if err != nil {
		p.giveBack(ctx, got.Claim, forget)
		p.unavailable(w, a, err)
		return
	}
	if kind == kindAccepted {
		a.acc.accepted.Inc()
	} else {
		p.m.taken.WithLabelValues(a.acc.Name, kind).Inc()
	}
	crash.At("CP4")
	p.answer(ctx, w, a, c, false)
	crash.At("CP5")
	p.done(got.Claim)
}

// durable publishes what is claimed: by f, which may have begun already, or the
// long way. kind is how it counts; forget takes a repeat mark back.
func (p *Proxy) durable(ctx context.Context, a arrival, c *wire.Callback, f *flight, got dedupe.Claimed) (kind string, forget func(context.Context), err error) {
	if got.Started {
		since, err := f.land(ctx, got.Ended)
		p.m.publish.Observe(p.d.Now().Sub(since).Seconds())
		return kindAccepted, func(context.Context) {}, err
	}
	if got.Verdict == dedupe.Fresh {
		crash.At("CP2")
	}
	repeat, forget := p.isRepeat(ctx, c)
	if repeat != nil {
		return "repeat", forget, p.publishRepeat(ctx, c, repeat)
	}
	return kindAccepted, forget, p.publish(ctx, a.acc.topics.callbacks, c)
}

// receipts hands on what WeChat says about messages that we sent. They need
// no claim: the receipts room joins by rank, so a repeat changes nothing.
func (p *Proxy) receipts(ctx context.Context, w http.ResponseWriter, a arrival) {
	for _, l := range p.receiptLetters(a) {
		if err := p.publish(ctx, p.d.Topics.Receipts(), l); err != nil {
			p.unavailable(w, a, err)
			return
		}
	}
	p.m.taken.WithLabelValues(a.acc.Name, "receipt").Inc()
	p.success(w, a)
}

func (p *Proxy) publish(ctx context.Context, topic string, l wire.Letter) error {
	key, value, headers, err := wire.Encode(l)
	if err != nil {
		return fault.Wrap(fault.Final, "publish callback", err)
	}
	began := p.d.Now()
	err = p.out.put(ctx, kafka.Record{Topic: topic, Key: key, Value: value, Headers: headers})
	p.m.publish.Observe(p.d.Now().Sub(began).Seconds())
	return err
}

// giveBack undoes the claim and the repeat mark, so that WeChat's own next
// try is neither a duplicate nor a user's repeat (D6, T1).
func (p *Proxy) giveBack(ctx context.Context, claim *dedupe.Claim, forget func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 200*time.Millisecond)
	defer cancel()
	forget(ctx)
	if claim != nil {
		if err := claim.Release(ctx); err != nil {
			p.d.Log.Debug("claim not released; the next delivery waits for it", zap.Error(err))
		}
	}
}

// done turns the claim into a done mark after the answer, which net/http sends
// when the handler returns: the mark must not hold it up. With too many marks
// on their way – Redis is slow – one more is left out: a later delivery then
// waits for the claim to lapse and is published again, and is recognised
// further on.
func (p *Proxy) done(claim *dedupe.Claim) {
	if claim == nil {
		return
	}
	select {
	case p.slots <- struct{}{}:
	default:
		p.m.unmarked.Inc()
		return
	}
	p.after.Add(1)
	claim.DoneLater(func(err error) {
		<-p.slots
		p.after.Done()
		if err != nil {
			p.d.Log.Debug("done mark not written; a later delivery is published again", zap.Error(err))
		}
	})
}

// unavailable is the honest answer when nothing durable took the record: not
// a 200, which would be an ack, so WeChat sends it again.
func (p *Proxy) unavailable(w http.ResponseWriter, a arrival, err error) {
	p.m.taken.WithLabelValues(a.acc.Name, "unavailable").Inc()
	a.acc.tally.failed.Add(1)
	p.d.Log.Warn("nothing durable can take callbacks; answered 503 so that WeChat sends again",
		zap.String("account", a.acc.Name), zap.String("kind", fault.KindOf(err).String()), zap.Error(err))
	w.Header().Set("Retry-After", "1")
	http.Error(w, "unavailable", http.StatusServiceUnavailable)
}
