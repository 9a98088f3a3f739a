package token

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/lease"
	"tidegate/pkg/redis"
)

// ledgerLife is how long a ledger lives in Redis: beyond the day that it counts.
const ledgerLife = 48 * time.Hour

// offerTries bounds the compare-and-set loop; each failed turn means that
// another node has just written.
const offerTries = 5

// Shared is what the nodes have in common, in Redis:
//
//	{<account>}:token            JSON of the token, lives as long as the token
//	{<account>}:token:ledger     JSON of the ledger
//	{token/<account>}:lease      the refresher's lease (pkg/lease)
//	{token/<account>}:fence      the last fence; rises also after Redis lost its data
type Shared struct{ c *redis.Client }

// NewShared uses an open client.
func NewShared(c *redis.Client) *Shared { return &Shared{c: c} }

// stored is the token at rest.
type stored struct {
	Value     string `json:"value"`
	ExpiresAt int64  `json:"expires_at"`
	Fence     int64  `json:"fence"`
}

// Load reads the cached token; ok is false if there is none.
func (s *Shared) Load(ctx context.Context, account string) (t Token, ok bool, err error) {
	raw, found, err := s.c.Get(ctx, redis.Tag(account, "token"))
	if err != nil || !found {
		return Token{}, false, err
	}
	t, ok = decode(raw)
	return t, ok, nil
}

// decode treats what it cannot read as absent: it will be overwritten.
func decode(raw string) (Token, bool) {
	var v stored
	if json.Unmarshal([]byte(raw), &v) != nil || v.Value == "" {
		return Token{}, false
	}
	return Token{Value: v.Value, ExpiresAt: time.UnixMilli(v.ExpiresAt), Fence: v.Fence}, true
}

// Offer stores t unless a later refresh has stored another one, and gives the
// token that is then in force. Which of two is later is decided by their fences
// alone: a refresher may sleep between its answer and this call for as long as it
// likes (T44).
func (s *Shared) Offer(ctx context.Context, account string, t Token, life time.Duration) (Token, error) {
	b, err := json.Marshal(stored{Value: t.Value, ExpiresAt: t.ExpiresAt.UnixMilli(), Fence: t.Fence})
	if err != nil {
		return t, fault.Wrap(fault.Internal, "encode token of "+account, err)
	}
	key, value := redis.Tag(account, "token"), string(b)
	for range offerTries {
		prev, set, err := s.c.SetNXGet(ctx, key, value, life)
		if err != nil {
			return t, err
		}
		if set || prev == value {
			return t, nil
		}
		if old, ok := decode(prev); ok && old.Fence > t.Fence {
			return old, nil
		}
		done, err := s.c.CompareAndSet(ctx, key, prev, value, life)
		if err != nil || done {
			return t, err
		}
	}
	return t, fault.New(fault.Unavailable, "store token of "+account, "%d other writers came between", offerTries)
}

// Claim is the right to refresh: a fenced lease, as a guard's fetcher has one.
type Claim struct {
	l     *lease.Lease
	Fence int64
}

// Claim tries to become the refresher for life; nil means that another node is.
func (s *Shared) Claim(ctx context.Context, account string, life time.Duration) (*Claim, error) {
	l, err := lease.Acquire(ctx, s.c, leaseName(account), life)
	switch {
	case errors.Is(err, lease.ErrHeld):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &Claim{l, l.Fence()}, nil
}

func leaseName(account string) string { return "token/" + account }

// Valid reports whether nobody else can be the refresher yet.
func (c *Claim) Valid() bool { return c.l.Valid() }

// Release gives the claim back; if that fails it ends by itself.
func (c *Claim) Release(ctx context.Context) { _ = c.l.Release(context.WithoutCancel(ctx)) }

// Ledger reads the account's ledger; an absent one is empty.
func (s *Shared) Ledger(ctx context.Context, account string) (Ledger, error) {
	raw, found, err := s.c.Get(ctx, redis.Tag(account, "token", "ledger"))
	if err != nil || !found {
		return Ledger{}, err
	}
	var l Ledger
	err = json.Unmarshal([]byte(raw), &l)
	return l, fault.Wrap(fault.Internal, "read ledger of "+account, err)
}

// SaveLedger writes the ledger; only the refresher does.
func (s *Shared) SaveLedger(ctx context.Context, account string, l Ledger) error {
	b, err := json.Marshal(l)
	if err != nil {
		return fault.Wrap(fault.Internal, "encode ledger of "+account, err)
	}
	return s.c.Set(ctx, redis.Tag(account, "token", "ledger"), string(b), ledgerLife)
}
