package control_test

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidegate/pkg/control"
	"tidegate/pkg/fault"

	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eachEngine gives the settings of a database: two connections to it, as two
// nodes have.
func eachEngine(t *testing.T, fn func(t *testing.T, cfg sqldb.Config)) {
	t.Run(sqldb.SQLite, func(t *testing.T) { fn(t, sqldbtest.SQLiteConfig(t)) })
	if os.Getenv(sqldbtest.PostgresVar) != "" {
		t.Run(sqldb.Postgres, func(t *testing.T) { fn(t, sqldbtest.PostgresConfig(t)) })
	}
}

func openDB(t *testing.T, cfg sqldb.Config) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, control.Migrate(t.Context(), db))
	return db
}

func redisAddr(t *testing.T) string {
	if addr := os.Getenv("TIDEGATE_TEST_REDIS"); addr != "" {
		return addr
	}
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s.Addr()
}

func limit(rate float64) json.RawMessage {
	b, _ := json.Marshal(control.Limit{Rate: rate, Burst: 1, Concurrency: 1})
	return b
}

func change(subject string, value json.RawMessage) control.Change {
	return control.Change{Kind: control.KindLimit, Subject: subject, Value: value, By: "duty", Reason: "the core is slow"}
}

func at(v int64) *int64 { return &v }

func TestSettingsAreVersionedAndAudited(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		now := time.Date(2030, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
		require.NoError(t, control.Migrate(t.Context(), db))
		n, err := control.Pending(t.Context(), db)
		require.NoError(t, err)
		require.Zero(t, n)
		s := control.NewStore(db, func() time.Time { return now })
		apply := func(c control.Change) control.Entry {
			t.Helper()
			e, err := s.Apply(t.Context(), c)
			require.NoError(t, err)
			return e
		}
		refused := func(kind fault.Kind, text string, c control.Change) {
			t.Helper()
			_, err := s.Apply(t.Context(), c)
			require.Equal(t, kind, fault.KindOf(err), "%v", err)
			require.ErrorContains(t, err, text)
		}

		require.EqualValues(t, 1, apply(change("robot.account.card", limit(50))).Version)
		c := change("robot.account.card", limit(40))
		c.IfVersion = at(0)
		_, err = s.Apply(t.Context(), c)
		require.ErrorIs(t, err, control.ErrChanged)
		refused(fault.Conflict, "has version 1 and not 0", c)
		c.IfVersion, c.ExpiresAt = at(1), now.Add(time.Hour)
		e := apply(c)
		require.EqualValues(t, 2, e.Version)
		require.JSONEq(t, string(limit(50)), string(e.Old))
		apply(change("robot.backend.core", limit(10)))
		st, err := s.State(t.Context())
		require.NoError(t, err)
		require.Equal(t, control.State{Version: 3, Hash: st.Hash, Rows: []control.Row{
			{Kind: "limit", Subject: "robot.account.card", Value: limit(40), Version: 2, By: "duty", At: now, Reason: "the core is slow", ExpiresAt: now.Add(time.Hour)},
			{Kind: "limit", Subject: "robot.backend.core", Value: limit(10), Version: 3, By: "duty", At: now, Reason: "the core is slow"},
		}}, st)
		apply(change("robot.backend.core", nil))
		refused(fault.NotFound, "not set", change("robot.backend.core", nil))

		now = now.Add(time.Hour) // the limit of the account has expired
		refused(fault.NotFound, "not set", change("robot.account.card", nil))
		c = change("robot.account.card", limit(30))
		c.IfVersion = at(0)
		require.JSONEq(t, string(limit(40)), string(apply(c).Old), "the audit knows what was there")

		bad := func(text string, f func(*control.Change)) {
			t.Helper()
			c := change("robot.account.card", limit(1))
			f(&c)
			refused(fault.Invalid, text, c)
		}
		bad("reason: say why", func(c *control.Change) { c.Reason = "  " })
		bad("reason: use at most", func(c *control.Change) { c.Reason = "a\nb" })
		bad("by: say who", func(c *control.Change) { c.By = "" })
		bad("subject", func(c *control.Change) { c.Subject = "a b" })
		bad("kind", func(c *control.Change) { c.Kind = "Limit" })
		bad("no JSON", func(c *control.Change) { c.Value = json.RawMessage("{") })
		bad("within a year", func(c *control.Change) { c.ExpiresAt = now })

		log, err := s.Log(t.Context(), control.LogQuery{Kind: control.KindLimit, Subject: "robot.account.card", Limit: 2})
		require.NoError(t, err)
		require.Len(t, log, 2)
		require.EqualValues(t, 5, log[0].Version)
		require.EqualValues(t, 2, log[1].Version)
		log, err = s.Log(t.Context(), control.LogQuery{Before: 2, Limit: 10})
		require.NoError(t, err)
		require.Len(t, log, 1)
		p, err := s.Verify(t.Context())
		require.NoError(t, err)
		require.Equal(t, control.Proof{Entries: 5, Head: p.Head}, p, "nothing that was refused is in it")
	})
}

// G23: what many change at the same time is in the audit once each, and of
// those who expect the same version one wins.
func TestChangesAtTheSameTime(t *testing.T) {
	eachEngine(t, func(t *testing.T, cfg sqldb.Config) {
		const each = 10
		stores := []*control.Store{control.NewStore(openDB(t, cfg), nil), control.NewStore(openDB(t, cfg), nil)}
		var wg sync.WaitGroup
		won := make(chan int64, each*len(stores))
		for _, s := range stores {
			wg.Go(func() {
				for i := range each {
					c := change("robot.account.card", limit(float64(i+1)))
					c.IfVersion = at(int64(i))
					if e, err := s.Apply(context.WithoutCancel(t.Context()), c); err == nil {
						won <- e.Version
					}
					c.IfVersion = nil
					c.Subject = "robot.backend.core"
					_, err := s.Apply(context.WithoutCancel(t.Context()), c)
					if err != nil {
						t.Errorf("change %d: %v", i, err)
					}
				}
			})
		}
		wg.Wait()
		close(won)
		p, err := stores[0].Verify(t.Context())
		require.NoError(t, err)
		require.Empty(t, p.Broken)
		require.EqualValues(t, each*len(stores)+len(won), p.Entries)
		require.NotEmpty(t, won)
	})
}

// Every way to touch the tables by hand is found.
func TestVerifyFindsWhatWasDoneBehindTheAudit(t *testing.T) {
	for name, c := range map[string]struct{ sql, finds string }{
		"edited":          {"UPDATE control_audit SET changed_by = 'somebody' WHERE version = 2", "entry 2 was edited"},
		"reason edited":   {"UPDATE control_audit SET reason = 'x' WHERE version = 1", "entry 1 was edited"},
		"hash replaced":   {"UPDATE control_audit SET hash = 'x' WHERE version = 2", "entry 2 was edited"},
		"deleted":         {"DELETE FROM control_audit WHERE version = 2", "entry 3 follows entry 1"},
		"first deleted":   {"DELETE FROM control_audit WHERE version = 1", "entry 2 follows entry 0"},
		"end cut off":     {"DELETE FROM control_audit WHERE version = 4", "its end was cut off"},
		"inserted":        {"INSERT INTO control_audit SELECT 5, changed_at, changed_by, kind, subject, new_value, new_value || '', reason, expires_at, hash, hash FROM control_audit WHERE version = 4", "entry 5 was edited"},
		"setting edited":  {"UPDATE control SET value = '{\"rate\":9}' WHERE subject = 'robot.account.card'", "changed behind the audit"},
		"setting added":   {"INSERT INTO control VALUES ('limit', 'x', '{}', 4, 'a', 1, 'b', 0)", "the setting x was changed behind the audit"},
		"setting removed": {"DELETE FROM control WHERE subject = 'robot.account.card'", "removed behind the audit"},
		"nothing":         {"UPDATE control_audit SET reason = reason", ""},
	} {
		t.Run(name, func(t *testing.T) {
			db := openDB(t, sqldbtest.SQLiteConfig(t))
			s := control.NewStore(db, nil)
			for i, v := range []json.RawMessage{limit(1), limit(2), nil, limit(4)} {
				subject := "robot.account.card"
				if i == 3 {
					subject = "robot.account.loan"
				}
				if v == nil {
					subject, v = "robot.backend.core", limit(3)
				}
				_, err := s.Apply(t.Context(), change(subject, v))
				require.NoError(t, err)
			}
			n, err := db.Exec(t.Context(), c.sql)
			require.NoError(t, err)
			require.Positive(t, n, "the deed must have been done")
			p, err := s.Verify(t.Context())
			require.NoError(t, err)
			if c.finds == "" {
				require.Empty(t, p.Broken)
				require.EqualValues(t, 4, p.Entries)
				return
			}
			require.Contains(t, p.Broken, c.finds)
		})
	}
}
