package store

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/wire"
)

// target is the key of a row.
type target struct {
	id      string
	variant int
	part    int64
}

type parkedKey struct {
	ref
	digest string
}

var parkedTable = table{"parked", "msg_id, account, openid, digest",
	columnsOf("account, msg_id, openid, digest, source, state, reason, errcode:i, event, detail, at:i, parked_at:i, foreigner:i")}

// findRefs looks for the rows that events are about. The msg_id finds them;
// account and openid must agree, or the event is not about that row.
func (s *SQL) findRefs(ctx context.Context, q sqldb.Querier, events []News, since int64) (map[ref]target, error) {
	found := map[ref]target{}
	for _, piece := range s.pieces(msgIDs(events, func(n News) string { return n.MsgID })) {
		cond, args := s.among("msg_id", 1, piece)
		ms, err := s.readMessages(ctx, q, " WHERE msg_id <> '' AND "+cond+s.since(since), args...)
		if err != nil {
			return nil, err
		}
		for _, m := range ms {
			found[m.ref()] = target{m.ID, m.Variant, m.Part}
		}
	}
	return found, nil
}

func msgIDs[T any](items []T, id func(T) string) []string {
	var out []string
	for _, it := range items {
		out = append(out, id(it))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// loadParked joins the events that waited for the rows that have just got
// their msg_id.
func (s *SQL) loadParked(ctx context.Context, tx *sqldb.Tx, w *work, gained map[ref]*row) error {
	ids := msgIDs(slices.Collect(maps.Keys(gained)), func(r ref) string { return r.msgID })
	for _, piece := range s.pieces(ids) {
		lines, err := s.readParked(ctx, tx, piece, s.forUpdate())
		if err != nil {
			return err
		}
		for _, l := range lines {
			if r := gained[l.news.ref()]; r != nil {
				w.join(r, l.news)
				w.unpark = append(w.unpark, l.key)
			}
		}
	}
	return nil
}

type parkedLine struct {
	key  parkedKey
	news News
}

func (s *SQL) readParked(ctx context.Context, q sqldb.Querier, ids []string, lock string) ([]parkedLine, error) {
	cond, args := s.among("msg_id", 1, ids)
	rows, err := q.Query(ctx, "SELECT "+parkedTable.names()+" FROM parked WHERE "+cond+" ORDER BY msg_id, account, openid, digest"+lock, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []parkedLine
	for rows.Next() {
		var l parkedLine
		var since int64
		var foreigner int
		n := &l.news
		if err := rows.Scan(&n.Account, &n.MsgID, &n.OpenID, &l.key.digest, &n.Source, &n.State, &n.Reason, &n.ErrCode,
			&n.Event, &n.Detail, &n.At, &since, &foreigner); err != nil {
			return nil, err
		}
		n.Kind = wire.KindPush
		l.key.ref = n.ref()
		out = append(out, l)
	}
	return out, rows.Err()
}

// writeParked takes away what was joined and puts down what has no row yet.
func (s *SQL) writeParked(ctx context.Context, tx *sqldb.Tx, w *work) error {
	if err := s.unpark(ctx, tx, w.unpark); err != nil {
		return err
	}
	var lines []News
	for _, ns := range w.parking {
		lines = append(lines, ns...)
	}
	slices.SortFunc(lines, func(a, b News) int {
		return cmp.Or(cmp.Compare(a.MsgID, b.MsgID), cmp.Compare(a.Account, b.Account), cmp.Compare(a.OpenID, b.OpenID), cmp.Compare(a.digest(), b.digest()))
	})
	_, err := s.insert(ctx, tx, parkedTable, len(lines), func(i int) []any {
		n := lines[i]
		return []any{n.Account, n.MsgID, n.OpenID, n.digest(), n.Source, string(n.State), n.Reason, n.ErrCode, n.Event, n.Detail, n.At, w.at, 0}
	}, " ON CONFLICT DO NOTHING")
	return err
}

func (s *SQL) unpark(ctx context.Context, tx *sqldb.Tx, keys []parkedKey) error {
	if len(keys) > 0 && s.db.Dialect() == sqldb.Postgres {
		doomed := table{columns: columnsOf("msg_id, account, openid, digest")}
		_, err := tx.Exec(ctx, "DELETE FROM parked USING "+doomed.unnest(1)+" WHERE parked.msg_id = rows.msg_id AND parked.account = rows.account"+
			" AND parked.openid = rows.openid AND parked.digest = rows.digest",
			doomed.arrays(len(keys), func(i int) []any { return []any{keys[i].msgID, keys[i].account, keys[i].openID, keys[i].digest} })...)
		return err
	}
	for _, k := range keys {
		if _, err := tx.Exec(ctx, "DELETE FROM parked WHERE msg_id = $1 AND account = $2 AND openid = $3 AND digest = $4",
			k.msgID, k.account, k.openID, k.digest); err != nil {
			return err
		}
	}
	return nil
}

// meetTimeout bounds the look after the commit; running out of it repeats the
// batch, which finds everything in its place.
const meetTimeout = 10 * time.Second

// meet closes the gap between two transactions that run at once, one parking
// an event, the other telling the msg_id of its row: neither sees the other.
// Whichever commits last finds here, after its commit, what the first wrote.
func (s *SQL) meet(ctx context.Context, w *work) (Applied, error) {
	var ids []string
	for r := range w.parking {
		ids = append(ids, r.msgID)
	}
	for r := range w.gained() {
		ids = append(ids, r.msgID)
	}
	slices.Sort(ids)
	ctx, cancel := context.WithTimeout(ctx, meetTimeout)
	defer cancel()
	return s.joinParked(ctx, slices.Compact(ids), s.recent())
}

// joinParked joins the parked events of some msg_ids whose rows exist.
func (s *SQL) joinParked(ctx context.Context, ids []string, since int64) (Applied, error) {
	var news []News
	for _, piece := range s.pieces(ids) {
		lines, err := s.readParked(ctx, s.db, piece, "")
		if err != nil {
			return Applied{}, err
		}
		for _, l := range lines {
			news = append(news, l.news)
		}
	}
	if len(news) == 0 {
		return Applied{}, nil
	}
	for try := 1; ; try++ {
		w := s.newWork()
		err := s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error { return s.joinTx(ctx, tx, w, news, since) })
		if errors.Is(err, errRace) && try < raceTries {
			continue
		}
		return w.result, err
	}
}

func (s *SQL) joinTx(ctx context.Context, tx *sqldb.Tx, w *work, news []News, since int64) error {
	if err := s.guardKeys(ctx, tx, nil); err != nil {
		return err
	}
	found, err := s.findRefs(ctx, tx, news, since)
	if err != nil || len(found) == 0 {
		return err
	}
	if err := s.lock(ctx, tx, w, nil, slices.Collect(maps.Values(found))); err != nil {
		return err
	}
	rows := map[ref]*row{}
	for r, t := range found {
		if row := w.at0(t); row != nil {
			rows[r] = row
		}
	}
	if err := s.loadParked(ctx, tx, w, rows); err != nil {
		return err
	}
	return s.write(ctx, tx, w)
}

// JoinLate joins events that wait since before a time with rows of any day. Apply
// looks only where nearly all rows are; the few that were sent days after their
// birth are found here. It tells how many events met their row.
func (s *SQL) JoinLate(ctx context.Context, before time.Time) (int, error) {
	if s.db.Dialect() != sqldb.Postgres {
		return 0, nil // Apply looked everywhere
	}
	total, after := 0, ""
	for {
		var ids []string
		err := s.eachRow(ctx, statement{"SELECT DISTINCT msg_id FROM parked WHERE foreigner = 0 AND parked_at < $1 AND msg_id > $2 ORDER BY msg_id LIMIT $3",
			[]any{before.UnixMilli(), after, keepBatch}}, func(rows *sqldb.Rows) error {
			var id string
			err := rows.Scan(&id)
			ids = append(ids, id)
			return err
		})
		if err != nil || len(ids) == 0 {
			return total, err
		}
		a, err := s.joinParked(ctx, ids, everything)
		if total += a.Joined; err != nil || len(ids) < keepBatch {
			return total, err
		}
		after = ids[len(ids)-1]
	}
}
