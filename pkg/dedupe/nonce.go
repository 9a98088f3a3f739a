package dedupe

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// Nonce is one use of a signed text that does not say what was signed: the same
// text may stand beside another body, and the signature would still be good.
// Whoever takes such a request remembers which body came with the text first.
type Nonce struct {
	// Key is the signed text, with whose it is (account, timestamp, nonce).
	Key string
	// Body is a hash of everything that came with it.
	Body [sha256.Size]byte
	// TTL is how long the text may still be used; afterwards its own age
	// refuses it, and nothing needs to be remembered.
	TTL time.Duration
}

// NonceVerdict says how a signed text was used before.
type NonceVerdict uint8

// The verdicts. All but NonceReused are let through.
const (
	NonceFirst     NonceVerdict = iota // not used before
	NonceRepeated                      // used with the same body: the claim of its identity decides
	NonceReused                        // used with another body: somebody forges
	NonceUnchecked                     // Redis could not say, and this node has not seen it
)

// Nonce remembers n and tells whether it was used before. It costs one question
// to Redis, within the budget.
func (s *Store) Nonce(ctx context.Context, n Nonce) NonceVerdict {
	known := s.nonces.note(n, time.Now())
	if known == NonceReused {
		return known
	}
	got, err := s.set(ctx, n.setting(), true)
	return s.judge(n, known, got, err)
}

// ClaimWithNonce is Claim and Nonce in one round trip. After NonceReused the
// claim is one that does nothing: what it would have held was given back.
func (s *Store) ClaimWithNonce(ctx context.Context, identityKey string, n Nonce) (Verdict, *Claim, NonceVerdict) {
	known := s.nonces.note(n, time.Now())
	if known == NonceReused {
		r := s.forged()
		return r.Verdict, r.Claim, r.Nonce
	}
	c := s.newClaim(identityKey)
	mark, used := s.setBoth(ctx, c.setting(), n.setting())
	r := s.conclude(ctx, c, &n, known, mark, used)
	return r.Verdict, r.Claim, r.Nonce
}

// judge puts together what this node and Redis know. Redis is right about which
// body came first: it has heard every node.
func (s *Store) judge(n Nonce, known NonceVerdict, got redis.Setting, err error) NonceVerdict {
	switch {
	case err != nil && known == NonceFirst:
		return NonceUnchecked
	case err != nil:
		return known
	case got.Set:
		return known
	case got.Prev == n.mark():
		return NonceRepeated
	}
	s.nonces.correct(n, got.Prev, time.Now())
	return NonceReused
}

func (n Nonce) setting() redis.Setting {
	return redis.Setting{Key: redis.Key("nonce", digest(n.Key)), Value: n.mark(), TTL: n.TTL, IfAbsent: true}
}

// mark is half of the hash: 128 bits are more than anybody can match.
func (n Nonce) mark() string { return base64.RawURLEncoding.EncodeToString(n.Body[:len(n.Body)/2]) }

// setBoth asks two questions that leave with the same pipeline. Like a lone
// claim they are asked once more after a connection broke; both bear that.
func (s *Store) setBoth(ctx context.Context, a, b redis.Setting) (redis.Setting, redis.Setting) {
	if !s.gate.allow() {
		a.Err = fault.Wrap(fault.Unavailable, "dedupe", errOpen)
		b.Err = a.Err
		return a, b
	}
	budget := s.batch.timer()
	defer s.batch.rest(budget)
	ra, rb := s.batch.askBoth(ctx, budget.C, a, b)
	if again(ctx, ra.Err) || again(ctx, rb.Err) {
		ra, rb = s.batch.askBoth(ctx, budget.C, a, b)
	}
	err := ra.Err
	if err == nil {
		err = rb.Err
	}
	_ = s.heard(ctx, err) // the callers look at each one's own error
	return ra, rb
}
