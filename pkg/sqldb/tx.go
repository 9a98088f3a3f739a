package sqldb

import (
	"context"
	"database/sql"
	"errors"
)

// Tx is a running transaction. It ends with the function it was given to.
type Tx struct {
	tx     *sql.Tx
	driver string
}

// Tx runs fn in a transaction that may write, within the configured timeout.
// It commits when fn returns nil; an error or a panic rolls back, and the
// panic goes on. fn must use the ctx and the tx it is given, and may run in
// full without any effect: an error of kind fault.Unavailable means that
// nothing was done and that trying again is safe; fault.Ambiguous, from a
// commit whose answer was lost, that it may have been done.
func (db *DB) Tx(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	return db.run(ctx, db.writer, nil, fn)
}

// View runs fn in a transaction that only reads, over one unchanging picture
// of the data, within the configured timeout.
func (db *DB) View(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	opt := &sql.TxOptions{ReadOnly: true}
	if db.driver == Postgres {
		opt.Isolation = sql.LevelRepeatableRead
	}
	return db.run(ctx, db.reader, opt, fn)
}

func (db *DB) run(ctx context.Context, pool *sql.DB, opt *sql.TxOptions, fn func(ctx context.Context, tx *Tx) error) (err error) {
	ctx, cancel := db.bound(ctx)
	defer cancel()
	tx, err := pool.BeginTx(ctx, opt)
	if err != nil {
		return wrap("begin transaction", err, false)
	}
	done := false
	defer func() {
		if done {
			return
		}
		// Here after an error or while a panic passes through. When ctx has
		// ended, database/sql has rolled back already and says ErrTxDone.
		if rb := tx.Rollback(); rb != nil && !errors.Is(rb, sql.ErrTxDone) && err != nil {
			err = errors.Join(err, wrap("roll back", rb, false))
		}
	}()
	if err := fn(ctx, &Tx{tx: tx, driver: db.driver}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		if errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil {
			return wrap("commit", ctx.Err(), false) // rolled back before the commit was sent
		}
		return wrap("commit", err, true)
	}
	done = true
	return nil
}

// Exec runs a statement and gives the number of rows it touched.
func (t *Tx) Exec(ctx context.Context, q string, args ...any) (int64, error) {
	return exec(ctx, t.tx, t.driver, false, q, args)
}

// Query runs a statement that gives rows; the caller closes them.
func (t *Tx) Query(ctx context.Context, q string, args ...any) (*Rows, error) {
	return query(ctx, t.tx, t.driver, q, args)
}

// QueryRow runs a statement that gives at most one row.
func (t *Tx) QueryRow(ctx context.Context, q string, args ...any) *Row {
	return &Row{t.tx.QueryRowContext(ctx, bind(t.driver, q), args...)}
}
