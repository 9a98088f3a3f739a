//go:build e2e

package e2e

import (
	"os"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/test/chaos/herd"
)

// eventsBeforeAnswers (G20): WeChat answers late, and its event about the message
// comes before, and twice. Each accepted push has one row all the same, that says
// delivered, and no event stays without its row. TIDEGATE_TEST_EVENTS=1000 is the
// number of the guarantee, with answers 3 s late.
func (w *world) eventsBeforeAnswers(b *pushes) {
	w.t.Helper()
	n, late := 60, time.Second
	if text := os.Getenv("TIDEGATE_TEST_EVENTS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(w.t, err, "TIDEGATE_TEST_EVENTS")
		late = 3 * time.Second
	}
	before, rows := len(b.ids), w.delivered()
	api := wechatsim.PathTemplateSend
	require.NoError(w.t, w.sim.SetFaults(
		wechatsim.Fault{Do: wechatsim.ReceiptEarly, API: api}, wechatsim.Fault{Do: wechatsim.ReceiptTwice, API: api},
		wechatsim.Fault{Do: wechatsim.FaultSlow, API: api, DelayMS: int(late.Milliseconds())},
	))
	require.NoError(w.t, b.offer(w.t.Context(), 2, n, 200))
	require.Len(w.t, b.ids, before+n)
	// A sender has fewer requests under way while WeChat is slow: what is waited for
	// is that all were sent, and then the minute of the guarantee.
	herd.Wait(w.t, "all pushes to reach WeChat", 10*time.Minute, func() bool { return w.sim.Verdict(0).Pushes.Visible >= int64(before+n) })
	deadline := time.Now().Add(late + time.Minute)
	herd.Wait(w.t, "a row of each push that says delivered", 2*time.Minute, func() bool {
		require.True(w.t, time.Now().Before(deadline), "rows of pushes by state: %v; events without a row: %v", w.count("all_messages WHERE kind = 'push' GROUP BY state", "state"), w.count("parked GROUP BY state", "state"))
		return w.delivered() == rows+int64(n)
	})
	for _, f := range w.sim.Faults() {
		require.Equal(w.t, n, f.Hits, "%s", f.Do)
	}
	require.NoError(w.t, w.sim.SetFaults())
	db := w.openDB()
	defer db.Close()
	// What came in the meantime may be parked for as long as its row is on its way.
	var parked, all int
	herd.Wait(w.t, "no event without its row", time.Minute, func() bool {
		require.NoError(w.t, db.QueryRow(w.t.Context(), "SELECT (SELECT COUNT(*) FROM parked), (SELECT COUNT(*) FROM all_messages WHERE kind = 'push')").Scan(&parked, &all))
		return parked == 0
	})
	require.Equal(w.t, before+n, all, "one row per accepted push")
	ci(w.t, "G20  | bar: %d pushes, answered %s late, events before the answers and twice: unjoined after 60 s 0, one row each | measured: %d rows delivered, unjoined %d, rows beyond the accepted pushes %d | kept", n, late, n, parked, all-before-n)
}

// delivered is how many rows of pushes say so.
func (w *world) delivered() (n int64) {
	w.t.Helper()
	db := w.openDB()
	defer db.Close()
	require.NoError(w.t, db.QueryRow(w.t.Context(), "SELECT COUNT(*) FROM all_messages WHERE kind = 'push' AND state = 'delivered'").Scan(&n))
	return n
}

// count gives the numbers of rows by a column, for people.
func (w *world) count(from, by string) map[string]int {
	w.t.Helper()
	db := w.openDB()
	defer db.Close()
	rows, err := db.Query(w.t.Context(), "SELECT "+by+", COUNT(*) FROM "+from)
	require.NoError(w.t, err)
	defer rows.Close()
	out := map[string]int{}
	for rows.Next() {
		var name string
		var n int
		require.NoError(w.t, rows.Scan(&name, &n))
		out[name] = n
	}
	require.NoError(w.t, rows.Err())
	return out
}

func (w *world) openDB() *sqldb.DB {
	w.t.Helper()
	db, err := sqldb.Open(w.t.Context(), sqldb.Config{Driver: sqldb.Postgres, DSN: w.dsn, MaxConns: 2})
	require.NoError(w.t, err)
	return db
}
