package sqldb_test

import (
	"context"
	"database/sql"
	"hash/fnv"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
)

// indexed adds a migration that builds an index while others write.
func indexed(steps ...string) fstest.MapFS {
	fsys := migrations(steps...)
	fsys["postgres/00009_index.sql"] = &fstest.MapFile{Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\n" +
		"DROP INDEX CONCURRENTLY IF EXISTS item_n;\nCREATE INDEX CONCURRENTLY item_n ON item (n);\n-- +goose Down\n")}
	return fsys
}

func requireIndex(t *testing.T, db *sqldb.DB) {
	t.Helper()
	var valid bool
	require.NoError(t, db.QueryRow(t.Context(), "SELECT indisvalid FROM pg_index WHERE indexrelid = 'item_n'::regclass").Scan(&valid))
	require.True(t, valid)
}

// Processes that wait for their turn do not keep the one that works from building
// an index concurrently.
func TestAnIndexIsBuiltWhileOthersWaitToMigrate(t *testing.T) {
	c := sqldbtest.PostgresConfig(t)
	var wg sync.WaitGroup
	errs := make(chan error, 4)
	for range 4 {
		db := opened(t, c)
		wg.Go(func() { errs <- db.Migrate(t.Context(), "receipts", indexed(stepTable, stepColumn)) })
	}
	wg.Wait()
	for range 4 {
		require.NoError(t, <-errs)
	}
	requireIndex(t, opened(t, c))
}

// A process of an older release waits inside the server: the build of the index
// and that wait are a deadlock, which the server ends and the next try survives.
func TestAnIndexIsBuiltWhileAnOlderReleaseWaits(t *testing.T) {
	c := sqldbtest.PostgresConfig(t)
	db := opened(t, c)
	side, err := sql.Open("pgx", c.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, side.Close()) })
	require.NoError(t, db.Migrate(t.Context(), "receipts", migrations(stepTable)))
	h := fnv.New64a()
	_, _ = h.Write([]byte("tidegate/receipts"))
	lock := int64(h.Sum64())

	// The step before the index waits for a reader, so that the older release comes in between.
	reader, err := side.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = reader.ExecContext(t.Context(), "LOCK TABLE item IN ACCESS SHARE MODE")
	require.NoError(t, err)
	migrated, older := make(chan error, 1), make(chan error, 1)
	go func() { migrated <- db.Migrate(t.Context(), "receipts", indexed(stepTable, stepColumn)) }()
	awaitWaiter(t, side, "relation = 'item'::regclass")
	go func() { older <- waitInServer(t.Context(), side, lock) }()
	awaitWaiter(t, side, "locktype = 'advisory' AND objid::bigint = $1", lock&0xffffffff)
	// It looks for deadlocks once, after a second; there is none yet.
	require.Never(t, func() bool { return len(older) > 0 }, 1500*time.Millisecond, 100*time.Millisecond)
	require.NoError(t, reader.Rollback())

	require.NoError(t, <-migrated)
	require.NoError(t, <-older)
	requireIndex(t, db)
}

// waitInServer takes the lock and gives it back, as older releases did.
func waitInServer(ctx context.Context, side *sql.DB, lock int64) error {
	c, err := side.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if _, err := c.ExecContext(ctx, "SELECT pg_advisory_lock($1)", lock); err != nil {
		return err
	}
	_, err = c.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", lock)
	return err
}

// awaitWaiter waits until somebody waits for such a lock.
func awaitWaiter(t *testing.T, side *sql.DB, which string, args ...any) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		err := side.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND "+which, args...).Scan(&n)
		return err == nil && n > 0
	}, 20*time.Second, 20*time.Millisecond)
}

func opened(t *testing.T, c sqldb.Config) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}
