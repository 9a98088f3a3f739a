// Package sqldbtest opens databases for tests: always a fresh SQLite file, and
// a schema of its own on the PostgreSQL server that TIDEGATE_TEST_POSTGRES
// names, where that variable is set. What a test leaves behind is removed.
package sqldbtest

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"tidegate/pkg/sqldb"
)

// PostgresVar names the environment variable with the server's URL.
const PostgresVar = "TIDEGATE_TEST_POSTGRES"

// Each runs fn as a subtest on every engine at hand.
func Each(t *testing.T, fn func(t *testing.T, db *sqldb.DB)) {
	t.Helper()
	t.Run(sqldb.SQLite, func(t *testing.T) { fn(t, OpenSQLite(t)) })
	if os.Getenv(PostgresVar) != "" {
		t.Run(sqldb.Postgres, func(t *testing.T) { fn(t, OpenPostgres(t)) })
	}
}

// OpenSQLite opens a new file in the test's directory.
func OpenSQLite(t testing.TB) *sqldb.DB {
	t.Helper()
	return open(t, SQLiteConfig(t))
}

// SQLiteConfig is a database in the test's directory. Commits survive the
// process, not a power cut, which no test makes.
func SQLiteConfig(t testing.TB) sqldb.Config {
	t.Helper()
	return sqldb.Config{Driver: sqldb.SQLite, DSN: filepath.Join(t.TempDir(), "test.db"), Synchronous: "normal"}
}

// OpenPostgres opens a new schema; the test is skipped without a server.
func OpenPostgres(t testing.TB) *sqldb.DB {
	t.Helper()
	return open(t, PostgresConfig(t))
}

// PostgresConfig makes a new schema that every connection of the
// configuration works in, and drops it when the test ends.
func PostgresConfig(t testing.TB) sqldb.Config {
	t.Helper()
	base := os.Getenv(PostgresVar)
	if base == "" {
		t.Skipf("%s is not set", PostgresVar)
	}
	u, err := url.Parse(base)
	if err != nil {
		t.Fatalf("%s is not a URL", PostgresVar)
	}
	schema := "test_" + rand.Text()
	admin := open(t, sqldb.Config{Driver: sqldb.Postgres, DSN: base})
	run := func(q string) {
		if _, err := admin.Exec(context.Background(), q); err != nil {
			t.Errorf("%s: %v", q, err)
		}
	}
	run(`CREATE SCHEMA "` + schema + `"`)
	t.Cleanup(func() { run(`DROP SCHEMA "` + schema + `" CASCADE`) })
	q := u.Query()
	q.Set("search_path", `"`+schema+`"`)
	u.RawQuery = q.Encode()
	return sqldb.Config{Driver: sqldb.Postgres, DSN: u.String()}
}

func open(t testing.TB, c sqldb.Config) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(context.Background(), c)
	if err != nil {
		t.Fatalf("open database: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close database: %v", err)
		}
	})
	return db
}
