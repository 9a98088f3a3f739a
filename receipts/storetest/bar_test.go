package storetest_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/receipts/export"
	"tidegate/receipts/store"
)

// stormVar gives the number of messages of the long form: 1000000.
const stormVar = "TIDEGATE_TEST_RECEIPTS"

// verdict is a line of the table.
type verdict struct {
	bar, measured string
	ok            bool
}

// TestBarOfReceipts loads a storm into PostgreSQL and measures, in one run, the
// rate against a COPY of the very rows that came out, questions, and an export.
func TestBarOfReceipts(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(stormVar))
	if err != nil || n < 10_000 {
		t.Skipf("%s is not the number of messages, at least 10000", stormVar)
	}
	db := sqldbtest.OpenPostgres(t)
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	s := storm{messages: n, base: now.Add(-6 * time.Hour)}
	st, err := store.Open(t.Context(), db, func() time.Time { return now })
	require.NoError(t, err)

	total, took := s.load(t, st)
	s.check(t, st)
	_, err = db.Exec(t.Context(), "ANALYZE all_messages")
	require.NoError(t, err)
	copied := copyTime(t, db)
	ratio := copied.Seconds() / took.Seconds()
	rate := float64(total) / took.Seconds()
	lines := []verdict{
		{"rows right, counts equal a recount, nothing parked", fmt.Sprintf("%d receipts, %d rows", total, n), true},
		{"rate / COPY of the same rows >= 0.3 (aim 0.5)", fmt.Sprintf("%.2f: %.0f receipts/s; COPY of rows and steps with their indexes %.1f s, ours %.1f s", ratio, rate, copied.Seconds(), took.Seconds()), ratio >= 0.3},
	}
	lines = append(lines, s.questions(t, st)...)
	lines = append(lines, s.exports(t, st))
	var b strings.Builder
	for _, l := range lines {
		word := "ok"
		if !l.ok {
			word = "MISSED"
		}
		fmt.Fprintf(&b, "%-52s  %-6s  %s\n", l.bar, word, l.measured)
	}
	t.Logf("receipts on PostgreSQL, %d writers\n%s", stormWriters, b.String())
	for _, l := range lines {
		require.True(t, l.ok, l.bar)
	}
}

// copyTime writes what is in the rows into tables of the same form by COPY: the
// server reads a file of its own, which costs less than taking rows from a client.
func copyTime(t *testing.T, db *sqldb.DB) time.Duration {
	dir, err := os.MkdirTemp("", "copy") //nolint:usetesting // t.TempDir lies below a directory that the server may not enter
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777)) // the server writes there
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	run := func(q string) {
		rows, err := db.Query(ctx, q) // not bounded by the time of a transaction
		require.NoError(t, err, q)
		for rows.Next() {
			continue
		}
		require.NoError(t, rows.Err(), q)
		require.NoError(t, rows.Close())
	}
	var sum time.Duration
	for _, name := range []string{"messages", "steps"} {
		file := filepath.Join(dir, name)
		run("CREATE TABLE copy_" + name + " (LIKE all_" + name + " INCLUDING ALL)")
		run("COPY (SELECT * FROM all_" + name + ") TO '" + file + "'")
		run("CHECKPOINT")
		began := time.Now()
		run("COPY copy_" + name + " FROM '" + file + "'")
		sum += time.Since(began)
	}
	return sum
}

// questions asks as the API does.
func (s storm) questions(t *testing.T, st store.Store) []verdict {
	rng := rand.New(rand.NewPCG(7, 7))
	day := s.base.Truncate(24 * time.Hour)
	asked := func(name string, f func() store.Filter) verdict {
		const times = 300
		var took []time.Duration
		for range times {
			filter := f()
			began := time.Now()
			ms, err := st.List(t.Context(), filter, nil, 50)
			took = append(took, time.Since(began))
			require.NoError(t, err)
			require.NotEmpty(t, ms)
		}
		slices.Sort(took)
		p95 := took[times*95/100]
		return verdict{name + ": p95 <= 50 ms", fmt.Sprintf("p50 %.1f ms, p95 %.1f ms", ms(took[times/2]), ms(p95)), p95 <= 50*time.Millisecond}
	}
	return []verdict{
		asked("a page by openid", func() store.Filter { return store.Filter{OpenID: s.openid(rng.IntN(s.messages / 4))} }),
		asked("a page by app and day", func() store.Filter {
			return store.Filter{App: s.app(rng.IntN(stormApps)), From: day, To: day.Add(24 * time.Hour)}
		}),
		asked("a page of failures by app and day", func() store.Filter {
			return store.Filter{App: s.app(rng.IntN(stormApps)), From: day, To: day.Add(24 * time.Hour), Failed: true}
		}),
		s.report(t, st),
	}
}

// report measures the report of failures of a day.
func (s storm) report(t *testing.T, st store.Store) verdict {
	began := time.Now()
	fs, err := st.Failures(t.Context(), store.Filter{From: s.base.Truncate(24 * time.Hour), To: s.base.Truncate(24 * time.Hour).Add(24 * time.Hour)})
	took := time.Since(began)
	require.NoError(t, err)
	var sum int64
	for _, f := range fs {
		sum += f.Count
	}
	require.EqualValues(t, (s.messages+32)/33, sum)
	return verdict{"the report of failures of a day: <= 200 ms", fmt.Sprintf("%.1f ms, %d lines", ms(took), len(fs)), took <= 200*time.Millisecond}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// exports writes every row as CSV and looks at the memory on the way.
func (s storm) exports(t *testing.T, st store.Store) verdict {
	const bar = 64 << 20
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, most := m.HeapAlloc, uint64(0)
	began := time.Now()
	w := export.NewCSV(io.Discard)
	rows := 0
	require.NoError(t, w.Begin())
	require.NoError(t, st.Each(t.Context(), store.Filter{}, func(m *store.Message) error {
		if rows++; rows%10_000 == 0 {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc-min(now.HeapAlloc, before))
		}
		return w.Write(m)
	}))
	require.NoError(t, w.End())
	require.Equal(t, s.messages, rows)
	took := time.Since(began)
	return verdict{"an export of all rows in constant memory: <= 64 MiB", fmt.Sprintf("%d rows, at most %d MiB more than before, %.0f rows/s", rows, most>>20, float64(rows)/took.Seconds()), most <= bar}
}
