package intake

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

//go:embed migrations
var migrations embed.FS

// KeepKeys is how long idempotency keys are remembered, as long as the
// sender remembers that it has begun a message.
const KeepKeys = 72 * time.Hour

const purgePortion = 5000

// keyRow is what is remembered of an idempotency key.
type keyRow struct {
	App, KeyHash, BodyHash, ID string
	AcceptedAt                 time.Time
	Published                  bool // a 202 was about to be given: the record is durable
}

// keyStore remembers idempotency keys in SQL, so that every node knows them.
type keyStore struct{ db *sqldb.DB }

func openKeys(ctx context.Context, db *sqldb.DB) (*keyStore, error) {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("open idempotency keys: %w", err)
	}
	if err := db.Migrate(ctx, "intake", sub); err != nil {
		return nil, fmt.Errorf("open idempotency keys: %w", err)
	}
	return &keyStore{db}, nil
}

// remember stores a new key, or gives what was stored before. It is called
// before anything is published.
func (s *keyStore) remember(ctx context.Context, k keyRow) (stored keyRow, existed bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO push_key (app, key_hash, body_hash, id, accepted_at, published)
		VALUES ($1, $2, $3, $4, $5, 0) ON CONFLICT (app, key_hash) DO NOTHING`,
		k.App, k.KeyHash, k.BodyHash, k.ID, k.AcceptedAt.UnixMilli())
	if err != nil {
		// Also when the statement may have been applied: nothing is published
		// yet, and the repeat will find its own row.
		return k, false, fault.Wrap(fault.Unavailable, "remember idempotency key", err)
	}
	if n == 1 {
		return k, false, nil
	}
	stored = keyRow{App: k.App, KeyHash: k.KeyHash}
	var at int64
	var published int
	err = s.db.QueryRow(ctx, `SELECT body_hash, id, accepted_at, published FROM push_key WHERE app = $1 AND key_hash = $2`,
		k.App, k.KeyHash).Scan(&stored.BodyHash, &stored.ID, &at, &published)
	if err != nil {
		return k, false, fault.Wrap(fault.Unavailable, "read idempotency key", err)
	}
	stored.AcceptedAt, stored.Published = time.UnixMilli(at), published == 1
	return stored, true, nil
}

// find gives what is stored of a key; Published is false if that is nothing.
func (s *keyStore) find(ctx context.Context, app, keyHash string) (keyRow, error) {
	k := keyRow{App: app, KeyHash: keyHash}
	var published int
	err := s.db.QueryRow(ctx, `SELECT body_hash, id, published FROM push_key WHERE app = $1 AND key_hash = $2`, app, keyHash).Scan(&k.BodyHash, &k.ID, &published)
	if errors.Is(err, sql.ErrNoRows) {
		return k, nil
	}
	k.Published = published == 1
	return k, fault.Wrap(fault.Unavailable, "read idempotency key", err)
}

// published notes that the push is durable.
func (s *keyStore) published(ctx context.Context, k keyRow) error {
	_, err := s.db.Exec(ctx, `UPDATE push_key SET published = 1 WHERE app = $1 AND key_hash = $2`, k.App, k.KeyHash)
	return err
}

// purge forgets keys accepted before a time.
func (s *keyStore) purge(ctx context.Context, before time.Time) error {
	for {
		n, err := s.db.Exec(ctx, `DELETE FROM push_key WHERE (app, key_hash) IN
			(SELECT app, key_hash FROM push_key WHERE accepted_at < $1 LIMIT $2)`, before.UnixMilli(), purgePortion)
		if err != nil || n < purgePortion {
			return err
		}
	}
}
