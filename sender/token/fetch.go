package token

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/wechat"
)

// errLate says that this refresher has slept until others could refresh as well.
// What it knows of the account is old: forcing a refresh now would end a token
// that somebody else has just got.
var errLate = errors.New("the right to refresh has ended meanwhile")

// maxLife is what WeChat gives; a longer answer is not believed.
const maxLife = 2 * time.Hour

// fetch asks WeChat. After a rejection it keeps MinInterval since the last
// renewal, asks normally, and forces once only if the normal call brings the
// rejected token again (trap T43).
func (k *Keeper) fetch(ctx context.Context, h *holder, l Ledger, c *Claim) (string, time.Duration, error) {
	rejected := h.rejectedValue()
	now := k.opt.Now()
	if rejected != "" {
		if left := wait(now, l.RenewedAt, k.opt.MinInterval); left > 0 {
			k.met.contested.WithLabelValues(h.account.Name).Inc()
			k.log.Warn("a token was refused soon after it was fetched: does another system refresh this account's token?",
				zap.String("account", h.account.Name), zap.Duration("wait", left))
			return "", 0, fault.New(fault.Limited, "renew token", "renewed less than %s ago", k.opt.MinInterval).WithRetryAfter(left)
		}
	}
	l.RenewedAt = now.UnixMilli()
	k.save(ctx, h, l, c)
	value, life, err := k.ask(ctx, h, false)
	if err != nil || value != rejected {
		return value, life, err
	}
	if c != nil && !c.Valid() {
		return "", 0, errLate
	}
	l, err = k.mayForce(h, l, c)
	if err != nil {
		return "", 0, err
	}
	if !k.save(ctx, h, l, c) && c != nil {
		return "", 0, fault.New(fault.Limited, "force a token refresh", "it could not be counted: Redis is away").WithRetryAfter(time.Second)
	}
	value, life, err = k.ask(ctx, h, true)
	if err == nil && value == rejected {
		return "", 0, fault.New(fault.Limited, "force a token refresh", "WeChat gave the refused token again").WithRetryAfter(k.opt.MinInterval)
	}
	return value, life, err
}

// mayForce counts a forced refresh or refuses it.
func (k *Keeper) mayForce(h *holder, l Ledger, c *Claim) (Ledger, error) {
	now := k.opt.Now()
	if left := wait(now, l.ForcedAt, k.opt.MinInterval); left > 0 {
		return l, fault.New(fault.Limited, "force a token refresh", "forced less than %s ago", k.opt.MinInterval).WithRetryAfter(left)
	}
	limit := k.opt.ForcedPerDay
	if c == nil && k.shared != nil {
		limit = k.opt.ForcedAlone
	}
	if l.used(now) >= limit {
		k.log.Error("no forced token refresh is left today: find out who else refreshes this account's token",
			zap.String("account", h.account.Name), zap.Int("limit", limit))
		return l, fault.New(fault.Limited, "force a token refresh", "%d were made today", l.used(now)).WithRetryAfter(10 * time.Minute)
	}
	l.ForcedDay, l.Forced, l.ForcedAt = dayOf(now), l.used(now)+1, now.UnixMilli()
	return l, nil
}

// save books in memory always, and in Redis where this node holds the claim.
func (k *Keeper) save(ctx context.Context, h *holder, l Ledger, c *Claim) bool {
	h.book(l)
	if c == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, redisBudget)
	defer cancel()
	return k.shared.SaveLedger(ctx, h.account.Name, l) == nil
}

func (k *Keeper) ask(ctx context.Context, h *holder, force bool) (string, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, k.opt.CallTimeout)
	defer cancel()
	mode := "normal"
	if force {
		mode = "forced"
	}
	ctx = wechat.WithCall(ctx, &wechat.Call{Account: h.account.Name}) // it goes by the account's lines
	value, life, err := k.call.StableToken(ctx, h.account.AppID, h.account.Secret, force)
	if err != nil {
		k.met.renewals.WithLabelValues(h.account.Name, mode, "error").Inc()
		kind := fault.Unavailable
		if k.opt.Judge(err).Stop {
			kind = fault.Stopped
		}
		return "", 0, fault.Wrap(kind, "ask WeChat for a token", err)
	}
	if value == "" || life <= 0 {
		k.met.renewals.WithLabelValues(h.account.Name, mode, "error").Inc()
		return "", 0, fault.New(fault.Unavailable, "ask WeChat for a token", "the answer holds no token")
	}
	k.met.renewals.WithLabelValues(h.account.Name, mode, "ok").Inc()
	return value, min(life, maxLife), nil
}
