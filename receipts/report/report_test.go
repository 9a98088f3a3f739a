package report_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
	"tidegate/receipts/report"
	"tidegate/receipts/store"
)

// source gives fixed lines and remembers what it was asked for.
type source struct {
	lines []store.Failure
	asked store.Filter
	err   error
}

func (s *source) Failures(_ context.Context, f store.Filter) ([]store.Failure, error) {
	s.asked = f
	return s.lines, s.err
}

var shanghai = time.FixedZone("CST", 8*3600)

func period() report.Period {
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, shanghai)
	return report.Period{From: from, To: from.AddDate(0, 0, 1)}
}

func make1(t *testing.T, lines ...store.Failure) *report.Report {
	t.Helper()
	s := &source{lines: lines}
	r, err := report.Make(t.Context(), s, period(), time.Unix(1772400000, 0))
	require.NoError(t, err)
	require.Equal(t, period().From, s.asked.From)
	require.Equal(t, period().To, s.asked.To)
	return r
}

func failure(reason string, n int64) store.Failure {
	return store.Failure{Account: "bank", App: "card", Template: "tpl-1", Kind: wire.KindPush, State: wire.Rejected, ErrCode: -1,
		Reason: reason, Count: n, First: period().From.UnixMilli(), Last: period().From.Add(time.Hour).UnixMilli()}
}

func TestCSVCannotRunFormulas(t *testing.T) {
	evil := []string{`=HYPERLINK("http://evil","x")`, "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "＝1+1", "＋1", " =1", "\uFEFF=1", `"=1`, "'=1", "\u200b=1", "\n=1"}
	plain := []string{"user block", "a=b", "", "失败", "9007199254740993", `say "hi", then go`}
	var lines []store.Failure
	for _, s := range append(append([]string{}, evil...), plain...) {
		lines = append(lines, failure(s, 3))
	}
	var b bytes.Buffer
	require.NoError(t, make1(t, lines...).CSV(&b))
	text, found := strings.CutPrefix(b.String(), "\uFEFF")
	require.True(t, found, "a byte order mark comes first")
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, len(lines)+1)
	require.Equal(t, "Account 公众号", rows[0][0])
	for i, s := range evil {
		// encoding/csv reads \r\n inside a cell as \n.
		require.True(t, strings.HasPrefix(rows[i+1][6], "'"), "%q became %q", s, rows[i+1][6])
	}
	for i, s := range plain {
		require.Equal(t, s, rows[i+1+len(evil)][6])
	}
	require.Equal(t, []string{"-1", "3"}, []string{rows[1][5], rows[1][7]}, "numbers stay numbers")
	require.Equal(t, "2026-03-01 00:00:00", rows[1][8])
}

func TestHTMLEscapes(t *testing.T) {
	var b bytes.Buffer
	r := make1(t, failure(`<img src=x onerror=alert(1)>`, 3), failure("拒收", 1))
	require.Equal(t, int64(4), r.Total)
	require.NoError(t, r.HTML(&b))
	page := b.String()
	require.NotContains(t, page, "<img")
	require.NotContains(t, page, "<script")
	require.Contains(t, page, "&lt;img src=x")
	require.Contains(t, page, "拒收")
	require.Contains(t, page, "发送失败")
	require.Contains(t, page, "3 (75.0 %)")
	require.Contains(t, page, "2026-03-01 00:00 CST – 2026-03-02 00:00 CST")
	b.Reset()
	require.NoError(t, make1(t).HTML(&b))
	require.Contains(t, b.String(), "No message failed")
}

func TestFilesAppearWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "reports", "daily")
	for range 2 { // the second time replaces them
		files, err := make1(t, failure("x", 1)).WriteFiles(dir)
		require.NoError(t, err)
		require.Equal(t, []string{filepath.Join(dir, "failures-2026-03-01.csv"), filepath.Join(dir, "failures-2026-03-01.html")}, files)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "nothing else is left behind")

	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	_, err = make1(t).WriteFiles(blocked)
	require.ErrorContains(t, err, "directory of reports")
}

func TestErrorsOfTheSourceComeThrough(t *testing.T) {
	_, err := report.Make(t.Context(), &source{err: io.ErrUnexpectedEOF}, period(), time.Now())
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// No text that comes in as a reason can begin a formula.
func FuzzCSV(f *testing.F) {
	f.Add("=1")
	f.Add("\t\"＝x")
	f.Fuzz(func(t *testing.T, reason string) {
		var b bytes.Buffer
		r, err := report.Make(t.Context(), &source{lines: []store.Failure{failure(reason, 1)}}, period(), time.Now())
		require.NoError(t, err)
		require.NoError(t, r.CSV(&b))
		rows, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(b.String(), "\uFEFF"))).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 2)
		cell := rows[1][6]
		require.False(t, cell != "" && strings.ContainsRune("=+-@\t\r\n", rune(cell[0])), "%q", cell)
	})
}
