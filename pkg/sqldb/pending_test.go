package sqldb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
)

func TestPendingCountsWhatMigrateWouldDo(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		pending := func(steps ...string) int {
			n, err := db.Pending(t.Context(), "receipts", migrations(steps...))
			require.NoError(t, err)
			return n
		}
		require.Equal(t, 2, pending(stepTable, stepColumn), "an empty database")
		require.Equal(t, 2, pending(stepTable, stepColumn), "asking changed nothing")
		require.NoError(t, db.Migrate(t.Context(), "receipts", migrations(stepTable)))
		require.Equal(t, 1, pending(stepTable, stepColumn))
		require.NoError(t, db.Migrate(t.Context(), "receipts", migrations(stepTable, stepColumn)))
		require.Zero(t, pending(stepTable, stepColumn))
		require.Zero(t, pending(stepTable), "a newer database has nothing to do for an older release")
	})
}
