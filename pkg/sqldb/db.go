package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"tidegate/pkg/fault"
)

const (
	connIdle = 5 * time.Minute
	connLife = 30 * time.Minute
)

// DB is an open database. It is safe for concurrent use.
type DB struct {
	driver  string
	target  string
	timeout time.Duration
	writer  *sql.DB
	reader  *sql.DB // the same as writer on PostgreSQL
}

// Open opens the database and asks it for one answer, so that a wrong address
// or password is told at the start. Errors name the target without secrets.
func Open(ctx context.Context, c Config) (*DB, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	open := openSQLite
	if c.Driver == Postgres {
		open = openPostgres
	}
	db, err := open(c)
	if err != nil {
		return nil, err
	}
	err = db.Ping(ctx)
	if err == nil && db.driver == SQLite {
		err = db.settle(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// Close closes the pools. Transactions that still run fail.
func (db *DB) Close() error {
	err := db.writer.Close()
	if db.reader != db.writer {
		// The readers go last on purpose: none of them can hold up the
		// checkpoint that SQLite makes when its last connection closes.
		err = errors.Join(err, db.reader.Close())
	}
	return wrap("close database "+db.target, err, false)
}

// Dialect is "sqlite" or "postgres", for the few places where a store must
// write two forms of a statement.
func (db *DB) Dialect() string { return db.driver }

// Target names the database for people: no password, no options.
func (db *DB) Target() string { return db.target }

// Ping asks the engine for an answer, within the configured timeout.
func (db *DB) Ping(ctx context.Context) error {
	ctx, cancel := db.bound(ctx)
	defer cancel()
	var one int
	for _, p := range db.pools() {
		if err := p.QueryRowContext(ctx, "SELECT 1").Scan(&one); err != nil {
			return wrap("reach database "+db.target, err, false)
		}
	}
	return nil
}

// Version is what the running engine says about itself, for instance
// "PostgreSQL 16.4" or "SQLite 3.54.1".
func (db *DB) Version(ctx context.Context) (string, error) {
	ctx, cancel := db.bound(ctx)
	defer cancel()
	q, name := "SELECT sqlite_version()", "SQLite "
	if db.driver == Postgres {
		q, name = "SELECT current_setting('server_version')", "PostgreSQL "
	}
	var v string
	if err := db.reader.QueryRowContext(ctx, q).Scan(&v); err != nil {
		return "", wrap("ask database for its version", err, false)
	}
	return name + v, nil
}

// Register exports the pools' statistics under the given database name:
// connections open, in use and waited for. A second registration of the same
// name is an error of kind fault.Conflict.
func (db *DB) Register(reg prometheus.Registerer, name string) error {
	names := []string{name, name + "-readers"}
	for i, p := range db.pools() {
		if err := reg.Register(collectors.NewDBStatsCollector(p, names[i])); err != nil {
			return fault.Wrap(fault.Conflict, "register metrics of database "+name, err)
		}
	}
	return nil
}

func (db *DB) pools() []*sql.DB {
	if db.reader == db.writer {
		return []*sql.DB{db.writer}
	}
	return []*sql.DB{db.writer, db.reader}
}

// bound gives ctx the configured deadline where it has no earlier one.
func (db *DB) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, db.timeout)
}
