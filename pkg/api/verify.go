package api

import (
	"context"
	"crypto/subtle"
	"errors"
	"io/fs"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"tidegate/pkg/fault"
)

const (
	// KeyLife is how long a node trusts what it read about keys: the longest
	// time that a revoked key goes on working (S70 allows 5 s).
	KeyLife = 3 * time.Second
	// Grace is how long keys stay valid while the database cannot be asked.
	Grace = 2 * time.Minute

	readTimeout = 2 * time.Second
	// Unknown keys are looked up one by one, so that a new key works at once;
	// invented ones cost the database no more than this.
	lookupsPerSecond = 50
)

// ErrNoKey is in the chain of every refusal of a key: it makes the difference
// between 401 (who are you) and 403 (you may not).
var ErrNoKey = errors.New("no valid key")

// Keys verifies keys from a copy of the book that is at most KeyLife old. It
// is safe for concurrent use.
type Keys struct {
	book    *Book
	lookups *rate.Limiter
	flight  singleflight.Group

	mu     sync.RWMutex
	known  map[string]entry
	readAt time.Time
}

// NewKeys makes a verifier over a book. It reads nothing until the first key
// is presented.
func NewKeys(b *Book) *Keys {
	return &Keys{book: b, lookups: rate.NewLimiter(lookupsPerSecond, lookupsPerSecond), known: map[string]entry{}}
}

// Verify finds the app of a presented key. Errors: kind fault.Denied with
// ErrNoKey for a key that is wrong or revoked (the text is the same for
// both), fault.Unavailable when keys cannot be read.
func (k *Keys) Verify(ctx context.Context, text string) (App, error) {
	id, ok := splitKey(text)
	if !ok {
		return App{}, denied()
	}
	if err := k.refresh(ctx); err != nil {
		return App{}, err
	}
	e, found := k.entry(id)
	if !found && k.lookups.Allow() {
		var err error
		if e, found, err = k.lookUp(ctx, id); err != nil {
			return App{}, err
		}
	}
	// The comparison also runs for an unknown id, against an empty hash, so
	// that time tells nothing about which ids exist.
	same := subtle.ConstantTimeCompare([]byte(hashKey(text)), []byte(e.hash)) == 1
	if !found || !same || !e.app.RevokedAt.IsZero() {
		return App{}, denied()
	}
	return e.app, nil
}

func denied() error {
	return fault.New(fault.Denied, "check key", "%w: send the header \"Authorization: Bearer tg_…\" with a key that is not revoked", ErrNoKey)
}

func (k *Keys) entry(id string) (entry, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	e, ok := k.known[id]
	return e, ok
}

func (k *Keys) age() time.Duration {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.book.now().Sub(k.readAt)
}

// refresh reads the book when the copy is old. One reader works for all who
// wait; a failure is forgiven while the copy is younger than Grace.
func (k *Keys) refresh(ctx context.Context) error {
	if k.age() < KeyLife {
		return nil
	}
	_, err, _ := k.flight.Do("all", func() (any, error) {
		if k.age() < KeyLife {
			return nil, nil
		}
		return nil, k.readAll(context.WithoutCancel(ctx))
	})
	if err == nil || k.age() < Grace {
		return nil
	}
	return fault.Wrap(fault.Unavailable, "read keys", err)
}

func (k *Keys) readAll(ctx context.Context) error {
	at := k.book.now() // before the reading: what changes during it counts as unseen
	entries, err := k.book.read(ctx, "SELECT "+keyColumns+" FROM apps")
	if err != nil {
		return err
	}
	known := make(map[string]entry, len(entries))
	for _, e := range entries {
		known[e.app.KeyID] = e
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known, k.readAt = known, at
	return nil
}

// lookUp asks for one key that the copy does not have. While the database is
// away the answer is "unavailable", not "denied": the key may be good.
func (k *Keys) lookUp(ctx context.Context, id string) (entry, bool, error) {
	entries, err := k.book.read(ctx, "SELECT "+keyColumns+" FROM apps WHERE key_id = $1", id)
	if err != nil {
		return entry{}, false, fault.Wrap(fault.Unavailable, "read keys", err)
	}
	if len(entries) == 0 {
		return entry{}, false, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known[id] = entries[0]
	return entries[0], true, nil
}

func migrationFiles() (fs.FS, error) {
	fsys, err := fs.Sub(migrations, "migrations")
	return fsys, fault.Wrap(fault.Internal, "open migrations of keys", err)
}
