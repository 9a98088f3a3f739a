package storetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/idgen"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

// BenchmarkPush is a push from queued to delivered, in batches as the queue
// gives them: three pieces of news in three transactions of 512.
func BenchmarkPush(b *testing.B) {
	for name, config := range map[string]func(testing.TB) sqldb.Config{sqldb.SQLite: sqldbtest.SQLiteConfig, sqldb.Postgres: sqldbtest.PostgresConfig} {
		b.Run(name, func(b *testing.B) {
			db, err := sqldb.Open(b.Context(), config(b))
			require.NoError(b, err)
			defer db.Close()
			s, err := store.Open(b.Context(), db, nil)
			require.NoError(b, err)
			for n := 0; n < b.N; n += store.MaxBatch {
				for _, st := range []wire.State{wire.Queued, wire.Accepted, wire.Delivered} {
					_, err := s.Apply(context.Background(), batch(b, n, st))
					require.NoError(b, err)
				}
			}
		})
	}
}

func batch(b *testing.B, from int, st wire.State) []store.News {
	b.Helper()
	var out []store.News
	for i := from; i < from+store.MaxBatch; i++ {
		open := fmt.Sprintf("oUser-%08d", i)
		h := idgen.HashOf("bench", fmt.Sprint(i))
		r := wire.Receipt{Source: wire.FromSender, MessageKind: wire.KindPush, ID: idgen.Derive(idgen.User("wx", open), h), IdentityHash: h.String(),
			Account: "bank", OpenID: open, App: "card", TemplateID: "tpl", Reference: fmt.Sprint("r", i), State: st, At: time.Now().UnixMilli()}
		switch st {
		case wire.Accepted:
			r.MsgID = fmt.Sprint(1e12 + float64(i))
		case wire.Delivered:
			r.Source, r.ID, r.MsgID = wire.FromWeChat, "", fmt.Sprint(1e12+float64(i))
		}
		n, err := store.FromReceipt(&r, time.Now())
		require.NoError(b, err)
		if st == wire.Queued {
			n.Letter = make([]byte, 600)
		}
		out = append(out, n)
	}
	return out
}
