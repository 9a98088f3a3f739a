package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/idgen"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
)

// The rows of repeats are few among many: a question about them must go
// through their index and not read the table.
func TestRepeatsAreFoundByTheirIndex(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		ctx := context.Background()
		s, err := Open(ctx, db, nil)
		require.NoError(t, err)
		var news []News
		for n := range 2000 {
			h := idgen.HashOf("plan", fmt.Sprint(n))
			r := &wire.Receipt{Source: wire.FromRobot, MessageKind: wire.KindCallback, ID: idgen.Derive(idgen.User("wx1", "oX"), h), IdentityHash: h.String(),
				Account: "bank", OpenID: "oX", State: wire.Answered, At: time.Now().UnixMilli()}
			if n%100 == 0 {
				r.State = wire.Repeated
			}
			one, err := FromReceipt(r, time.Now())
			require.NoError(t, err)
			news = append(news, one)
		}
		_, err = s.Apply(ctx, news)
		require.NoError(t, err)
		explain := "EXPLAIN QUERY PLAN "
		if db.Dialect() == sqldb.Postgres {
			_, err = db.Exec(ctx, "ANALYZE all_messages")
			require.NoError(t, err)
			explain = "EXPLAIN "
		}
		for _, q := range []RepeatQuery{{From: time.Unix(0, 0), Limit: 20}, {Account: "bank", From: time.Now().Add(-time.Hour), Limit: 20}} {
			for _, st := range []statement{q.totals(), q.byUser(), q.byAction(), q.newest()} {
				plan := planOf(t, db, explain+st.text, st.args)
				index := "messages_repeated"
				if db.Dialect() == sqldb.Postgres {
					index = "account_openid_detail_idx" // that of the day's partition
				}
				require.Contains(t, plan, index, st.text)
				if st.text != q.newest().text && db.Dialect() == sqldb.SQLite {
					require.Contains(t, plan, "COVERING", "no row is read")
				}
			}
		}
	})
}

func planOf(t *testing.T, db *sqldb.DB, text string, args []any) string {
	t.Helper()
	rows, err := db.Query(context.Background(), text, args...)
	require.NoError(t, err)
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var line string
		dest := []any{&line}
		if db.Dialect() == sqldb.SQLite {
			var id, parent, unused int
			dest = []any{&id, &parent, &unused, &line}
		}
		require.NoError(t, rows.Scan(dest...))
		lines = append(lines, line)
	}
	require.NoError(t, rows.Err())
	return strings.Join(lines, "\n")
}
