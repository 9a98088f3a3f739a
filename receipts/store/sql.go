package store

import (
	"context"
	"embed"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

//go:embed migrations
var migrations embed.FS

// maxRows is the largest number of rows in one statement: 64 rows of 27
// columns stay far below the limits of both engines.
const maxRows = 64

// SQL is the store in one database. It is safe for concurrent use, also by
// several processes on one database.
type SQL struct {
	db   *sqldb.DB
	now  func() time.Time
	hook Hook // nil: nobody wants to know
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
	return &SQL{db: db, now: now}, nil
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
	for size := maxRows; len(items) > 0; size /= 2 {
		for len(items) >= size {
			out = append(out, items[:size])
			items = items[size:]
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
