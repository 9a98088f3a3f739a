package store

import (
	"context"
	"embed"
	"io/fs"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

//go:embed migrations
var migrations embed.FS

// maxRows is the largest number of rows in one statement: 64 rows of 28
// columns stay far below the limits of both engines.
const maxRows = 64

// SQL is the store in one database. It is safe for concurrent use, also by
// several processes on one database.
type SQL struct {
	db  *sqldb.DB
	now func() time.Time
	t   tables
	// parts are the partitions that exist, as this process last saw them.
	parts atomic.Pointer[map[int64]bool]
	hook  Hook // nil: nobody wants to know
}

// tables are what the rows lie in.
type tables struct{ messages, steps, letters table }

func tablesOf(dialect string) tables {
	t := tables{
		messages: table{"messages", "id, variant", columnsOf("id, variant:i, part:i, identity_hash, kind, account, openid, app, lane, template, reference, " +
			"callback_id, resend_of, resent_as, state, reason, errcode:i, msg_id, attempts:i, possible_duplicate:i, contradiction, " +
			"failed:i, detail, at:i, queued_at:i, accepted_at:i, settled_at:i, updated_at:i")},
		steps:   table{"steps", "id, variant, digest", columnsOf("id, variant:i, part:i, digest, source, state, at:i, attempt:i, reason, errcode:i, event, detail, line")},
		letters: table{"letters", "id, variant", columnsOf("id, variant:i, part:i, letter:b")},
	}
	if dialect == sqldb.Postgres {
		for _, t := range []*table{&t.messages, &t.steps, &t.letters} {
			t.name, t.key = "all_"+t.name, t.key+", part"
		}
	}
	return t
}

// Open makes the tables if needed and gives the store. now may be nil for the
// real clock.
func Open(ctx context.Context, db *sqldb.DB, now func() time.Time) (*SQL, error) {
	fsys, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "open migrations of receipts", err)
	}
	if err := db.Migrate(ctx, "receipts", fsys); err != nil {
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	s := &SQL{db: db, now: now, t: tablesOf(db.Dialect())}
	if err := s.MakeParts(ctx); err != nil {
		return nil, err
	}
	return s, s.countOld(ctx)
}

// Ping tells whether the database answers.
func (s *SQL) Ping(ctx context.Context) error { return s.db.Ping(ctx) }

// forUpdate locks what a SELECT reads. SQLite has one writer at a time and
// needs no such words.
func (s *SQL) forUpdate() string {
	if s.db.Dialect() == sqldb.Postgres {
		return " FOR UPDATE"
	}
	return ""
}

// chunks cuts items into pieces whose sizes are powers of two, so that only a
// handful of statement texts exist and the engine can keep them prepared.
func chunks[T any](items []T) [][]T {
	var out [][]T
	for _, size := range sizes(len(items)) {
		out = append(out, items[:size])
		items = items[size:]
	}
	return out
}

func sizes(n int) []int {
	var out []int
	for size := maxRows; n > 0; size /= 2 {
		for ; n >= size; n -= size {
			out = append(out, size)
		}
	}
	return out
}

// in writes "($1, $2, …)" for n values, beginning with number from.
func in(from, n int) string {
	var b strings.Builder
	b.WriteByte('(')
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(from + i))
	}
	b.WriteByte(')')
	return b.String()
}

// values writes n rows of width placeholders.
func values(n, width int) string {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = in(i*width+1, width)
	}
	return strings.Join(rows, ", ")
}

func anys[T any](items []T) []any {
	out := make([]any, len(items))
	for i, v := range items {
		out[i] = v
	}
	return out
}
