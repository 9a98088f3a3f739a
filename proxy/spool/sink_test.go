package spool

import (
	"context"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func openAt(t *testing.T, o Options) *Spool {
	t.Helper()
	s, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func rec(k, v string) Record {
	return Record{Topic: "t", Key: []byte(k), Value: []byte(v), Headers: []Header{{Key: "id", Value: []byte(v)}, {Key: "empty", Value: []byte{}}}}
}

func appendAll(t *testing.T, s *Spool, rs ...Record) {
	t.Helper()
	for _, r := range rs {
		require.NoError(t, s.Append(t.Context(), r))
	}
}

// sink is a queue that keeps what it takes.
type sink struct {
	mu   sync.Mutex
	got  []Record
	fail func(Record) error
}

func (k *sink) publish(_ context.Context, r Record) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != nil {
		if err := k.fail(r); err != nil {
			return err
		}
	}
	k.got = append(k.got, r)
	return nil
}

func (k *sink) values() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var vs []string
	for _, r := range k.got {
		vs = append(vs, string(r.Value))
	}
	return vs
}

func requireOrder(t *testing.T, k *sink, keys, each int) {
	t.Helper()
	next := map[string]int{}
	for _, r := range k.got {
		require.Equal(t, strconv.Itoa(next[string(r.Key)]), string(r.Value), "key %s", r.Key)
		next[string(r.Key)]++
	}
	require.Len(t, next, keys)
	for _, n := range next {
		require.Equal(t, each, n)
	}
}

func files(t *testing.T, dir, pattern string) []string {
	t.Helper()
	fs, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(t, err)
	return fs
}
