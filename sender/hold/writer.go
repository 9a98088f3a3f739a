package hold

import (
	"context"
	"encoding/json"
	"sort"
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wire"
)

// batchRows bounds one INSERT: letters are up to half a megabyte.
const (
	batchRows  = 200
	batchBytes = 4 << 20
)

type wish struct {
	row   Row
	done  chan error // of capacity one: the writer never waits for a caller
	heads []byte
}

// Put makes a letter's row durable, in place of an earlier one of the same or a
// lower generation; where it is OnlyNew, only of a lower. Errors: fault.Unavailable (the row may be there; putting it
// again is harmless), fault.Limited (too many wait).
func (s *Store) Put(ctx context.Context, r Row) error {
	op := "hold " + r.ID
	heads, err := json.Marshal(r.Headers)
	if err != nil {
		return fault.Wrap(fault.Internal, op, err)
	}
	w := &wish{row: r, heads: heads, done: make(chan error, 1)}
	w.row.rev = s.boot + "-" + strconv.FormatInt(s.seq.Add(1), 36)
	select {
	case s.queue <- w:
	case <-ctx.Done():
		return fault.Wrap(fault.Unavailable, op, ctx.Err())
	default:
		return fault.New(fault.Limited, op, "%d letters already wait for the database", s.opt.MaxWaiting).WithRetryAfter(time.Second)
	}
	select {
	case err := <-w.done:
		return fault.Wrap(fault.Unavailable, op, err)
	case <-ctx.Done():
		return fault.Wrap(fault.Unavailable, op, ctx.Err())
	}
}

// Name implements run.Service.
func (s *Store) Name() string { return "held letters" }

// Run writes batches until ctx ends, without a linger: while one batch is out
// the next one gathers.
func (s *Store) Run(ctx context.Context) error {
	defer func() {
		for {
			select {
			case w := <-s.queue:
				w.done <- fault.Wrap(fault.Unavailable, "held letters", context.Cause(ctx))
			default:
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case w := <-s.queue:
			batch := s.gather(w)
			n, err := s.insert(ctx, latest(batch))
			s.met.put(batch, err)
			s.rows.Add(n)
			for _, w := range batch {
				w.done <- err
			}
		}
	}
}

func (s *Store) gather(first *wish) []*wish {
	batch, bytes := []*wish{first}, len(first.row.Value)
	for len(batch) < batchRows && bytes < batchBytes {
		select {
		case w := <-s.queue:
			batch, bytes = append(batch, w), bytes+len(w.row.Value)
		default:
			return batch
		}
	}
	return batch
}

// latest keeps one wish of each letter, because a statement may touch a row only
// once, in one order everywhere, so that nodes with overlapping batches do not
// dead-lock.
func latest(batch []*wish) []*wish {
	at := map[[2]string]int{}
	var out []*wish
	for _, w := range batch {
		k := [2]string{w.row.ID, w.row.IdentityHash}
		if i, twice := at[k]; !twice {
			at[k], out = len(out), append(out, w)
		} else if w.row.Generation >= out[i].row.Generation {
			out[i] = w
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i].row, out[j].row
		return a.ID < b.ID || a.ID == b.ID && a.IdentityHash < b.IdentityHash
	})
	return out
}

// insert gives how many rows were written; those that were there already count
// as well, until the next count.
func (s *Store) insert(ctx context.Context, batch []*wish) (int64, error) {
	var again, first []*wish
	for _, w := range batch {
		if w.row.OnlyNew {
			first = append(first, w)
		} else {
			again = append(again, w)
		}
	}
	var wrote int64
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		wrote = 0
		for _, part := range []struct {
			rows []*wish
			over string // of an earlier generation
		}{{again, "<="}, {first, "<"}} {
			if len(part.rows) == 0 {
				continue
			}
			q, args := s.statement(part.rows, part.over)
			n, err := tx.Exec(ctx, q, args...)
			if err != nil {
				return err
			}
			wrote += n
		}
		return nil
	})
	return wrote, err
}

func (s *Store) statement(batch []*wish, over string) (string, []any) {
	const n = 16
	var b strings.Builder
	b.WriteString("INSERT INTO held (" + columns + ", held_at) VALUES ")
	args := make([]any, 0, n*len(batch))
	now := s.opt.Now().UnixMilli()
	for i, w := range batch {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("($" + strconv.Itoa(i*n+1))
		for c := 2; c <= n; c++ {
			b.WriteString(", $" + strconv.Itoa(i*n+c))
		}
		b.WriteString(")")
		r := w.row
		args = append(args, r.ID, r.IdentityHash, r.Generation, r.rev, r.Due.UnixMilli(), r.AcceptedAt, r.Account, r.App, r.Template, r.Lane, r.Reason, r.Cause, r.Key, r.Value, w.heads, now)
	}
	b.WriteString(` ON CONFLICT (id, identity_hash) DO UPDATE SET generation = excluded.generation, rev = excluded.rev, due_at = excluded.due_at,
		reason = excluded.reason, cause = excluded.cause, letter_key = excluded.letter_key, letter = excluded.letter, headers = excluded.headers
		WHERE held.generation ` + over + ` excluded.generation`)
	return b.String(), args
}

func headersOf(text []byte) (h []wire.Header, err error) {
	err = json.Unmarshal(text, &h)
	return h, err
}
