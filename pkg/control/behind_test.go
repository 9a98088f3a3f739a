package control_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/control"
	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

// Limiters go by the highest version, so a database that went back steers nobody
// until the nodes that were steered by the newer one are gone: whoever wants to
// change a limit is told, and by whom it is held up.
func TestABackupThatWasPutBackIsTold(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, cfg sqldb.Config) {
		addr := redisAddr(t)
		begin := func(name string) *node {
			return start(t, control.Options{Node: name, DB: openDB(t, cfg), Redis: openRedis(t, addr)})
		}
		a, b := begin("a"), begin("b")
		set(t, a, &low)
		e := set(t, a, &high)
		everybody(t, a, 2, e.Version)
		require.Empty(t, a.Overview(t.Context()).Behind)

		db := openDB(t, cfg)
		for _, what := range []string{"DELETE FROM control", "DELETE FROM control_audit", "UPDATE control_head SET version = 0, hash = ''"} {
			_, err := db.Exec(t.Context(), what)
			require.NoError(t, err)
		}
		told := func(n *node, names string) {
			t.Helper()
			require.Eventually(t, func() bool {
				return strings.Contains(n.Overview(t.Context()).Behind, "at version 0 and "+names+" hold limits of version 2")
			}, within, 5*time.Millisecond)
			_, err := n.SetLimit(t.Context(), control.LimitChange{Subject: card, To: &low, By: "duty", Reason: "test"})
			require.Equal(t, fault.Final, fault.KindOf(err), "%v", err)
			require.ErrorContains(t, err, "restarted")
		}
		told(a, "a, b") // at once, whether they have looked or not
		a.await(t, file)
		b.await(t, file)
		told(b, "a, b") // and when they have gone back themselves
		head, err := control.NewStore(db, nil).Version(t.Context())
		require.NoError(t, err)
		require.Zero(t, head, "a change without effect is not written down")

		a.stop()
		a = begin("a")
		a.await(t, file)
		told(a, "b")
		b.stop()
		b = begin("b")
		require.Eventually(t, func() bool { return a.Overview(t.Context()).Behind == "" }, within, 5*time.Millisecond)
		require.EqualValues(t, 1, set(t, a, &low).Version)
		b.await(t, low)
	})
}
