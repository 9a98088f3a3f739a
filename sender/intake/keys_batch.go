package intake

import (
	"context"
	"slices"
	"strings"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

// rememberAll is remember for many keys: new ones are stored, of the others the
// rows become what was stored before. Keys go in one order everywhere, so that two
// batches do not wait for each other.
func (s *keyStore) rememberAll(ctx context.Context, rows []*keyRow) error {
	if len(rows) == 0 {
		return nil
	}
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b *keyRow) int { return strings.Compare(a.KeyHash, b.KeyHash) })
	found := make([]keyRow, len(rows))
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		for i, k := range rows {
			found[i] = *k
			n, err := tx.Exec(ctx, `INSERT INTO push_key (app, key_hash, body_hash, id, accepted_at, published)
				VALUES ($1, $2, $3, $4, $5, 0) ON CONFLICT (app, key_hash) DO NOTHING`,
				k.App, k.KeyHash, k.BodyHash, k.ID, k.AcceptedAt.UnixMilli())
			if err != nil {
				return err
			}
			if n == 1 {
				continue
			}
			var at int64
			var published int
			if err := tx.QueryRow(ctx, `SELECT body_hash, id, accepted_at, published FROM push_key WHERE app = $1 AND key_hash = $2`,
				k.App, k.KeyHash).Scan(&found[i].BodyHash, &found[i].ID, &at, &published); err != nil {
				return err
			}
			found[i].AcceptedAt, found[i].Published = time.UnixMilli(at), published == 1
		}
		return nil
	})
	if err != nil {
		// Also when it may have been committed: nothing is published yet.
		return fault.Wrap(fault.Unavailable, "remember idempotency keys", err)
	}
	for i, k := range rows {
		*k = found[i]
	}
	return nil
}

// publishedAll notes that the pushes are durable.
func (s *keyStore) publishedAll(ctx context.Context, rows []*keyRow) error {
	if len(rows) == 0 {
		return nil
	}
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b *keyRow) int { return strings.Compare(a.KeyHash, b.KeyHash) })
	return s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		for _, k := range rows {
			if _, err := tx.Exec(ctx, `UPDATE push_key SET published = 1 WHERE app = $1 AND key_hash = $2`, k.App, k.KeyHash); err != nil {
				return err
			}
		}
		return nil
	})
}
