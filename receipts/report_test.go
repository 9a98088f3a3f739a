package receipts_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/schedule"
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

// The report is a scheduled job: about the day before its slot, also when it
// runs late, and tried again when its directory cannot be written.
func TestDailyReportIsAJob(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "reports")
	w := newWorld(t, sqldbtest.OpenSQLite(t), func(c *receipts.Config) {
		c.Report.Dir, c.Report.Schedule, c.Report.RetryWait = dir, "30 6 * * *", 0
	})
	// The test happens at noon, so that no midnight can fall into it.
	zone, err := time.LoadLocation("Asia/Shanghai")
	require.NoError(t, err)
	now := time.Now().In(zone)
	w.clock.step(time.Date(now.Year(), now.Month(), now.Day(), 12, 0, 0, 0, zone).Sub(now) - 24*time.Hour)
	day := w.clock.now().In(zone).Format("2006-01-02")
	w.failed()
	require.NoError(t, os.WriteFile(dir, nil, 0o600)) // a file where the directory should be

	server, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(server.Close)
	rc := redis.DefaultConfig()
	rc.Addrs = []string{server.Addr()}
	client, err := redis.Open(rc, w.log)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, schedule.Migrate(t.Context(), w.db))
	rows := schedule.NewStore(w.db, func(context.Context) (time.Time, error) { return w.clock.now(), nil })
	s, err := schedule.New(schedule.Options{Config: schedule.DefaultConfig(), Team: "receipts", Node: "a", Jobs: w.room.Jobs(), Store: rows,
		Redis: client, Log: w.log, Now: w.clock.now, Poll: 5 * time.Millisecond})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	history := func() []schedule.Record {
		h, err := s.History(context.Background(), "failure-report", 0, 10)
		require.NoError(t, err)
		return h.Runs
	}
	planned := func() bool { v, err := s.View(t.Context()); return err == nil && v.Leader.Leads }
	require.Eventually(t, planned, 20*time.Second, 5*time.Millisecond)
	require.Eventually(t, func() bool { // nothing is planned for a job that is not known yet
		_, err := s.Ask(t.Context(), schedule.Ask{Job: "failure-report", By: "test", Reason: "the directory is in the way", Slot: w.clock.now()})
		return err == nil
	}, 20*time.Second, 5*time.Millisecond)
	require.Eventually(t, func() bool { h := history(); return len(h) == 1 && h[0].State == schedule.Failed }, 20*time.Second, 5*time.Millisecond)
	require.Contains(t, history()[0].Error, "make directory of reports")
	require.Equal(t, 5, history()[0].Attempt)

	require.NoError(t, os.Remove(dir))
	w.clock.step(48 * time.Hour) // noon of the day after tomorrow: two reports are due, both late
	require.Eventually(t, func() bool {
		h := history()
		return len(h) == 3 && h[0].State == schedule.Done && h[1].State == schedule.Done
	}, 20*time.Second, 5*time.Millisecond)
	text, err := os.ReadFile(filepath.Join(dir, "failures-"+day+".csv"))
	require.NoError(t, err, "the older one is about the older day")
	require.Contains(t, string(text), "40037")
	next := w.clock.now().In(zone).AddDate(0, 0, -1).Format("2006-01-02")
	text, err = os.ReadFile(filepath.Join(dir, "failures-"+next+".csv"))
	require.NoError(t, err)
	require.NotContains(t, string(text), "40037")
	require.FileExists(t, filepath.Join(dir, "failures-"+day+".html"))
}

func TestWithoutADirectoryThereIsNoReport(t *testing.T) {
	require.Empty(t, newWorld(t, sqldbtest.OpenSQLite(t)).room.Jobs())
}

// The report also goes to an address, signed, and is tried again until it is taken.
func TestTheReportIsSentToAnAddress(t *testing.T) {
	type got struct {
		id, signature string
		body          []byte
	}
	var mu sync.Mutex
	var all []got
	answer := http.StatusServiceUnavailable
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			all = append(all, got{r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp") + " " + r.Header.Get("Webhook-Signature"), body})
		}
		w.WriteHeader(answer)
	}))
	t.Cleanup(s.Close)
	key := []byte("0123456789abcdef0123456789abcdef")
	w := newWorld(t, sqldbtest.OpenSQLite(t), func(c *receipts.Config) {
		c.Report.Webhook = receipts.ReportHook{URL: s.URL + "/failures", Secret: "whsec_" + base64.StdEncoding.EncodeToString(key), Allow: []string{"127.0.0.1"}}
	})
	w.failed()
	require.Len(t, w.room.Jobs(), 1, "an address is enough for a report")
	slot := w.clock.now().AddDate(0, 0, 1)
	err := w.room.ReportBefore(t.Context(), slot)
	require.ErrorContains(t, err, "503")
	require.NotContains(t, err.Error(), "/failures", "an address may be a secret")
	mu.Lock()
	answer = http.StatusNoContent
	mu.Unlock()
	require.NoError(t, w.room.ReportBefore(t.Context(), slot))
	require.Len(t, all, 2)
	require.Equal(t, all[0].id, all[1].id, "the receiver takes one day once")
	stamp, signature, _ := strings.Cut(all[1].signature, " ")
	m := hmac.New(sha256.New, key)
	m.Write([]byte(all[1].id + "." + stamp + "."))
	m.Write(all[1].body)
	require.Equal(t, "v1,"+base64.StdEncoding.EncodeToString(m.Sum(nil)), signature)
	require.Contains(t, string(all[1].body), `"errcode":40037`)
	require.NotContains(t, string(all[1].body), openID(0))
}
