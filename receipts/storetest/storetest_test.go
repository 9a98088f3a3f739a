package storetest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/receipts/store"
	"tidegate/receipts/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(db func(testing.TB) *sqldb.DB) storetest.Open {
	return func(t *testing.T, now func() time.Time) store.Store {
		s, err := store.Open(t.Context(), db(t), now)
		require.NoError(t, err)
		return s
	}
}

func TestSQLite(t *testing.T) { storetest.Run(t, open(sqldbtest.OpenSQLite)) }

func TestPostgres(t *testing.T) { storetest.Run(t, open(sqldbtest.OpenPostgres)) }
