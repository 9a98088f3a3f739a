package receipts_test

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
	"tidegate/receipts"
)

// failed makes 4 refused, 2 rejected and 1 delivered push.
func (w *world) failed() {
	for i := range 4 {
		p := w.push(i)
		w.outcome(p, wire.Accepted, func(r *wire.Receipt) { r.MsgID = fmt.Sprint(100 + i) })
		w.event(p, fmt.Sprint(100+i), wire.RefusedByUser)
	}
	for i := 4; i < 6; i++ {
		w.outcome(w.push(i), wire.Rejected, func(r *wire.Receipt) { r.ErrCode, r.Reason = 40037, "=invalid template_id" })
	}
	w.outcome(w.push(6), wire.Delivered)
	w.settled(4, wire.RefusedByUser)
	w.settled(2, wire.Rejected)
	w.settled(1, wire.Delivered)
}

func TestReportOfFailures(t *testing.T) {
	each(t, func(w *world) {
		w.failed()
		code, got := w.call("card", http.MethodGet, "/v1/reports/failures", nil)
		require.Equal(w, http.StatusOK, code)
		require.Equal(w, "6", fmt.Sprint(got["total"]))
		lines := got["failures"].([]any)
		require.Len(w, lines, 2)
		require.Equal(w, "refused_by_user", lines[0].(map[string]any)["state"])
		require.Equal(w, "4", fmt.Sprint(lines[0].(map[string]any)["count"]))

		code, head, text := w.fetch("card", http.MethodGet, "/v1/reports/failures?format=csv&account=bank&template_id=tpl-1", nil)
		require.Equal(w, http.StatusOK, code)
		require.Contains(w, head.Get("Content-Disposition"), "failures-")
		rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
		require.NoError(w, err)
		require.Len(w, rows, 3)
		require.Equal(w, []string{"40037", "'=invalid template_id", "2"}, rows[2][5:8])

		code, head, text = w.fetch("card", http.MethodGet, "/v1/reports/failures?format=html", nil)
		require.Equal(w, http.StatusOK, code)
		require.Contains(w, head.Get("Content-Security-Policy"), "default-src 'none'")
		require.Contains(w, string(text), "=invalid template_id")
		for _, who := range []string{openID(0), "bill"} {
			require.NotContains(w, string(text), who, "a report holds counts only")
		}
		_, got = w.call("till", http.MethodGet, "/v1/reports/failures", nil)
		require.Equal(w, "0", fmt.Sprint(got["total"]))
	})
}

func TestDailyReportIsWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "reports")
	w := newWorld(t, sqldbtest.OpenSQLite(t), func(c *receipts.Config) {
		c.Report = receipts.ReportConfig{Dir: dir, Schedule: "@every 1s", Location: "Asia/Shanghai"}
	})
	// The test happens at noon, so that no midnight can fall into it.
	zone, err := time.LoadLocation("Asia/Shanghai")
	require.NoError(t, err)
	now := time.Now().In(zone)
	w.clock.step(time.Date(now.Year(), now.Month(), now.Day(), 12, 0, 0, 0, zone).Sub(now) - 24*time.Hour)
	day := w.clock.now().In(zone).Format("2006-01-02")
	w.failed()
	w.clock.step(24 * time.Hour) // the failures are yesterday's
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "failures-"+day+".csv"))
		return err == nil && strings.Contains(string(text), "40037")
	}, 20*time.Second, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "failures-"+day+".html"))
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
}
