package token

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/crash"
	"tidegate/pkg/fault"
)

// renewBudget bounds one renewal: waiting for another node's claim to end,
// then two calls.
func (k *Keeper) renewBudget() time.Duration { return 2*k.opt.Lease + 5*time.Second }

// redisBudget bounds each question to Redis inside a renewal.
const redisBudget = time.Second

// lookAgain is how often a node looks whether the refresher has finished.
const lookAgain = 50 * time.Millisecond

// renew gives a usable token, fetching one if need be. On this node one
// goroutine at a time does the work; the others take over its result.
func (k *Keeper) renew(ctx context.Context, h *holder, why reason) (Token, error) {
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return Token{}, fault.Wrap(fault.Unavailable, "token of "+h.account.Name, ctx.Err())
	}
	defer func() { <-h.turn }()
	now := k.opt.Now()
	if t, ok := h.usable(now, why, k.opt.Ahead); ok {
		return t, nil
	}
	if err := h.failure(now); err != nil {
		return Token{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, k.renewBudget())
	defer cancel()
	t, err := k.episode(bounded, h, why)
	for errors.Is(err, errLate) && bounded.Err() == nil {
		t, err = k.episode(bounded, h, why) // somebody else has refreshed, or does
	}
	if err != nil {
		return Token{}, k.failed(ctx, h, err)
	}
	if h.adopt(t) {
		k.log.Info("account works again: WeChat gives tokens", zap.String("account", h.account.Name))
	}
	k.tell(h, 0, false, "")
	return t, nil
}

// failed keeps an error for those who wait, unless it is only that this
// caller went away: the next one tries for itself.
func (k *Keeper) failed(ctx context.Context, h *holder, err error) error {
	if ctx.Err() != nil {
		return fault.Wrap(fault.Unavailable, "token of "+h.account.Name, ctx.Err())
	}
	v := k.verdict(err)
	pause, failures, stoppedNow := h.fail(err, v, k.opt.Now())
	fields := []zap.Field{zap.String("account", h.account.Name), zap.Int("errcode", v.Code), zap.Duration("retry_in", pause), zap.Error(err)}
	switch {
	case stoppedNow:
		k.log.Error("account stopped: WeChat refuses to give a token; "+advice(v.Code), fields...)
	case !v.Stop:
		k.log.Warn("no token yet", fields...)
	}
	why := fmt.Sprintf("%s, errcode %d", fault.KindOf(err), v.Code)
	if v.Stop {
		why = fmt.Sprintf("errcode %d: %s", v.Code, advice(v.Code))
	}
	k.tell(h, failures, v.Stop, why)
	return fault.New(fault.KindOf(err), "token of "+h.account.Name, "%w", err).WithRetryAfter(pause)
}

// tell shows how a renewal went, unless the account was taken away or has got
// other credentials meanwhile: nobody would take back what is said then. The
// lock puts it before or after such a change, never in between.
func (k *Keeper) tell(h *holder, failures int, stop bool, why string) {
	name := h.account.Name
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.holders[name] != h {
		return
	}
	switch {
	case failures == 0:
		k.met.stopped.WithLabelValues(name).Set(0)
	case stop:
		k.met.stopped.WithLabelValues(name).Set(1)
	}
	k.opt.Told(name, failures, stop, why)
}

// verdict reads our own refusals from their kind and WeChat's by the judge.
func (k *Keeper) verdict(err error) Verdict {
	if fault.KindOf(err) == fault.Limited {
		return Verdict{Retry: fault.RetryAfter(err)}
	}
	return k.opt.Judge(err)
}

// episode is one attempt to find or fetch a token.
func (k *Keeper) episode(ctx context.Context, h *holder, why reason) (Token, error) {
	need := time.Duration(0)
	if why.ahead {
		need = k.opt.Ahead
	}
	claim, t, err := k.claim(ctx, h, need)
	if err != nil {
		return Token{}, err
	}
	if claim == nil && t.Value != "" {
		return t, nil
	}
	if claim != nil {
		defer claim.Release(ctx)
	}
	ledger := h.bookkeeping()
	if claim != nil {
		l, err := k.readLedger(ctx, h.account.Name)
		if err != nil && fault.KindOf(err) != fault.Internal {
			claim = nil // Redis went away in between: work alone
		}
		ledger = ledger.merge(l) // an unreadable ledger is begun anew
	}
	value, life, err := k.fetch(ctx, h, ledger, claim)
	if err != nil {
		return Token{}, err
	}
	crash.At("CP15")
	now := k.opt.Now()
	t = Token{Value: value, ExpiresAt: now.Add(life)}
	if claim == nil {
		return t, nil
	}
	t.Fence = claim.Fence
	return k.offer(ctx, h, t, life, now), nil
}

// claim finds a usable token in Redis, or becomes the refresher, or waits for
// the one who is. It gives neither if Redis is away: then this node works
// alone. Only the end of ctx is an error.
func (k *Keeper) claim(ctx context.Context, h *holder, need time.Duration) (*Claim, Token, error) {
	if k.shared == nil {
		return nil, Token{}, nil
	}
	for {
		asked, cancel := context.WithTimeout(ctx, redisBudget)
		c, t, err := k.look(asked, h, need)
		cancel()
		if ctx.Err() != nil {
			return nil, Token{}, fault.Wrap(fault.Unavailable, "wait for the refresher", ctx.Err())
		}
		if err != nil {
			k.met.alone.WithLabelValues(h.account.Name).Inc()
			return nil, Token{}, nil //nolint:nilerr // Redis is away: that is what the empty answer says
		}
		if c != nil || t.Value != "" {
			return c, t, nil
		}
		select {
		case <-time.After(lookAgain + rand.N(lookAgain)):
		case <-ctx.Done():
		}
	}
}

func (k *Keeper) look(ctx context.Context, h *holder, need time.Duration) (*Claim, Token, error) {
	name := h.account.Name
	if t, ok, err := k.shared.Load(ctx, name); err != nil || ok && h.acceptable(t, k.opt.Now(), need) {
		return nil, t, err
	}
	c, err := k.shared.Claim(ctx, name, k.opt.Lease)
	if err != nil || c == nil {
		return nil, Token{}, err
	}
	// The refresher before us may have finished between the two questions.
	t, ok, err := k.shared.Load(ctx, name)
	if err != nil || ok && h.acceptable(t, k.opt.Now(), need) {
		c.Release(ctx)
		return nil, t, err
	}
	return c, Token{}, nil
}

func (k *Keeper) readLedger(ctx context.Context, account string) (Ledger, error) {
	ctx, cancel := context.WithTimeout(ctx, redisBudget)
	defer cancel()
	return k.shared.Ledger(ctx, account)
}

func (k *Keeper) offer(ctx context.Context, h *holder, t Token, life time.Duration, now time.Time) Token {
	ctx, cancel := context.WithTimeout(ctx, redisBudget)
	defer cancel()
	winner, err := k.shared.Offer(ctx, h.account.Name, t, life)
	if err != nil || !h.acceptable(winner, now, 0) {
		return t // ours is good on this node in any case
	}
	return winner
}
