package receipts_test

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
)

func TestExportHasEveryRowOnce(t *testing.T) {
	each(t, func(w *world) {
		const n = 23
		for i := range n {
			w.outcome(w.push(i), wire.Rejected, func(r *wire.Receipt) {
				r.Reason = "invalid, \"quoted\"\nand long"
				if i == 7 {
					r.Reason, r.Reference, r.MsgID = `=HYPERLINK("http://x")`, "＝1+1", "9007199254740993"
				}
			})
		}
		foreign := w.push(n)
		foreign.App = "till"
		w.outcome(foreign, wire.Dead)
		w.settled(n, wire.Rejected)
		w.settled(1, wire.Dead)

		code, head, text := w.fetch("card", http.MethodGet, "/v1/messages?format=csv&state=rejected", nil)
		require.Equal(w, http.StatusOK, code)
		require.Equal(w, "text/csv; charset=utf-8", head.Get("Content-Type"))
		rows, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(string(text), "\uFEFF"))).ReadAll()
		require.NoError(w, err)
		require.Len(w, rows, n+1)
		seen, odd := map[string][]string{}, w.push(7)
		for _, row := range rows[1:] {
			seen[row[0]] = row
		}
		require.Len(w, seen, n, "every message once")
		row := seen[odd.ID]
		require.Equal(w, []string{"'＝1+1", `'=HYPERLINK("http://x")`, "9007199254740993"}, []string{row[7], row[13], row[15]}, "no cell is a formula (S55), no digit is lost")

		code, head, text = w.fetch("ops", http.MethodGet, "/v1/messages?format=ndjson", nil)
		require.Equal(w, http.StatusOK, code)
		require.Equal(w, "application/x-ndjson", head.Get("Content-Type"))
		lines := bufio.NewScanner(bytes.NewReader(text))
		count := 0
		for ; lines.Scan(); count++ {
			var m map[string]any
			require.NoError(w, json.Unmarshal(lines.Bytes(), &m))
		}
		require.Equal(w, n+1, count)

		// One app never gets another's rows.
		_, _, text = w.fetch("till", http.MethodGet, "/v1/messages?format=ndjson&account=shop", nil)
		require.Empty(w, text)
	})
}

func TestExportIsStreamed(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t))
	for i := range 3 {
		w.outcome(w.push(i), wire.Dead)
	}
	w.settled(3, wire.Dead)
	s := httptest.NewServer(w.room.Handler())
	t.Cleanup(s.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/v1/messages?format=csv", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+w.keys["ops"])
	resp, err := s.Client().Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	rows, err := csv.NewReader(resp.Body).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 4)
	require.Equal(t, "3", resp.Trailer.Get("Tidegate-Rows"), "whoever reads to the end knows that it is all")
	require.Negative(t, resp.ContentLength, "nothing was gathered before it was sent")

	for query, field := range map[string]string{"format=xlsx": "format", "format=csv&limit=5": "limit", "format=csv&cursor=x": "cursor", "format=csv&state=x": "state"} {
		code, problem := w.call("ops", http.MethodGet, "/v1/messages?"+query, nil)
		require.Equal(t, http.StatusBadRequest, code, query)
		require.Equal(t, field, problem["field"], fmt.Sprint(problem))
	}
}
