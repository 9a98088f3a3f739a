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
	begins, outcomes := sorted(batch)
	start := time.Now()
	found, err := s.insert(ctx, begins, outcomes)
	s.met.batch(len(begins)+len(outcomes), time.Since(start), err)
	firsts := make(map[Key]*wish, len(begins))
	for _, w := range begins {
		firsts[w.key] = w
	}
	for _, w := range batch {
		w.answer <- s.answerTo(w, firsts[w.key] == w, found, err)
	}
}

func (s *Store) answerTo(w *wish, first bool, found map[Key]row, err error) answer {
	if err != nil || w.news != "" {
		return answer{err: err}
	}
	r, ok := found[w.key]
	if !ok {
		return answer{err: fault.New(fault.Internal, "write intents", "row of %s is neither new nor there", w.key.ID)}
	}
	past := Past{FirstTryAt: r.at, News: r.news, Fresh: r.mark == w.mark && first && r.news == ""}
	if !past.Fresh && past.News == "" {
		s.met.existed.Inc()
	}
	return answer{past: past}
}

// sorted takes the first wish of each key and kind, in one order everywhere,
// so that two nodes with overlapping batches wait for each other instead of
// dead-locking.
func sorted(batch []*wish) (begins, outcomes []*wish) {
	type seen struct {
		key     Key
		outcome bool
	}
	known := make(map[seen]bool, len(batch))
	for _, w := range batch {
		k := seen{w.key, w.news != ""}
		if known[k] {
			continue
		}
		known[k] = true
		if k.outcome {
			outcomes = append(outcomes, w)
		} else {
			begins = append(begins, w)
		}
	}
	for _, rows := range [][]*wish{begins, outcomes} {
		sort.Slice(rows, func(i, j int) bool {
			a, b := rows[i].key, rows[j].key
			return a.ID < b.ID || a.ID == b.ID && a.IdentityHash < b.IdentityHash
		})
	}
	return begins, outcomes
}

type row struct {
	at   time.Time
	mark string
	news string
}

// insert writes the rows that are missing and reads those back that were
// there, in one transaction. A row is ours when it carries the mark we came
// with, whether this or an earlier, unanswered transaction wrote it.
func (s *Store) insert(ctx context.Context, begins, outcomes []*wish) (map[Key]row, error) {
	var found map[Key]row
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		found = make(map[Key]row, len(begins))
		if len(outcomes) > 0 {
			q, args := insertInto("outcome", []string{"id", "identity_hash", "news", "day"}, outcomes, func(w *wish) []any {
				return []any{w.key.ID, w.key.IdentityHash, w.news, day(w.at)}
			})
			if _, err := tx.Exec(ctx, q, args...); err != nil {
				return err
			}
		}
		if len(begins) == 0 {
			return nil
		}
		q, args := insertInto("intent", []string{"id", "identity_hash", "first_try_at", "node", "mark", "day"}, begins, func(w *wish) []any {
			return []any{w.key.ID, w.key.IdentityHash, w.at.UnixMilli(), s.opt.Node, w.mark, day(w.at)}
		})
		n, err := tx.Exec(ctx, q, args...)
		if err != nil {
			return err
		}
		if int(n) < len(begins) {
			return readBack(ctx, tx, begins, found)
		}
		for _, w := range begins {
			found[w.key] = row{at: time.UnixMilli(w.at.UnixMilli()), mark: w.mark}
		}
		return nil
	})
	return found, err
}

// insertInto writes one statement for all rows.
func insertInto(table string, columns []string, rows []*wish, values func(*wish) []any) (string, []any) {
	var b strings.Builder
	b.WriteString("INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES ")
	args := make([]any, 0, len(rows)*len(columns))
	for i, w := range rows {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("(")
		for c := range columns {
			if c > 0 {
				b.WriteString(", ")
			}
			b.WriteString("$" + strconv.Itoa(i*len(columns)+c+1))
		}
		b.WriteString(")")
		args = append(args, values(w)...)
	}
	b.WriteString(" ON CONFLICT (id, identity_hash) DO NOTHING")
	return b.String(), args
}

func readBack(ctx context.Context, tx *sqldb.Tx, rows []*wish, found map[Key]row) error {
	var b strings.Builder
	b.WriteString(`SELECT i.id, i.identity_hash, i.first_try_at, i.mark, COALESCE(o.news, '') FROM intent i
		LEFT JOIN outcome o ON o.id = i.id AND o.identity_hash = i.identity_hash WHERE i.id IN (`)
	args := make([]any, 0, len(rows))
	for i, w := range rows {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("$" + strconv.Itoa(i+1))
		args = append(args, w.key.ID)
	}
	b.WriteString(")")
	rs, err := tx.Query(ctx, b.String(), args...)
	if err != nil {
		return err
	}
	defer func() { _ = rs.Close() }() // Err below reports what ended the rows
	for rs.Next() {
		var k Key
		var ms int64
		var r row
		if err := rs.Scan(&k.ID, &k.IdentityHash, &ms, &r.mark, &r.news); err != nil {
			return err
		}
		r.at = time.UnixMilli(ms)
		found[k] = r
	}
	return rs.Err()
}

// Purge deletes the days that lie wholly before the retention, in portions,
// and gives the number of intents deleted.
func (s *Store) Purge(ctx context.Context) (int64, error) {
	before := day(s.opt.Now().Add(-s.opt.Keep))
	// Intents first: one that has lost its outcome would look doubtful.
	n, err := s.purge(ctx, "intent", before)
	if err != nil {
		return n, err
	}
	_, err = s.purge(ctx, "outcome", before)
	return n, err
}

func (s *Store) purge(ctx context.Context, table string, before int64) (total int64, err error) {
	q := "DELETE FROM " + table + " WHERE (id, identity_hash) IN (SELECT id, identity_hash FROM " + table + " WHERE day < $1 LIMIT $2)"
	for {
		n, err := s.db.Exec(ctx, q, before, purgePortion)
		total += n
		if err != nil || n < purgePortion {
			return total, err
		}
	}
}

// day numbers days by UTC, as days since 1970.
func day(t time.Time) int64 { return t.Unix() / int64((24 * time.Hour).Seconds()) }
