package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"hash/fnv"
	"io/fs"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"

	"tidegate/pkg/fault"
)

// versionTable and a room's name are the name of its version table.
const versionTable = "tidegate_schema_"

var roomName = regexp.MustCompile(`^[a-z][a-z_]{0,30}$`)

// migrateTries is how often a migration is tried that another process gets into
// the way of. SQLite has no advisory lock; the loser's transaction fails as a
// whole and finds its work done next time. On PostgreSQL an index that is built
// concurrently waits for whoever waits in the server for our lock, as releases
// did that are older than lockPause; the server ends that, and they go first.
const migrateTries = 5

// lockPause is how often the advisory lock is asked for.
const lockPause = 100 * time.Millisecond

// Migrate brings the tables of a room up to date. fsys has the folders
// sqlite/ and postgres/ with goose files (00001_name.sql). Each room has a
// version table of its own, so that rooms are migrated, and released,
// independently; on PostgreSQL an advisory lock lets one process work while
// the others wait. A database that a newer release has migrated is left
// alone: migrations only add, so the older release runs on it (D15).
func (db *DB) Migrate(ctx context.Context, room string, fsys fs.FS) error {
	op := "migrate tables of " + room
	if !roomName.MatchString(room) {
		return fault.New(fault.Internal, op, "room name %q: use a-z and _", room)
	}
	sub, err := fs.Sub(fsys, db.driver)
	if err != nil {
		return fault.New(fault.Internal, op, "folder %s: %w", db.driver, err)
	}
	for try := 1; ; try++ {
		err := db.migrateOnce(ctx, op, room, sub)
		if err == nil || try == migrateTries || db.driver == Postgres && !deadlocked(err) {
			return err
		}
		if err := wait(ctx, time.Duration(try)*50*time.Millisecond); err != nil {
			return wrap(op, err, false)
		}
	}
}

func (db *DB) migrateOnce(ctx context.Context, op, room string, sub fs.FS) error {
	dialect := goose.DialectSQLite3
	options := []goose.ProviderOption{
		goose.WithTableName(versionTable + room),
		goose.WithDisableGlobalRegistry(true),
	}
	if db.driver == Postgres {
		dialect = goose.DialectPostgres
		options = append(options, goose.WithSessionLocker(advisoryLock(lockID(room))))
	}
	p, err := goose.NewProvider(dialect, db.writer, sub, options...)
	if err != nil {
		return fault.New(fault.Internal, op, "%w", err)
	}
	// p.Close would close our pool; a provider holds nothing else.
	_, err = p.Up(ctx)
	return wrap(op, err, false)
}

func deadlocked(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == "40P01"
}

// advisoryLock asks again and again instead of waiting in the server: a statement
// that waits there holds a snapshot, and an index that is built concurrently under
// the lock waits for the end of all snapshots.
type advisoryLock int64

func lockID(room string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("tidegate/" + room)) // never fails
	return int64(h.Sum64())
}

func (l advisoryLock) SessionLock(ctx context.Context, c *sql.Conn) error {
	for {
		var ours bool
		if err := c.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", int64(l)).Scan(&ours); err != nil || ours {
			return err
		}
		if err := wait(ctx, lockPause); err != nil {
			return err
		}
	}
}

func (l advisoryLock) SessionUnlock(ctx context.Context, c *sql.Conn) error {
	_, err := c.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", int64(l))
	return err
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
