package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/wire"
)

// keepBatch is how many rows one transaction of the housekeeping touches, so
// that it never holds up the news for long.
const keepBatch = 500

// TimeOut settles pushes that WeChat accepted before a time and never reported
// on as no_receipt. It works through all of them, in small transactions, and
// tells how many it found. A receipt that comes later still wins.
func (s *SQL) TimeOut(ctx context.Context, before time.Time) (int, error) {
	total := 0
	for {
		ms, err := s.readMessages(ctx, s.db, " WHERE state = 'accepted' AND kind = 'push' AND accepted_at < $1"+
			" ORDER BY accepted_at LIMIT $2", before.UnixMilli(), keepBatch)
		if err != nil || len(ms) == 0 {
			return total, err
		}
		news := make([]News, len(ms))
		for i, m := range ms {
			news[i] = News{Source: FromTimeout, Kind: m.Kind, ID: m.ID, IdentityHash: m.IdentityHash, Account: m.Account,
				State: wire.NoReceipt, Reason: "no receipt came", At: s.now().UnixMilli(), Born: m.At}
		}
		if _, err := s.Apply(ctx, news); err != nil {
			return total, err
		}
		total += len(ms)
	}
}

// Disown marks events that were parked before a time as foreign: about
// messages that somebody else sent for the account. They stay apart for
// people to look at; should their row still come, they join it.
func (s *SQL) Disown(ctx context.Context, before time.Time) (int, error) {
	n, err := s.db.Exec(ctx, "UPDATE parked SET foreigner = 1 WHERE foreigner = 0 AND parked_at < $1", before.UnixMilli())
	return int(n), err
}

// Parking counts the events that wait for their row and the foreign ones.
func (s *SQL) Parking(ctx context.Context) (waiting, foreign int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT CAST(COALESCE(SUM(1 - foreigner), 0) AS BIGINT), CAST(COALESCE(SUM(foreigner), 0) AS BIGINT) FROM parked`).Scan(&waiting, &foreign)
	return waiting, foreign, err
}

// Purge deletes messages of some kinds whose first news is older than a time,
// with their stories and letters: rows in small transactions, and on PostgreSQL
// partitions of days that are over as a whole, which is done at once.
func (s *SQL) Purge(ctx context.Context, kinds []wire.Kind, before time.Time) (int, error) {
	total := 0
	for {
		n := 0
		err := s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) (err error) {
			n, err = s.purgeTx(ctx, tx, Filter{Kinds: kinds, To: before})
			return err
		})
		total += n
		if err != nil {
			return total, err
		}
		if n < keepBatch {
			dropped, err := s.dropParts(ctx, kinds, before.UnixMilli())
			return total + dropped, err
		}
	}
}

// purgeTx looks for old rows first and locks them in the order of their ids
// then, as every writer does.
func (s *SQL) purgeTx(ctx context.Context, tx *sqldb.Tx, f Filter) (int, error) {
	w := s.where(f)
	if s.db.Dialect() == sqldb.Postgres {
		w.and("part = 0") // what lies in partitions goes with them
	}
	if err := s.guardKeys(ctx, tx, nil); err != nil {
		return 0, err
	}
	old, err := s.readMessages(ctx, tx, w.text.String()+" ORDER BY at LIMIT "+w.param(keepBatch), w.args...)
	if err != nil {
		return 0, err
	}
	doomed := map[target]bool{}
	for _, m := range old {
		doomed[target{m.ID, m.Variant, m.Part}] = true
	}
	locked := s.newWork()
	if err := s.lock(ctx, tx, locked, nil, slices.Collect(maps.Keys(doomed))); err != nil {
		return 0, err
	}
	gone := map[countKey]count{}
	var ids []string // of variant 0, the rule
	for _, r := range locked.sorted() {
		switch {
		case !doomed[target{r.was.ID, r.was.Variant, r.was.Part}]:
			continue
		case r.was.Variant == 0:
			ids = append(ids, r.was.ID)
		default:
			if err := deleteRows(ctx, tx, "id = $1 AND variant = $2", r.was.ID, r.was.Variant); err != nil {
				return 0, err
			}
		}
		gone[r.was.countKey()] = gone[r.was.countKey()].with(-1, r.was.At)
	}
	for _, chunk := range chunks(ids) {
		if err := deleteRows(ctx, tx, "variant = 0 AND id IN "+in(1, len(chunk)), anys(chunk)...); err != nil {
			return 0, err
		}
	}
	return len(old), s.writeCounts(ctx, tx, gone)
}

func deleteRows(ctx context.Context, tx *sqldb.Tx, cond string, args ...any) error {
	for _, table := range []string{"messages", "steps", "letters"} {
		if _, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE "+cond, args...); err != nil {
			return err
		}
	}
	return nil
}

// PurgeParked deletes parked and foreign events, and finished re-sends, that
// are older than a time.
func (s *SQL) PurgeParked(ctx context.Context, before time.Time) (int, error) {
	n, err := s.db.Exec(ctx, "DELETE FROM parked WHERE parked_at < $1", before.UnixMilli())
	if err != nil {
		return 0, err
	}
	for _, table := range []string{"resends", "resend_jobs"} { // the first is the previous release's
		if _, err = s.db.Exec(ctx, "DELETE FROM "+table+" WHERE begun_at < $1 AND finished_at > 0", before.UnixMilli()); err != nil {
			break
		}
	}
	return int(n), err
}
