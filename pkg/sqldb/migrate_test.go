package sqldb_test

import (
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
)

func migrations(steps ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for i, s := range steps {
		for _, dialect := range []string{sqldb.SQLite, sqldb.Postgres} {
			name := dialect + "/0000" + string(rune('1'+i)) + "_step.sql"
			fsys[name] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + s + ";\n-- +goose Down\n")}
		}
	}
	return fsys
}

const (
	stepTable  = "CREATE TABLE item (id TEXT PRIMARY KEY, n BIGINT NOT NULL)"
	stepColumn = "ALTER TABLE item ADD COLUMN note TEXT"
)

func TestMigrateIsRepeatableAndApartPerRoom(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		ctx := t.Context()
		require.NoError(t, db.Migrate(ctx, "receipts", migrations(stepTable)))
		require.NoError(t, db.Migrate(ctx, "receipts", migrations(stepTable)))
		require.NoError(t, db.Migrate(ctx, "sender", migrations("CREATE TABLE intent (id TEXT PRIMARY KEY)")))
		require.NoError(t, db.Migrate(ctx, "receipts", migrations(stepTable, stepColumn)))
		_, err := db.Exec(ctx, "INSERT INTO item (id, n, note) VALUES ('a', 1, 'x')")
		require.NoError(t, err)
	})
}

// An older release meets the tables of a newer one and works on (D15).
func TestMigrateLeavesANewerDatabaseAlone(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		require.NoError(t, db.Migrate(t.Context(), "receipts", migrations(stepTable, stepColumn)))
		require.NoError(t, db.Migrate(t.Context(), "receipts", migrations(stepTable)))
		_, err := db.Exec(t.Context(), "INSERT INTO item (id, n, note) VALUES ('a', 1, 'x')")
		require.NoError(t, err)
	})
}

func TestFailedMigrationLeavesNothing(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		err := db.Migrate(t.Context(), "receipts", migrations(stepTable+";\nSELECT * FROM nowhere"))
		require.ErrorContains(t, err, "migrate tables of receipts")
		_, err = db.Exec(t.Context(), "INSERT INTO item (id, n) VALUES ('a', 1)")
		require.Error(t, err, "the first half was rolled back")
		require.NoError(t, db.Migrate(t.Context(), "receipts", migrations(stepTable)))
	})
}

func TestProcessesMigrateAtOnce(t *testing.T) {
	configs := map[string]func(testing.TB) sqldb.Config{sqldb.SQLite: sqldbtest.SQLiteConfig, sqldb.Postgres: sqldbtest.PostgresConfig}
	for name, config := range configs {
		t.Run(name, func(t *testing.T) {
			c := config(t)
			var wg sync.WaitGroup
			errs := make(chan error, 4)
			for range 4 {
				db, err := sqldb.Open(t.Context(), c)
				require.NoError(t, err)
				t.Cleanup(func() { _ = db.Close() })
				wg.Go(func() { errs <- db.Migrate(t.Context(), "receipts", migrations(stepTable, stepColumn)) })
			}
			wg.Wait()
			for range 4 {
				require.NoError(t, <-errs)
			}
		})
	}
}

func TestMigrateNeedsAProperRoomName(t *testing.T) {
	db := sqldbtest.OpenSQLite(t)
	err := db.Migrate(t.Context(), "x; DROP TABLE y", migrations(stepTable))
	require.Equal(t, fault.Internal, fault.KindOf(err))
}
