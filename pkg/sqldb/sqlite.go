package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/driver"

	"tidegate/pkg/fault"
)

// sqlitePath accepts a plain path or file:path. Options behind a question mark
// are refused because this package owns them, and so are databases in memory,
// which the writer and the readers could not share.
func sqlitePath(dsn string) (string, error) {
	path := strings.TrimPrefix(dsn, "file:")
	if strings.ContainsAny(path, "?\x00") || strings.Contains(path, ":memory:") || path == "" {
		return "", fault.New(fault.Invalid, "read database dsn",
			"for sqlite the dsn is the path of a file, without options and not in memory").WithField("dsn")
	}
	return path, nil
}

// openSQLite makes the file (readable by its owner only, S58) and both pools.
func openSQLite(c Config) (*DB, error) {
	path, err := sqlitePath(c.DSN)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fault.New(fault.Unavailable, "open database", "make its directory: %w", err)
	}
	if err := makePrivate(path); err != nil {
		return nil, err
	}
	writer, err := driver.Open(sqliteURI(path, c, false))
	if err != nil {
		return nil, wrap("open database", err, false)
	}
	reader, err := driver.Open(sqliteURI(path, c, true))
	if err != nil {
		return nil, wrap("open database", errors.Join(err, writer.Close()), false)
	}
	limitWriter(writer)
	limitPool(reader, c.MaxConns)
	return &DB{driver: SQLite, target: path, timeout: c.Timeout, writer: writer, reader: reader}, nil
}

// makePrivate creates the file for its owner alone, if it is not there yet.
func makePrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fault.New(fault.Unavailable, "open database", "%w: check that the directory exists and may be written", err)
	}
	if err := f.Close(); err != nil {
		return fault.New(fault.Unavailable, "open database", "%w", err)
	}
	return nil
}

// settle makes SQLite create the two files that it keeps beside the database
// and closes them to others: the driver gives them the process's default mode.
// They live as long as the writer's connection.
func (db *DB) settle(ctx context.Context) error {
	const q = "SELECT COUNT(*) FROM sqlite_schema"
	var n int
	err := db.Tx(ctx, func(ctx context.Context, tx *Tx) error { return tx.QueryRow(ctx, q).Scan(&n) })
	if err != nil {
		return err
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Chmod(db.target+suffix, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.Unavailable, "open database", "%w", err)
		}
	}
	return nil
}

// limitWriter keeps one connection open for good: a second writer would only
// meet SQLITE_BUSY, and opening again costs a reading of the schema.
func limitWriter(p *sql.DB) {
	p.SetMaxOpenConns(1)
	p.SetMaxIdleConns(1)
	p.SetConnMaxLifetime(0)
}

// sqliteURI puts the busy timeout first, because the pragmas behind it may
// already meet a lock.
func sqliteURI(path string, c Config, readOnly bool) string {
	q := url.Values{}
	add := func(name, value string) { q.Add("_pragma", name+"("+value+")") }
	add("busy_timeout", strconv.FormatInt(c.Timeout.Milliseconds(), 10))
	if readOnly {
		add("query_only", "true")
		q.Set("_txlock", "deferred")
	} else {
		add("journal_mode", "wal")
		add("synchronous", c.Synchronous)
		add("foreign_keys", "true")
		q.Set("_txlock", "immediate")
	}
	return "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath() + "?" + q.Encode()
}

// classifySQLite maps SQLite's result codes; ok is false where the error does
// not come from SQLite.
func classifySQLite(err error) (fault.Kind, bool) {
	var se *sqlite3.Error
	if !errors.As(err, &se) {
		return fault.Internal, false
	}
	switch se.ExtendedCode() {
	case sqlite3.CONSTRAINT_UNIQUE, sqlite3.CONSTRAINT_PRIMARYKEY, sqlite3.CONSTRAINT_ROWID:
		return fault.Conflict, true
	}
	switch se.Code() {
	case sqlite3.BUSY, sqlite3.LOCKED, sqlite3.INTERRUPT, sqlite3.IOERR, sqlite3.FULL,
		sqlite3.CANTOPEN, sqlite3.PROTOCOL, sqlite3.READONLY, sqlite3.NOMEM, sqlite3.ABORT:
		return fault.Unavailable, true
	case sqlite3.TOOBIG, sqlite3.MISMATCH:
		return fault.Invalid, true
	case sqlite3.PERM, sqlite3.AUTH:
		return fault.Denied, true
	}
	return fault.Internal, true
}
