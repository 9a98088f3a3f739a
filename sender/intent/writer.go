package intent

import (
	"context"
	"sort"
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

// purgeEvery and purgePortion keep the deletes small, so that they never hold
// up the writer for long.
const (
	purgeEvery   = 10 * time.Minute
	purgePortion = 5000
)

// Name implements run.Service.
func (s *Store) Name() string { return "intent writer" }

// Run writes batches until ctx ends. There is no linger: while one batch is
// out, the next one gathers, so a lone caller waits for nobody and a crowd
// shares one commit. Callers that still wait when it ends are told so.
func (s *Store) Run(ctx context.Context) error {
	purge := time.NewTicker(purgeEvery)
	defer purge.Stop()
	defer s.refuse(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-purge.C:
			// A purge that fails is tried again at the next tick; the rows it
			// left cost only space.
			if _, err := s.Purge(ctx); err != nil {
				s.met.purgeFailures.Inc()
			}
		case w := <-s.queue:
			s.write(ctx, s.gather(w))
		}
	}
}

func (s *Store) refuse(ctx context.Context) {
	for {
		select {
		case w := <-s.queue:
			w.answer <- answer{err: fault.Wrap(fault.Unavailable, "intent writer", context.Cause(ctx))}
		default:
			return
		}
	}
}

func (s *Store) gather(first *wish) []*wish {
	batch := []*wish{first}
	for len(batch) < s.opt.MaxBatch {
		select {
		case w := <-s.queue:
			batch = append(batch, w)
		default:
			return batch
		}
	}
	return batch
}

// write serves one batch. Callers of one key within it are served in order:
// the first may be fresh, the others have it as their past.
func (s *Store) write(ctx context.Context, batch []*wish) {
	firsts := make(map[Key]*wish, len(batch))
	rows := make([]*wish, 0, len(batch))
	for _, w := range batch {
		if firsts[w.key] == nil {
			firsts[w.key] = w
			rows = append(rows, w)
		}
	}
	// In one order everywhere, so that two nodes with overlapping batches
	// wait for each other instead of dead-locking.
	sort.Slice(rows, func(i, j int) bool {
		a, b := rows[i].key, rows[j].key
		return a.ID < b.ID || a.ID == b.ID && a.IdentityHash < b.IdentityHash
	})
	start := time.Now()
	found, err := s.insert(ctx, rows)
	s.met.batch(len(rows), time.Since(start), err)
	for _, w := range batch {
		if err != nil {
			w.answer <- answer{err: err}
			continue
		}
		row, ok := found[w.key]
		if !ok {
			w.answer <- answer{err: fault.New(fault.Internal, "write intents", "row of %s is neither new nor there", w.key.ID)}
			continue
		}
		past := Past{FirstTryAt: row.at, Fresh: row.mark == w.mark && firsts[w.key] == w}
		if !past.Fresh {
			s.met.existed.Inc()
		}
		w.answer <- answer{past: past}
	}
}

type row struct {
	at   time.Time
	mark string
}

// insert writes the rows that are missing and reads all of them back, in one
// transaction. A row is ours when it carries the mark we came with, whether
// this or an earlier, unanswered transaction wrote it.
func (s *Store) insert(ctx context.Context, rows []*wish) (map[Key]row, error) {
	var found map[Key]row
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		found = make(map[Key]row, len(rows))
		q, args := insertStatement(rows, s.opt.Node)
		n, err := tx.Exec(ctx, q, args...)
		if err != nil {
			return err
		}
		if int(n) == len(rows) {
			for _, w := range rows {
				found[w.key] = row{at: time.UnixMilli(w.at.UnixMilli()), mark: w.mark}
			}
			return nil
		}
		return s.readBack(ctx, tx, rows, found)
	})
	return found, err
}

func insertStatement(rows []*wish, node string) (string, []any) {
	var b strings.Builder
	b.WriteString("INSERT INTO intent (id, identity_hash, first_try_at, node, mark, day) VALUES ")
	args := make([]any, 0, len(rows)*6)
	for i, w := range rows {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('(')
		for c := range 6 {
			if c > 0 {
				b.WriteString(", ")
			}
			b.WriteByte('$')
			b.WriteString(strconv.Itoa(i*6 + c + 1))
		}
		b.WriteByte(')')
		args = append(args, w.key.ID, w.key.IdentityHash, w.at.UnixMilli(), node, w.mark, day(w.at))
	}
	b.WriteString(" ON CONFLICT (id, identity_hash) DO NOTHING")
	return b.String(), args
}

func (s *Store) readBack(ctx context.Context, tx *sqldb.Tx, rows []*wish, found map[Key]row) error {
	var b strings.Builder
	b.WriteString("SELECT id, identity_hash, first_try_at, mark FROM intent WHERE id IN (")
	args := make([]any, 0, len(rows))
	for i, w := range rows {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(i + 1))
		args = append(args, w.key.ID)
	}
	b.WriteByte(')')
	rs, err := tx.Query(ctx, b.String(), args...)
	if err != nil {
		return err
	}
	defer func() { _ = rs.Close() }() // Err below reports what ended the rows
	for rs.Next() {
		var k Key
		var ms int64
		var r row
		if err := rs.Scan(&k.ID, &k.IdentityHash, &ms, &r.mark); err != nil {
			return err
		}
		r.at = time.UnixMilli(ms)
		found[k] = r
	}
	return rs.Err()
}

// Purge deletes the days that lie wholly before the retention, in portions,
// and gives the number of rows deleted.
func (s *Store) Purge(ctx context.Context) (int64, error) {
	before := day(s.opt.Now().Add(-s.opt.Keep))
	var total int64
	for {
		n, err := s.db.Exec(ctx, `DELETE FROM intent WHERE (id, identity_hash) IN
			(SELECT id, identity_hash FROM intent WHERE day < $1 LIMIT $2)`, before, purgePortion)
		total += n
		if err != nil || n < purgePortion {
			return total, err
		}
	}
}

// day numbers days by UTC, as days since 1970.
func day(t time.Time) int64 { return t.Unix() / int64((24 * time.Hour).Seconds()) }
