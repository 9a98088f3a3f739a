package token

import (
	"context"

	"tidegate/pkg/fault"
)

// Latest gives the token for another system, which must never see an older one
// after a newer one, whichever node it asks. So only what the nodes have in common
// counts, as it is now: of two tokens there the one with the higher fence is the
// newer, and memory may lag behind. Where the common store has lost its data,
// WeChat is asked, in the normal mode that changes nothing. Errors are those of
// Token; fault.Unavailable also while Redis is away, since then nobody can tell
// which token is the newest; the caller's own is good for a while longer.
func (k *Keeper) Latest(ctx context.Context, account string) (Token, error) {
	h, err := k.holder(account)
	if err != nil {
		return Token{}, err
	}
	if k.shared == nil {
		return k.Token(ctx, account) // there is one node, and its memory goes forward only
	}
	if t, err := k.common(ctx, h); err != nil || t.Value != "" {
		return t, err
	}
	if _, err := k.renew(ctx, h, reason{common: true}); err != nil {
		return Token{}, err
	}
	t, err := k.common(ctx, h) // not what renew gave: it may not have got there
	if err == nil && t.Value == "" {
		err = fault.New(fault.Unavailable, "latest token of "+account, "what was fetched is not in Redis")
	}
	return t, err
}

// common reads the token that all nodes have; it is empty if none can be used.
func (k *Keeper) common(ctx context.Context, h *holder) (Token, error) {
	ctx, cancel := context.WithTimeout(ctx, redisBudget)
	defer cancel()
	t, ok, err := k.shared.Load(ctx, h.account.Name)
	if err != nil {
		return Token{}, fault.Wrap(fault.Unavailable, "latest token of "+h.account.Name, err)
	}
	if !ok || !h.acceptable(t, k.opt.Now(), 0) {
		return Token{}, nil
	}
	h.follow(t)
	return t, nil
}

// follow makes a newer token that others have fetched the current one.
func (h *holder) follow(t Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.Fence > h.current.Fence {
		h.current = t
	}
}
