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
}

type parkedKey struct {
	ref
	digest string
}

const parkedColumns = "account, msg_id, openid, digest, source, state, reason, errcode, event, detail, at, parked_at, foreigner"

// findRefs looks for the rows that events are about. The msg_id finds them;
// account and openid must agree, or the event is not about that row.
func findRefs(ctx context.Context, q sqldb.Querier, events []News) (map[ref]target, error) {
	found := map[ref]target{}
	for _, chunk := range chunks(msgIDs(events, func(n News) string { return n.MsgID })) {
		ms, err := readMessages(ctx, q, "SELECT "+messageColumns+" FROM messages WHERE msg_id <> '' AND msg_id IN "+in(1, len(chunk)), anys(chunk)...)
		if err != nil {
			return nil, err
		}
		for _, m := range ms {
			found[m.ref()] = target{m.ID, m.Variant}
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
	for _, chunk := range chunks(ids) {
		lines, err := s.readParked(ctx, tx, chunk, s.forUpdate())
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
	rows, err := q.Query(ctx, "SELECT "+parkedColumns+" FROM parked WHERE msg_id IN "+in(1, len(ids))+
		" ORDER BY msg_id, account, openid, digest"+lock, anys(ids)...)
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
func writeParked(ctx context.Context, tx *sqldb.Tx, w *work) error {
	for _, k := range w.unpark {
		if _, err := tx.Exec(ctx, "DELETE FROM parked WHERE msg_id = $1 AND account = $2 AND openid = $3 AND digest = $4",
			k.msgID, k.account, k.openID, k.digest); err != nil {
			return err
		}
	}
	const width = 13
	var lines []News
	for _, ns := range w.parking {
		lines = append(lines, ns...)
	}
	slices.SortFunc(lines, func(a, b News) int {
		return cmp.Or(cmp.Compare(a.MsgID, b.MsgID), cmp.Compare(a.Account, b.Account), cmp.Compare(a.OpenID, b.OpenID), cmp.Compare(a.digest(), b.digest()))
	})
	for _, chunk := range chunks(lines) {
		var args []any
		for _, n := range chunk {
			args = append(args, n.Account, n.MsgID, n.OpenID, n.digest(), n.Source, n.State, n.Reason, n.ErrCode, n.Event, n.Detail, n.At, w.at, 0)
		}
		_, err := tx.Exec(ctx, "INSERT INTO parked ("+parkedColumns+") VALUES "+values(len(chunk), width)+
			" ON CONFLICT (msg_id, account, openid, digest) DO NOTHING", args...)
		if err != nil {
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
	return s.joinParked(ctx, slices.Compact(ids))
}

// joinParked joins the parked events of some msg_ids whose rows exist.
func (s *SQL) joinParked(ctx context.Context, ids []string) (Applied, error) {
	var news []News
	for _, chunk := range chunks(ids) {
		lines, err := s.readParked(ctx, s.db, chunk, "")
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
		w := newWork(s.now().UnixMilli())
		err := s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error { return s.joinTx(ctx, tx, w, news) })
		if errors.Is(err, errRace) && try < raceTries {
			continue
		}
		return w.result, err
	}
}

func (s *SQL) joinTx(ctx context.Context, tx *sqldb.Tx, w *work, news []News) error {
	found, err := findRefs(ctx, tx, news)
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
