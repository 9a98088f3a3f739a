package history_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/test/chaos/history"
)

// Two writers that count from one start give one history in the order in which
// things happened.
func TestWritersJoin(t *testing.T) {
	dir, start := t.TempDir(), time.Now()
	a, err := history.Create(filepath.Join(dir, "a"), start)
	require.NoError(t, err)
	b, err := history.Create(filepath.Join(dir, "b"), start)
	require.NoError(t, err)
	var want []history.Event
	for i := range 100 {
		w := []*history.Writer{a, b}[i%2]
		want = append(want, w.Add(history.Event{Kind: history.Invoke, Token: fmt.Sprint(i), Delivery: 1, Account: "card", OpenID: "o"}))
	}
	require.NoError(t, a.Close())
	require.NoError(t, a.Close(), "a second Close is harmless")
	require.NoError(t, b.Close())
	got, err := history.Read(filepath.Join(dir, "a"), filepath.Join(dir, "b"))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// Concurrent writers of one file never mix lines, and their order is that of
// their times.
func TestWriterConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h")
	w, err := history.Create(path, time.Now())
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 500 {
				w.Add(history.Event{Kind: history.Note, Text: fmt.Sprintf("%d %d %s", i, k, strings.Repeat("x", 100))})
			}
		})
	}
	wg.Wait()
	require.NoError(t, w.Close())
	got, err := history.Read(path)
	require.NoError(t, err)
	require.Len(t, got, 4000)
	for i := 1; i < len(got); i++ {
		require.LessOrEqual(t, got[i-1].At, got[i].At)
	}
}

// What is no history is refused with file and line, not skipped.
func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"unknown field": `{"at":1,"wall":1,"kind":"note","nonsense":1}` + "\n",
		"no json":       "hello\n",
		"cut off":       `{"at":1,"wall":1,"kind":"note"}` + "\n" + `{"at":2,"wall"`,
		"too long":      `{"at":1,"text":"` + strings.Repeat("x", 70_000) + `"}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "h")
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			_, err := history.Read(path)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, "line ")
		})
	}
	_, err := history.Read(filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "none")
}

// A writer that lost something says so at its end.
func TestWriterTells(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h")
	w, err := history.Create(path, time.Now())
	require.NoError(t, err)
	w.Add(history.Event{Kind: history.Note, Text: strings.Repeat("x", 70_000)})
	require.ErrorContains(t, w.Close(), "at most")
	_, err = history.Create(path, time.Now())
	require.ErrorContains(t, err, "create history", "an old history is never overwritten")
}
