package spool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tidegate/pkg/fault"
)

// damaged fills a spool with the values a, b, c, d, closes it, damages its one
// segment and gives the replayed values with the logged alarms.
func damaged(t *testing.T, damage func(segment []byte) []byte) (values []string, dir string, alarms int) {
	t.Helper()
	dir = t.TempDir()
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	for _, v := range []string{"aaaa", "bbbb", "cccc", "dddd"} {
		appendAll(t, s, rec("k-"+v, v))
	}
	require.NoError(t, s.Close())
	path := files(t, dir, "*.seg")[0]
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, damage(bytes.Clone(before)), 0o600))
	core, logs := observer.New(zap.ErrorLevel)
	s, err = Open(Options{Dir: dir, Log: zap.New(core)})
	require.NoError(t, err)
	k := &sink{}
	waiting := s.Depth().Records
	require.NoError(t, s.Append(t.Context(), rec("k", "new")))
	require.NoError(t, s.Replay(t.Context(), k.publish))
	require.Len(t, k.got, int(waiting)+1)
	require.Zero(t, s.Depth().Records)
	require.NoError(t, s.Close())
	require.Empty(t, files(t, dir, "*.seg"))
	return k.values(), dir, logs.Len()
}

func TestATornTailIsCutOff(t *testing.T) {
	last := func(b []byte) int { return bytes.LastIndex(b, magic[:]) }
	for name, damage := range map[string]func([]byte) []byte{
		"in the payload":             func(b []byte) []byte { return b[:len(b)-3] },
		"in the header":              func(b []byte) []byte { return b[:last(b)+10] },
		"in the magic":               func(b []byte) []byte { return b[:last(b)+2] },
		"zeros instead of a record":  func(b []byte) []byte { clear(b[last(b):]); return b },
		"zeros behind half a record": func(b []byte) []byte { clear(b[last(b)+30:]); return append(b, make([]byte, 8192)...) },
	} {
		t.Run(name, func(t *testing.T) {
			values, _, _ := damaged(t, damage)
			require.ElementsMatch(t, []string{"aaaa", "bbbb", "cccc", "new"}, values)
		})
	}
}

func TestZerosAtTheEndAreNoRecordsAndNoAlarm(t *testing.T) {
	values, dir, alarms := damaged(t, func(b []byte) []byte { return append(b, make([]byte, 100_000)...) })
	require.ElementsMatch(t, []string{"aaaa", "bbbb", "cccc", "dddd", "new"}, values)
	require.Zero(t, alarms)
	require.Empty(t, files(t, dir, "*.bad"))
}

func TestABadMiddleIsPutAsideWithAnAlarmAndTheRestIsRead(t *testing.T) {
	at := func(b []byte, v string) int { return bytes.Index(b, []byte(v)) }
	for name, damage := range map[string]func([]byte) []byte{
		"a flipped bit": func(b []byte) []byte { b[at(b, "bbbb")] ^= 1; return b },
		"a wild length": func(b []byte) []byte { b[at(b, "k-bbbb")-28] = 0xFF; return b },
		"zeros":         func(b []byte) []byte { clear(b[at(b, "k-bbbb")-30:][:40]); return b },
		"bytes in between": func(b []byte) []byte {
			i := at(b, "k-cccc") - 36
			return append(b[:i:i], append([]byte("??"), b[i:]...)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			values, dir, alarms := damaged(t, damage)
			require.Subset(t, values, []string{"aaaa", "dddd", "new"})
			require.GreaterOrEqual(t, len(values), 3)
			require.Less(t, len(values), 5+1)
			require.Positive(t, alarms)
			parked := files(t, dir, "*.bad")
			require.NotEmpty(t, parked)
			for _, v := range []string{"aaaa", "bbbb", "cccc", "dddd"} {
				kept := false
				for _, p := range parked {
					b, err := os.ReadFile(p)
					require.NoError(t, err)
					kept = kept || bytes.Contains(b, []byte(v)) || bytes.Contains(b, []byte("bb"))
				}
				require.True(t, kept || contains(values, v) || name == "zeros", "%s is neither replayed nor kept", v)
			}
		})
	}
}

func contains(vs []string, v string) bool {
	for _, x := range vs {
		if x == v {
			return true
		}
	}
	return false
}

// A bad range that was put aside is not put aside again at each start.
func TestAnAlarmIsRaisedOnce(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	appendAll(t, s, rec("a", "aaaa"), rec("b", "bbbb"), rec("c", "cccc"))
	require.NoError(t, s.Close())
	path := files(t, dir, "*.seg")[0]
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[bytes.Index(b, []byte("bbbb"))] ^= 1
	require.NoError(t, os.WriteFile(path, b, 0o600))
	for n := range 3 {
		s, err := Open(Options{Dir: dir})
		require.NoError(t, err)
		require.EqualValues(t, 2, s.Depth().Records)
		require.Equal(t, n == 0, s.Stats().Bad == 1)
		require.NoError(t, s.Close())
	}
	r, err := Inspect(dir)
	require.NoError(t, err)
	require.Len(t, r.Bad, 1)
	require.Len(t, r.Parked, 1)
	require.EqualValues(t, 2, r.Waiting)
}

// What rots while the spool is open is put aside by the replay, and the key
// does not stay held for ever.
func TestRotWhileOpenIsPutAside(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, Options{Dir: dir})
	appendAll(t, s, rec("a", "aaaa"), rec("b", "bbbb"), rec("c", "cccc"))
	f, err := os.OpenFile(files(t, dir, "*.seg")[0], os.O_RDWR, 0)
	require.NoError(t, err)
	b, err := io.ReadAll(f)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{'X'}, int64(bytes.Index(b, []byte("bbbb"))))
	require.NoError(t, errors.Join(err, f.Close()))
	k := &sink{}
	require.NoError(t, s.Replay(t.Context(), k.publish))
	require.ElementsMatch(t, []string{"aaaa", "cccc"}, k.values())
	require.EqualValues(t, 1, s.Stats().Bad)
	require.False(t, s.Holds("t", []byte("b")))
	require.Zero(t, s.Depth().Records)
}

// A cursor that cannot be read doubles; it does not lose.
func TestABadCursorReplaysEverything(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	appendAll(t, s, rec("a", "1"), rec("a", "2"), rec("a", "3"))
	n := 0
	k := &sink{fail: func(Record) error {
		if n++; n > 1 {
			return errors.New("away")
		}
		return nil
	}}
	require.Error(t, s.Replay(t.Context(), k.publish))
	require.NoError(t, s.Close())
	again := func(want ...string) {
		t.Helper()
		s, err := Open(Options{Dir: dir})
		require.NoError(t, err)
		k := &sink{}
		_ = s.Replay(t.Context(), func(ctx context.Context, r Record) error { _ = k.publish(ctx, r); return errors.New("away") })
		require.NoError(t, s.Close())
		require.Equal(t, want[:1], k.values())
	}
	again("2")
	for _, line := range []string{"", "2", "2 00000000\n", "18446744073709551616 0\n", "\x00\x00"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cursor"), []byte(line), 0o600))
		again("1")
	}
}

func TestInspectTellsWhatIsThereAndChangesNothing(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, Options{Dir: dir})
	appendAll(t, s, rec("a", "1"), rec("a", "2"), rec("b", "3"), Record{Topic: "u", Value: []byte("4")})
	r, err := Inspect(dir)
	require.NoError(t, err)
	require.True(t, r.InUse)
	require.EqualValues(t, 4, r.Waiting)
	require.Equal(t, s.Depth().Bytes, r.Bytes)
	require.Equal(t, []TopicReport{{"t", 3, 2}, {"u", 1, 0}}, r.Topics)
	require.Equal(t, KeyReport{"t", "a", 2}, r.Keys[0])
	require.False(t, r.Oldest.IsZero())
	require.NoError(t, s.Close())
	path := files(t, dir, "*.seg")[0]
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, before[:len(before)-1], 0o600))
	r, err = Inspect(dir)
	require.NoError(t, err)
	require.False(t, r.InUse)
	require.EqualValues(t, 3, r.Waiting)
	require.Len(t, r.Bad, 1)
	require.True(t, r.Bad[0].Unfinished)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before[:len(before)-1], after)
	_, err = Inspect(filepath.Join(dir, "nowhere"))
	require.Error(t, err)
}

// Counting nothing in the wrong folder would look like a spool that is empty.
func TestInspectRefusesWhatIsNoSpool(t *testing.T) {
	dir := t.TempDir()
	_, err := Inspect(dir)
	require.ErrorContains(t, err, "inspect spool "+dir+": this is no spool")
	require.Equal(t, fault.Invalid, fault.KindOf(err))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("x"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "LOCK"), 0o700))
	_, err = Inspect(dir)
	require.ErrorContains(t, err, "give the directory of proxy.spool.dir")

	empty := filepath.Join(t.TempDir(), "spool")
	require.NoError(t, openAt(t, Options{Dir: empty}).Close())
	r, err := Inspect(empty)
	require.NoError(t, err, "one that was opened and is empty is a spool")
	require.Zero(t, r.Waiting)
}

// The reader takes any bytes: it ends, frames and gaps cover the segment without
// overlap, and whatever it calls good has the right checksum.
func FuzzSegment(f *testing.F) {
	payload, err := rec("k", "v").encode()
	require.NoError(f, err)
	good := appendFrame(appendFrame(nil, 1, payload), 2, payload)
	f.Add(good)
	f.Add(good[:len(good)-2])
	f.Add(append([]byte("??"), good...))
	f.Add(append(bytes.Repeat(magic[:], 20), good...))
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		sc := &scanner{r: bytes.NewReader(b), end: int64(len(b))}
		at, last := int64(0), uint64(0)
		for {
			fr, g, err := sc.next()
			if errors.Is(err, io.EOF) {
				require.EqualValues(t, len(b), at)
				return
			}
			require.NoError(t, err)
			if g != nil {
				require.Equal(t, at, g.from)
				require.Greater(t, g.to, g.from)
				at = g.to
				continue
			}
			require.Equal(t, at, fr.off)
			require.Greater(t, fr.seq, last)
			at, last = at+fr.size, fr.seq
			require.Equal(t, b[fr.off:at], appendFrame(nil, fr.seq, fr.payload))
			if r, err := decode(fr.payload); err == nil {
				again, err := r.encode()
				require.NoError(t, err)
				same, err := decode(again)
				require.NoError(t, err)
				require.Equal(t, r, same)
			}
		}
	})
}

// The payload's decoder alone, which a fuzzer does not reach through checksums.
func FuzzPayload(f *testing.F) {
	payload, err := rec("k", "v").encode()
	require.NoError(f, err)
	f.Add(payload)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			return
		}
		again, err := r.encode()
		require.NoError(t, err)
		same, err := decode(again)
		require.NoError(t, err)
		require.Equal(t, r, same)
	})
}
