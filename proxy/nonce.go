package proxy

import (
	"context"
	"crypto/sha256"
	"time"

	"tidegate/pkg/dedupe"
	"tidegate/pkg/wechat"
)

// In plain mode the signature covers token, timestamp and nonce, and nothing of
// the body: whoever saw one request can send any other body with its query
// string for as long as its timestamp is fresh. So the door remembers, over all
// nodes, which body came with a nonce first, and refuses another (S8).
//
// In safe and compatible mode there is nothing to remember: msg_signature covers
// the ciphertext, only what was decrypted from it is used, and a recorded
// request that comes again is a duplicate by its identity (S7). That is the hot
// path, and it does not pass here.
//
// A nonce that comes again with the same body is let through to the claim, which
// knows whether the first delivery became durable: refusing it here could lose a
// callback. WeChat's own repeats carry fresh nonces.

const (
	// nonceSkew is how far the clocks of two nodes may be apart.
	nonceSkew = 5 * time.Second
	// nonceLife bounds the memory where no freshness bounds the timestamp.
	nonceLife = 10 * time.Minute
	// maxPlainFreshness keeps the memory of nonces small.
	maxPlainFreshness = time.Hour
)

var errNonce = &wechat.Refusal{Reason: "nonce"}

// claim claims a callback's identity, and lets f go on if there is one.
func (p *Proxy) claim(ctx context.Context, a arrival, key string, f *flight) (got dedupe.Claimed) {
	if f != nil {
		var n *dedupe.Nonce
		if !a.opened.Encrypted {
			nonce := p.nonceOf(a.acc, a.query, a.query.OpenID, a.opened.Plain)
			n = &nonce
		}
		return p.d.Claims.ClaimThen(ctx, key, n, f.onward())
	}
	if a.opened.Encrypted {
		got.Verdict, got.Claim = p.d.Claims.Claim(ctx, key)
		return got
	}
	got.Verdict, got.Claim, got.Nonce = p.d.Claims.ClaimWithNonce(ctx, key, p.nonceOf(a.acc, a.query, a.query.OpenID, a.opened.Plain))
	return got
}

// reused is the question of the nonce alone, for what needs no claim.
func (p *Proxy) reused(ctx context.Context, a arrival) bool {
	return !a.opened.Encrypted &&
		p.d.Claims.Nonce(ctx, p.nonceOf(a.acc, a.query, a.query.OpenID, a.opened.Plain)) == dedupe.NonceReused
}

// reusedByCheck keeps the signature of an address check from being used for a
// callback, and the other way round.
func (p *Proxy) reusedByCheck(ctx context.Context, acc *entry, q wechat.Query) bool {
	return acc.verifier.Mode() == wechat.ModePlain &&
		p.d.Claims.Nonce(ctx, p.nonceOf(acc, q, "echostr", []byte(q.EchoStr))) == dedupe.NonceReused
}

// nonceOf hashes what the signature does not cover: the body, and what stands
// beside it in the query string and is used.
func (p *Proxy) nonceOf(acc *entry, q wechat.Query, beside string, body []byte) dedupe.Nonce {
	h := sha256.New()
	h.Write([]byte(beside))
	h.Write([]byte{0})
	h.Write(body)
	n := dedupe.Nonce{
		// Neither a name nor a timestamp holds a line feed, and a nonce is printable.
		Key: acc.Name + "\n" + q.Timestamp + "\n" + q.Nonce,
		TTL: nonceLife,
	}
	h.Sum(n.Body[:0])
	if fresh := acc.Credentials.Freshness; fresh > 0 {
		left := time.Unix(q.Seconds(), 0).Add(fresh).Sub(p.d.Now())
		n.TTL = max(left, 0) + nonceSkew
	}
	return n
}
