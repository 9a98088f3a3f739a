package store

import (
	"context"
	"errors"
	"maps"
	"slices"

	"tidegate/pkg/sqldb"
)

const (
	// MaxBatch is how many pieces of news one transaction takes; Apply cuts
	// longer lists.
	MaxBatch = 2000
	// raceTries bounds the fresh starts after errRace. Each of them finds at
	// least one row more in its place, so a batch cannot need more than it has
	// pieces; seldom is there even one.
	raceTries = MaxBatch + 1
)

// Applied tells what became of the news.
type Applied struct {
	New            int // rows made
	Moved          int // rows whose state went on
	Same           int // news that changed no state: repeated, late or outranked
	Parked         int // events whose message is not known yet
	Joined         int // events that met their row, parked ones included
	Contradictions int // rows flagged now
}

func (a *Applied) add(b Applied) {
	a.New += b.New
	a.Moved += b.Moved
	a.Same += b.Same
	a.Parked += b.Parked
	a.Joined += b.Joined
	a.Contradictions += b.Contradictions
}

// Apply joins news into the rows, MaxBatch pieces per transaction. It returns
// when all of it is durable. After an error some batches may have been applied
// and applying everything again is right. The news must come from this
// package's From functions, which check it.
func (s *SQL) Apply(ctx context.Context, news []News) (Applied, error) {
	var sum Applied
	for batch := range slices.Chunk(news, MaxBatch) {
		a, err := s.applyBatch(ctx, batch)
		sum.add(a)
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

func (s *SQL) applyBatch(ctx context.Context, news []News) (Applied, error) {
	for try := 1; ; try++ {
		w := s.newWork()
		err := s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error { return s.applyTx(ctx, tx, w, news) })
		if errors.Is(err, errRace) && try < raceTries {
			continue
		}
		if err != nil {
			return Applied{}, err
		}
		joined, err := s.meet(ctx, w)
		w.result.add(joined)
		return w.result, err
	}
}

func (s *SQL) applyTx(ctx context.Context, tx *sqldb.Tx, w *work, news []News) error {
	mine, events := split(news)
	if err := s.guardKeys(ctx, tx, mine); err != nil {
		return err
	}
	found, err := s.findRefs(ctx, tx, events, s.recent())
	if err != nil {
		return err
	}
	if err := s.lock(ctx, tx, w, mine, slices.Collect(maps.Values(found))); err != nil {
		return err
	}
	for _, n := range mine {
		w.take(n)
	}
	gained := w.gained()
	w.place(events, found, gained)
	if err := s.loadParked(ctx, tx, w, gained); err != nil {
		return err
	}
	return s.write(ctx, tx, w)
}

// gained finds the rows that this batch has told WeChat's msg_id of.
func (w *work) gained() map[ref]*row {
	out := map[ref]*row{}
	for _, rows := range w.rows {
		for _, r := range rows {
			if r.now.MsgID != "" && r.was.MsgID == "" {
				out[r.now.ref()] = r
			}
		}
	}
	return out
}

// split parts the news that names a message by our id from WeChat's events.
func split(news []News) (mine, events []News) {
	for _, n := range news {
		if n.ID != "" {
			mine = append(mine, n)
		} else {
			events = append(events, n)
		}
	}
	return mine, events
}

// lock reads the rows of the batch, in the one order, and keeps others from
// changing them until the end of the transaction. News that knows its message's
// birth is looked for in the days since, everything else everywhere.
func (s *SQL) lock(ctx context.Context, tx *sqldb.Tx, w *work, mine []News, found []target) error {
	var ids []string
	for _, n := range mine {
		ids = append(ids, n.ID)
	}
	for _, t := range found {
		ids = append(ids, t.id)
	}
	since := s.sinceOf(mine, found)
	slices.Sort(ids)
	for _, piece := range s.pieces(slices.Compact(ids)) {
		cond, args := s.among("id", 1, piece)
		ms, err := s.readMessages(ctx, tx, " WHERE "+cond+s.since(since)+" ORDER BY id, variant"+s.forUpdate(), args...)
		if err != nil {
			return err
		}
		for _, m := range ms {
			w.loaded(m)
		}
	}
	return nil
}

// place gives each event to the row that it is about: one that was in the
// database, or one that this batch has told the msg_id of. The others park.
func (w *work) place(events []News, found map[ref]target, gained map[ref]*row) {
	for _, n := range events {
		r := gained[n.ref()]
		if t, ok := found[n.ref()]; ok && r == nil {
			r = w.at0(t)
		}
		if r == nil {
			w.parking[n.ref()] = append(w.parking[n.ref()], n)
			w.result.Parked++
			continue
		}
		w.join(r, n)
	}
}

// join applies an event to its row.
func (w *work) join(r *row, n News) {
	n.ID, n.IdentityHash = r.now.ID, r.now.IdentityHash
	w.take(n)
	w.result.Joined++
}

// at0 finds a locked row; nil if it was deleted between look and lock.
func (w *work) at0(t target) *row {
	for _, r := range w.rows[t.id] {
		if r.now.Variant == t.variant {
			return r
		}
	}
	return nil
}

// write puts the batch into the tables, in the order of tables and keys that
// all writers keep.
func (s *SQL) write(ctx context.Context, tx *sqldb.Tx, w *work) error {
	var fresh, changed []*Message
	for _, r := range w.sorted() {
		if !r.changed() {
			continue
		}
		r.now.UpdatedAt = w.at
		if r.fresh() {
			fresh = append(fresh, &r.now)
		} else {
			changed = append(changed, &r.now)
		}
	}
	if err := s.insertMessages(ctx, tx, fresh); err != nil {
		return err
	}
	if err := s.updateMessages(ctx, tx, changed); err != nil {
		return err
	}
	if err := s.writeSteps(ctx, tx, w); err != nil {
		return err
	}
	if err := s.writeLetters(ctx, tx, w); err != nil {
		return err
	}
	if err := s.writeParked(ctx, tx, w); err != nil {
		return err
	}
	if err := s.tell(ctx, tx, w); err != nil {
		return err
	}
	return s.writeCounts(ctx, tx, w.counts())
}
