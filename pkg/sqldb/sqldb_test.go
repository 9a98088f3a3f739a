package sqldb_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func table(t *testing.T, db *sqldb.DB) {
	t.Helper()
	_, err := db.Exec(t.Context(), "CREATE TABLE item (id TEXT PRIMARY KEY, n BIGINT NOT NULL)")
	require.NoError(t, err)
}

func count(t *testing.T, q sqldb.Querier) int {
	t.Helper()
	var n int
	require.NoError(t, q.QueryRow(context.Background(), "SELECT COUNT(*) FROM item").Scan(&n))
	return n
}

func TestArgumentsGoWhereTheirNumberSays(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		var a, b string
		err := db.QueryRow(t.Context(), "SELECT CAST($2 AS TEXT), CAST($1 AS TEXT)", "one", "two").Scan(&a, &b)
		require.NoError(t, err)
		require.Equal(t, []string{"two", "one"}, []string{a, b})
	})
}

func TestErrorsCarryKinds(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		table(t, db)
		ctx := t.Context()
		insert := "INSERT INTO item (id, n) VALUES ($1, $2)"
		_, err := db.Exec(ctx, insert, "a", 1)
		require.NoError(t, err)

		_, err = db.Exec(ctx, insert, "a", 2)
		require.Equal(t, fault.Conflict, fault.KindOf(err), "%v", err)

		var n int
		err = db.QueryRow(ctx, "SELECT n FROM item WHERE id = $1", "none").Scan(&n)
		require.Equal(t, fault.NotFound, fault.KindOf(err), "%v", err)

		_, err = db.Exec(ctx, "INSERT INTO nowhere VALUES (1)")
		require.Equal(t, fault.Internal, fault.KindOf(err), "%v", err)

		ended, cancel := context.WithCancel(ctx)
		cancel()
		err = db.Tx(ended, func(ctx context.Context, tx *sqldb.Tx) error { return nil })
		require.Equal(t, fault.Unavailable, fault.KindOf(err), "%v", err)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestTransactionLeavesNothingBehindWhenItFails(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		table(t, db)
		ctx := t.Context()
		put := func(ctx context.Context, tx *sqldb.Tx) {
			_, err := tx.Exec(ctx, "INSERT INTO item (id, n) VALUES ('x', 1)")
			require.NoError(t, err)
			require.Equal(t, 1, count(t, tx), "the write was seen inside the transaction")
		}
		boom := errors.New("boom")
		err := db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error { put(ctx, tx); return boom })
		require.ErrorIs(t, err, boom)
		require.Zero(t, count(t, db))

		require.PanicsWithValue(t, "poison", func() {
			_ = db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error { put(ctx, tx); panic("poison") })
		})
		require.Zero(t, count(t, db))

		// The pool is whole again: on SQLite there is only one writer to lose.
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error { put(ctx, tx); return nil }))
		require.Equal(t, 1, count(t, db))
	})
}

func TestGoexitInTransactionRollsBack(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		table(t, db)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = db.Tx(context.Background(), func(ctx context.Context, tx *sqldb.Tx) error {
				_, _ = tx.Exec(ctx, "INSERT INTO item (id, n) VALUES ('x', 1)")
				runtime.Goexit()
				return nil
			})
		}()
		<-done
		require.Zero(t, count(t, db))
		_, err := db.Exec(t.Context(), "INSERT INTO item (id, n) VALUES ('x', 1)")
		require.NoError(t, err)
	})
}

func TestViewSeesOnePictureAndCannotWrite(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		table(t, db)
		err := db.View(t.Context(), func(ctx context.Context, tx *sqldb.Tx) error {
			require.Zero(t, count(t, tx))
			_, err := db.Exec(ctx, "INSERT INTO item (id, n) VALUES ('x', 1)")
			require.NoError(t, err, "a reader does not stop the writer")
			require.Zero(t, count(t, tx), "the picture does not change")
			_, err = tx.Exec(ctx, "INSERT INTO item (id, n) VALUES ('y', 1)")
			return err
		})
		require.Error(t, err)
		require.Equal(t, 1, count(t, db))
	})
}

func TestConcurrentWritersLoseNothing(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		table(t, db)
		_, err := db.Exec(t.Context(), "INSERT INTO item (id, n) VALUES ('sum', 0)")
		require.NoError(t, err)
		var wg sync.WaitGroup
		errs := make(chan error, 20)
		for range 20 {
			wg.Go(func() {
				errs <- db.Tx(t.Context(), func(ctx context.Context, tx *sqldb.Tx) error {
					for range 5 {
						if _, err := tx.Exec(ctx, "UPDATE item SET n = n + 1 WHERE id = 'sum'"); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
		wg.Wait()
		for range 20 {
			require.NoError(t, <-errs)
		}
		var n int
		require.NoError(t, db.QueryRow(t.Context(), "SELECT n FROM item").Scan(&n))
		require.Equal(t, 100, n)
	})
}

// A second process on the same file holds the write lock for longer than the
// timeout: the answer is "nothing was done, try again", within the timeout.
func TestBusySQLiteIsUnavailable(t *testing.T) {
	c := sqldbtest.SQLiteConfig(t)
	db, err := sqldb.Open(t.Context(), c)
	require.NoError(t, err)
	defer db.Close()
	c.Timeout = 200 * time.Millisecond
	other, err := sqldb.Open(t.Context(), c)
	require.NoError(t, err)
	defer other.Close()
	table(t, db)
	err = db.Tx(t.Context(), func(ctx context.Context, tx *sqldb.Tx) error {
		_, err := other.Exec(context.Background(), "INSERT INTO item (id, n) VALUES ('x', 1)")
		require.Contains(t, []fault.Kind{fault.Unavailable, fault.Ambiguous}, fault.KindOf(err), "%v", err)
		return nil
	})
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), "INSERT INTO item (id, n) VALUES ('x', 1)")
	require.NoError(t, err)
}

func TestVersionComesFromTheEngine(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		v, err := db.Version(t.Context())
		require.NoError(t, err)
		require.Regexp(t, `^(SQLite 3\.\d+\.\d+|PostgreSQL \d+.*)$`, v)
		t.Log(v)
	})
}

func TestPoolMetrics(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		reg := prometheus.NewRegistry()
		require.NoError(t, db.Register(reg, "receipts"))
		n, err := testutil.GatherAndCount(reg, "go_sql_max_open_connections")
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, 1)
		require.Equal(t, fault.Conflict, fault.KindOf(db.Register(reg, "receipts")))
	})
}

func TestWrongSettingsSayWhatToDo(t *testing.T) {
	for name, c := range map[string]sqldb.Config{
		"MySQL is not supported": {Driver: "mysql", DSN: "x"},
		"dsn is empty":           {Driver: sqldb.Postgres},
		"max_conns":              {Driver: sqldb.SQLite, DSN: "a.db", MaxConns: -1},
		"timeout is 1ms":         {Driver: sqldb.SQLite, DSN: "a.db", Timeout: time.Millisecond},
		"synchronous is":         {Driver: sqldb.SQLite, DSN: "a.db", Synchronous: "off"},
		"path of a file":         {Driver: sqldb.SQLite, DSN: ":memory:"},
		"without options":        {Driver: sqldb.SQLite, DSN: "a.db?_pragma=x"},
		"look at sslmode":        {Driver: sqldb.Postgres, DSN: "postgres://u:s3cret@h/d?sslmode=perhaps"},
	} {
		_, err := sqldb.Open(t.Context(), c)
		require.ErrorContains(t, err, name)
		require.Equal(t, fault.Invalid, fault.KindOf(err))
		require.NotEmpty(t, fault.FieldOf(err))
	}
}

func TestPasswordIsNeverPrinted(t *testing.T) {
	const secret = "canary-7f3a"
	for _, dsn := range []string{
		"postgres://u:" + secret + "@127.0.0.1:1/d?connect_timeout=2",
		"postgres://u:" + secret + "@127.0.0.1:port/d",
		"postgres://u:" + secret + "%zz@127.0.0.1:1/d",
		"host=127.0.0.1 port=1 password='" + secret + "' sslmode=perhaps",
		"host=127.0.0.1 port=1 password=" + secret + " port",
	} {
		c := sqldb.Config{Driver: sqldb.Postgres, DSN: dsn, Timeout: time.Second}
		_, err := sqldb.Open(t.Context(), c)
		require.Error(t, err)
		for e := err; e != nil; e = errors.Unwrap(e) {
			require.NotContains(t, e.Error(), secret)
		}
		require.NotContains(t, fmt.Sprintf("%v %+v %#v %s", c, c, c, c), secret)
	}
}

func TestDatabaseAwayIsUnavailable(t *testing.T) {
	_, err := sqldb.Open(t.Context(), sqldb.Config{Driver: sqldb.Postgres, DSN: "postgres://u@127.0.0.1:1/d", Timeout: time.Second})
	require.Equal(t, fault.Unavailable, fault.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "postgres://u@127.0.0.1:1/d")
}

func TestSQLiteFilesBelongToTheirOwner(t *testing.T) {
	c := sqldbtest.SQLiteConfig(t)
	c.DSN = strings.TrimSuffix(c.DSN, "test.db") + "deep er/50%?.db"
	_, err := sqldb.Open(t.Context(), c)
	require.ErrorContains(t, err, "without options")
	c.DSN = strings.Replace(c.DSN, "?", "#", 1)
	db, err := sqldb.Open(t.Context(), c)
	require.NoError(t, err)
	defer db.Close()
	table(t, db)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		st, err := os.Stat(c.DSN + suffix)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), st.Mode().Perm(), suffix)
	}
}
