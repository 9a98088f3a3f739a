package sender

import (
	"context"
	"encoding/json"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/crash"
	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
)

const (
	// holdHere is how long a letter waits inside its handler; a longer wait is
	// left to the group, which holds the key without a worker.
	holdHere = 20 * time.Second
	// postTimeout bounds publishing one receipt, also after the partition was
	// taken away: the outcome is known and should not be lost.
	postTimeout = 3 * time.Second
	// tokenPause is waited when no token can be had and no hint says how long.
	tokenPause = 2 * time.Second
	// refusedPause is waited when fresh tokens are refused again and again.
	refusedPause = 30 * time.Second
)

// handle works one record to its end. nil means that its outcome is durable.
func (s *Sender) handle(ctx context.Context, st *station, lane string, rec kafka.Record) error {
	p, err := read(st.name, lane, rec)
	if err != nil {
		return s.unreadable(ctx, st, p, rec, err)
	}
	if s.memory.isSettled(p.key) {
		s.met.copies.WithLabelValues(p.account).Inc()
		return nil
	}
	g := s.memory.recall(p.tryKey(), rec.Topic, rec.Partition)
	p.seed(g)
	if g.ending == nil {
		e, err := s.work(ctx, st, p, g)
		if err != nil {
			return err
		}
		s.giveBack(ctx, p, g, e)
		g.ending = e
	}
	if g.ending.aside != nil {
		return s.hold(ctx, p, g, g.ending, rec)
	}
	return s.settle(ctx, p, g, g.ending, rec)
}

// work tries until there is an ending, which may be that the letter is put
// aside, or the wait is too long for a worker.
func (s *Sender) work(hard context.Context, st *station, p *parcel, g *progress) (*ending, error) {
	ctx, cancel := context.WithCancel(hard)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)() // a stop does not wait for pauses
	soft := func() context.Context {
		if g.part > 0 {
			return hard // a stop does not cut a message that is half out
		}
		return ctx
	}
	var waited time.Duration
	for {
		if e, err := s.untried(hard, p, g, func() *ending { return s.over(p, g) }); e != nil || err != nil {
			return e, err
		}
		e, stop, err := s.try(soft(), hard, st, p, g)
		if e != nil || err != nil {
			return e, err
		}
		if e := s.aside(p, g, stop); e != nil {
			return e, nil
		}
		// A long wait begins here too, so that a closed road does not make
		// the group turn all its letters over, one after the other.
		here := min(stop.here(), holdHere-waited)
		if err := sleep(soft(), here); err != nil {
			return nil, fault.Wrap(fault.Unavailable, "send "+p.key.ID, err)
		}
		if waited += here; waited >= holdHere {
			return nil, fault.New(fault.Limited, "send "+p.key.ID, "it has to wait (%s)", stop.why).WithRetryAfter(stop.here() - here)
		}
	}
}

// try makes at most one request. It gives an ending, or a pause before the
// next try, or an error if this process should let go for now. ctx
// also ends when the room is to stop; behind the intent only hard counts, which
// ends with the right to the partition: a message that was begun and not sent
// would look doubtful to whoever finds it, so it is rather sent. Places keep
// their number small.
func (s *Sender) try(ctx, hard context.Context, st *station, p *parcel, g *progress) (*ending, pause, error) {
	if stop := s.ordered(st, p); stop.wait > 0 {
		return nil, stop, nil
	}
	r := st.road(p.api)
	t, wait := r.enter(s.now())
	if wait > 0 {
		return nil, r.closedFor(wait), nil
	}
	defer func() { r.back(t) }() // a ticket that learn has taken is empty
	if wait := r.early(t, g, s.now()); wait > 0 {
		return nil, pause{wait, whyRetry}, nil
	}
	tok, err := s.tokens.Token(ctx, p.account)
	if err != nil {
		return nil, pause{retryAfter(err, tokenPause), whyToken}, ctx.Err()
	}
	leave, err := st.enter(ctx, r, p)
	if err != nil {
		return nil, pause{}, err
	}
	defer leave()
	if wait := r.stillOpen(t, s.now()); wait > 0 {
		return nil, r.closedFor(wait), nil
	}
	if a, refused := r.refusedTemplate(p.template, s.now()); refused && p.push() {
		return with(end(p, g, wire.Rejected, "WeChat refuses the template", s.now()), a), pause{}, nil
	}
	if e, err := s.untried(hard, p, g, func() *ending { return s.afford(hard, p, g) }); e != nil || err != nil {
		return e, pause{}, err
	}
	paid, stop, err := s.pay(hard, st, p)
	if stop.wait > 0 || err != nil {
		return nil, stop, err
	}
	defer paid.back(hard) // if it is not used
	if e, err := s.begin(hard, p, g); e != nil || err != nil {
		return e, pause{}, err
	}
	if e, stop, err := s.depart(hard, st, r, p, g, paid); e != nil || stop.wait > 0 || err != nil {
		return e, stop, err
	}
	a := s.request(ctx, r, p, g, tok.Value)
	s.learn(hard, g, a)
	e, wait := decide(p, g, a, s.cfg.Retry, s.now())
	next := pause{wait, whyRetry}
	if a.class == badToken && e == nil {
		if _, err := s.tokens.Rejected(ctx, p.account, tok); err != nil {
			next = pause{retryAfter(err, tokenPause), whyToken}
		} else if g.refused > 2 {
			next = pause{refusedPause, whyToken}
		}
	}
	r.learn(t, a, p.template, s.now())
	t = ticket{}
	return e, next, nil
}

// untried ends a letter for a reason that lies before its first try. But it may
// have come back after a crash: then its past decides, and a message that was sent
// is not called expired.
func (s *Sender) untried(ctx context.Context, p *parcel, g *progress, judge func() *ending) (*ending, error) {
	e := judge()
	if e == nil || g.begun {
		return e, nil
	}
	if past, err := s.begin(ctx, p, g); past != nil || err != nil {
		return past, err
	}
	return judge(), nil
}

// begin makes the intent durable, once, and settles a past that is not known.
func (s *Sender) begin(ctx context.Context, p *parcel, g *progress) (*ending, error) {
	if g.begun {
		return nil, nil
	}
	past, err := s.intents.Begin(ctx, p.tryKey())
	if err != nil {
		return nil, err
	}
	g.begun = true
	if g.unsure == 0 { // otherwise the first try that may have arrived counts
		g.firstTry = past.FirstTryAt
	}
	if past.Fresh {
		crash.At("CP9")
		return nil, nil
	}
	if a := heldBefore(past.News); a != nil {
		s.met.copies.WithLabelValues(p.account).Inc()
		e := putAside(p, g, a, s.now())
		e.written = true
		return e, nil
	}
	if past.News != "" {
		s.met.copies.WithLabelValues(p.account).Inc()
		return remembered(p, past.News)
	}
	g.unsure++
	s.met.pasts.WithLabelValues(p.account).Inc()
	return doubtful(p, g, s.cfg.Retry, s.now()), nil
}

// remembered is the ending of a letter that ended before and came back, because
// its offset was not committed. Its receipt may not have been published.
func remembered(p *parcel, news string) (*ending, error) {
	var r wire.Receipt
	if err := json.Unmarshal([]byte(news), &r); err != nil {
		return nil, fault.New(fault.Internal, "read outcome of "+p.key.ID, "%w", err)
	}
	return &ending{receipt: &r, written: true}, nil
}

// permit waits for the departure. It comes last: what it lets go leaves at
// once (T41). The message is looked at once more behind it (T48), and so is
// the right to send it: the partition may have gone to somebody else.
func (s *Sender) permit(ctx context.Context, st *station, r *road, p *parcel, g *progress) (*ending, pause, error) {
	since := time.Now()
	release, err := r.pace.Acquire(ctx, p.priority)
	if err != nil {
		return nil, pause{}, err
	}
	release()
	s.met.waited(p, time.Since(since))
	if e := s.over(p, g); e != nil {
		return e, pause{}, nil
	}
	if e := s.lapsed(ctx, p, g); e != nil {
		return e, pause{}, nil
	}
	if stop := s.ordered(st, p); stop.wait > 0 {
		return nil, stop, nil
	}
	crash.At("CP10")
	return nil, pause{}, kafka.Owned(ctx) // also behind a freeze that nobody has noticed yet
}

// request sends. Once begun it is not cut off: an outcome that arrives late is
// worth more than one that nobody knows. The client bounds its time.
func (s *Sender) request(ctx context.Context, r *road, p *parcel, g *progress, token string) answer {
	g.requests++
	in := s.met.inFlight.WithLabelValues(p.account, string(p.api))
	in.Inc()
	start := time.Now()
	a := r.ask(ctx, s.wechat, p, g, token)
	crash.At("CP12")
	in.Dec()
	s.met.request(p, g, a, time.Since(start), s.now())
	return a
}

// settle makes the ending durable: in the store of intents, so that the letter
// is recognised if it comes back, and as a receipt. If that fails the handler
// fails, and the ending is kept for the next time.
func (s *Sender) settle(ctx context.Context, p *parcel, g *progress, e *ending, rec kafka.Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), postTimeout)
	defer cancel()
	if e.park {
		if err := s.park(ctx, p, rec, e.reason); err != nil {
			return err
		}
		e.park = false
	}
	if g.begun && !e.written {
		news, err := json.Marshal(e.receipt)
		if err != nil {
			return fault.Wrap(fault.Internal, "write outcome of "+p.key.ID, err)
		}
		if err := s.intents.Finish(ctx, p.tryKey(), string(news)); err != nil {
			return err
		}
		e.written = true
		crash.At("CP13")
	}
	if err := s.outbox.Post(ctx, s.topics.Receipts(), e.receipt); err != nil {
		return fault.Wrap(fault.Unavailable, "settle "+p.key.ID, err)
	}
	crash.At("CP13")
	s.memory.settle(p.key)
	s.memory.drop(p.tryKey())
	s.met.letters.WithLabelValues(p.account, p.base.Lane, string(e.receipt.State)).Inc()
	if e.receipt.PossibleDuplicate {
		s.met.duplicates.WithLabelValues(p.account).Inc()
	}
	return nil
}

// unreadable parks a record that no try can help, with a receipt if it can be
// named, so that no message vanishes from the sum.
func (s *Sender) unreadable(ctx context.Context, st *station, p *parcel, rec kafka.Record, cause error) error {
	if p != nil {
		e := end(p, &progress{}, wire.Dead, cause.Error(), s.now())
		e.park = true
		return s.settle(ctx, p, &progress{}, e, rec)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), postTimeout)
	defer cancel()
	return s.park(ctx, &parcel{account: st.name}, rec, cause.Error())
}

func (s *Sender) park(ctx context.Context, p *parcel, rec kafka.Record, reason string) error {
	d := &wire.DeadLetter{
		ID: p.key.ID, Account: p.account, OpenID: p.base.OpenID, Room: "sender", Reason: reason,
		Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, Headers: rec.Headers,
		Key: rec.Key, Value: rec.Value, At: wire.Millis(s.now()),
	}
	if err := s.outbox.Post(ctx, s.topics.DeadLetters(), d); err != nil {
		return fault.Wrap(fault.Unavailable, "park a letter", err)
	}
	s.met.parked.WithLabelValues(p.account).Inc()
	s.log.Warn("letter parked", zap.String("id", p.key.ID), zap.String("account", p.account), zap.String("topic", rec.Topic),
		zap.Int32("partition", rec.Partition), zap.Int64("offset", rec.Offset), zap.String("reason", reason))
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
