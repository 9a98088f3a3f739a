package sqldb

import (
	"context"
	"database/sql"
)

// Querier is what DB and Tx have in common, so that a statement can be
// written once and run in or outside a transaction.
type Querier interface {
	// Exec runs a statement and gives the number of rows it touched.
	Exec(ctx context.Context, q string, args ...any) (int64, error)
	// Query runs a statement that gives rows; the caller closes them.
	Query(ctx context.Context, q string, args ...any) (*Rows, error)
	// QueryRow runs a statement that gives at most one row. Scan's error is of
	// kind fault.NotFound when there is none.
	QueryRow(ctx context.Context, q string, args ...any) *Row
}

// Rows are sql.Rows whose errors carry kinds.
type Rows struct{ *sql.Rows }

// Err is the error that ended the rows.
func (r *Rows) Err() error { return wrap("read rows", r.Rows.Err(), false) }

// Scan reads the current row.
func (r *Rows) Scan(dest ...any) error { return wrap("read row", r.Rows.Scan(dest...), false) }

// Row is one row; its errors carry kinds.
type Row struct{ row *sql.Row }

// Scan reads the row and closes it.
func (r *Row) Scan(dest ...any) error { return wrap("read row", r.row.Scan(dest...), false) }

// Exec runs one statement in a transaction of its own, within the configured
// timeout. After an error of kind fault.Ambiguous the statement may have
// taken effect.
func (db *DB) Exec(ctx context.Context, q string, args ...any) (int64, error) {
	ctx, cancel := db.bound(ctx)
	defer cancel()
	return exec(ctx, db.writer, db.driver, true, q, args)
}

// Query reads. On SQLite it uses the readers, which refuse to write: a
// statement with RETURNING belongs into Tx. The caller bounds ctx.
func (db *DB) Query(ctx context.Context, q string, args ...any) (*Rows, error) {
	return query(ctx, db.reader, db.driver, q, args)
}

// QueryRow reads one row; see Query.
func (db *DB) QueryRow(ctx context.Context, q string, args ...any) *Row {
	return &Row{db.reader.QueryRowContext(ctx, bind(db.driver, q), args...)}
}

// runner is the part of sql.DB and sql.Tx that is needed here.
type runner interface {
	ExecContext(ctx context.Context, q string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error)
}

func exec(ctx context.Context, r runner, driver string, commits bool, q string, args []any) (int64, error) {
	res, err := r.ExecContext(ctx, bind(driver, q), args...)
	if err != nil {
		return 0, wrap("run statement", err, commits)
	}
	n, err := res.RowsAffected()
	return n, wrap("count rows", err, false)
}

func query(ctx context.Context, r runner, driver, q string, args []any) (*Rows, error) {
	rows, err := r.QueryContext(ctx, bind(driver, q), args...)
	if err != nil {
		return nil, wrap("run query", err, false)
	}
	return &Rows{rows}, nil
}

func bind(driver, q string) string {
	if driver == SQLite {
		return rebind(q)
	}
	return q
}
