package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tidegate/pkg/fault"
)

func TestWhatGoesInComesOutWhole(t *testing.T) {
	now := time.Date(2031, 5, 6, 7, 8, 9, 10, time.UTC)
	s := openAt(t, Options{Dir: t.TempDir(), Now: func() time.Time { return now }})
	in := []Record{
		{Topic: "a", Key: []byte("k"), Value: []byte("v1"), Headers: []Header{{Key: "v", Value: []byte("1")}, {Key: "e", Value: []byte{}}}},
		{Topic: "a", Key: nil, Value: []byte("no key")},
		{Topic: "b", Key: []byte{}, Value: bytes.Repeat([]byte{0xFF, 'T', 'g', 0xFE, 0}, 1000)},
	}
	appendAll(t, s, in...)
	require.True(t, s.Holds("a", []byte("k")))
	require.True(t, s.Holds("b", []byte{}))
	require.False(t, s.Holds("b", []byte("k")), "order is per topic and key")
	require.False(t, s.Holds("a", nil))
	d := s.Depth()
	require.EqualValues(t, 3, d.Records)
	require.True(t, d.Oldest.Equal(now), d.Oldest)
	require.Equal(t, d.Bytes, d.Disk)
	k := &sink{}
	require.NoError(t, s.Replay(t.Context(), k.publish))
	require.Len(t, k.got, 3)
	slices.SortFunc(k.got, func(a, b Record) int { return bytes.Compare(a.Value, b.Value) })
	slices.SortFunc(in, func(a, b Record) int { return bytes.Compare(a.Value, b.Value) })
	for i := range in {
		require.True(t, k.got[i].At.Equal(now))
		k.got[i].At = time.Time{}
		require.Equal(t, in[i], k.got[i])
	}
	require.False(t, s.Holds("a", []byte("k")))
	require.True(t, s.Depth().Oldest.IsZero())
	require.NoError(t, s.Replay(t.Context(), k.publish))
	require.Len(t, k.got, 3)
}

// Many callers share a sync; each has the disk's word before it goes on (G3).
func TestCallersShareASync(t *testing.T) {
	s := openAt(t, Options{Dir: t.TempDir()})
	const callers, each = 64, 20
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				if err := s.Append(context.Background(), rec(strconv.Itoa(c), strconv.Itoa(i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	st := s.Stats()
	require.EqualValues(t, callers*each, st.Appended)
	require.Less(t, st.Syncs, st.Appended, "somebody must have shared")
	k := &sink{}
	require.NoError(t, s.Replay(t.Context(), k.publish))
	requireOrder(t, k, callers, each)
}

// Appending goes on while the spool is being replayed, with restarts between.
func TestAppendAndReplaySideBySide(t *testing.T) {
	dir := t.TempDir()
	k := &sink{}
	const keys, each = 8, 300
	appended := 0
	for round := range 3 {
		s, err := Open(Options{Dir: dir, SegmentBytes: 4 << 10})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for c := range keys {
			wg.Go(func() {
				for i := range each / 3 {
					if err := s.Append(context.Background(), rec(strconv.Itoa(c), strconv.Itoa(round*each/3+i))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		ctx, stop := context.WithCancel(t.Context())
		var replay sync.WaitGroup
		replay.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-s.More():
					if err := s.Replay(ctx, k.publish); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				case <-ctx.Done():
				}
			}
		})
		wg.Wait()
		appended += keys * each / 3
		stop()
		replay.Wait()
		require.NoError(t, s.Close())
	}
	s := openAt(t, Options{Dir: dir})
	require.NoError(t, s.Replay(t.Context(), k.publish))
	require.Len(t, k.got, appended)
	requireOrder(t, k, keys, each)
}

func TestReplayedSegmentsAreDeleted(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir, SegmentBytes: 4 << 10})
	require.NoError(t, err)
	for i := range 100 {
		appendAll(t, s, rec("k", fmt.Sprintf("%0200d", i)))
	}
	require.Greater(t, len(files(t, dir, "*.seg")), 3)
	require.NoError(t, s.Replay(t.Context(), (&sink{}).publish))
	require.LessOrEqual(t, len(files(t, dir, "*.seg")), 1)
	require.NoError(t, s.Close())
	require.Empty(t, files(t, dir, "*.seg"))
	s = openAt(t, Options{Dir: dir})
	appendAll(t, s, rec("k", "after"))
	k := &sink{}
	require.NoError(t, s.Replay(t.Context(), k.publish))
	require.Equal(t, []string{"after"}, k.values(), "new sequence numbers lie beyond the cursor")
}

func TestAFullSpoolRefusesAndForgetsNothing(t *testing.T) {
	s := openAt(t, Options{Dir: t.TempDir(), MaxBytes: 64 << 10})
	n := 0
	var err error
	for err == nil {
		if err = s.Append(t.Context(), rec("k", fmt.Sprintf("%01000d", n))); err == nil {
			n++
		}
	}
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.ErrorContains(t, err, "spool full")
	require.ErrorContains(t, s.Ready(), "spool full")
	require.Greater(t, n, 25)
	require.LessOrEqual(t, s.Depth().Disk, int64(64<<10))
	k := &sink{}
	require.NoError(t, s.Replay(t.Context(), k.publish))
	require.Len(t, k.got, n)
	require.NoError(t, s.Ready())
	appendAll(t, s, rec("k", "there is room again"))
	require.EqualValues(t, 1, s.Stats().Refused)
}

func TestWhatCanNeverBeTakenIsSaidAtOnce(t *testing.T) {
	s := openAt(t, Options{Dir: t.TempDir()})
	err := s.Append(t.Context(), rec("k", string(make([]byte, maxPayload))))
	require.Equal(t, fault.Invalid, fault.KindOf(err))
	require.Equal(t, fault.Invalid, fault.KindOf(s.Append(t.Context(), Record{})))
	require.False(t, s.Holds("t", []byte("k")))
}

// A record that the queue will never take must not stop the ones behind it (T13).
func TestPoisonIsParkedAndTheRestGoesOn(t *testing.T) {
	dir := t.TempDir()
	core, logs := observer.New(zap.ErrorLevel)
	s := openAt(t, Options{Dir: dir, Log: zap.New(core)})
	appendAll(t, s, rec("a", "1"), rec("a", "poison"), rec("a", "2"), rec("b", "3"))
	k := &sink{fail: func(r Record) error {
		if string(r.Value) == "poison" {
			return fault.New(fault.Invalid, "publish", "too large")
		}
		return nil
	}}
	require.NoError(t, s.Replay(t.Context(), k.publish))
	require.ElementsMatch(t, []string{"1", "2", "3"}, k.values())
	require.Less(t, slices.Index(k.values(), "1"), slices.Index(k.values(), "2"))
	require.EqualValues(t, 1, s.Stats().Parked)
	require.Len(t, files(t, dir, "*.bad"), 1)
	require.Equal(t, 1, logs.Len())
	require.Positive(t, s.Depth().Disk)
	r, err := Inspect(dir)
	require.NoError(t, err)
	require.Len(t, r.Parked, 1)
	require.Equal(t, "t", r.Parked[0].Topic, "what was parked is a whole record that can be read")
}

// One account's missing topic must not stop the others (G21).
func TestAFailingTopicHoldsOnlyItself(t *testing.T) {
	s := openAt(t, Options{Dir: t.TempDir(), window: 2})
	for i := range 10 {
		appendAll(t, s, Record{Topic: "missing", Key: []byte("k"), Value: []byte(strconv.Itoa(i))}, rec("k", strconv.Itoa(i)))
	}
	k := &sink{fail: func(r Record) error {
		if r.Topic == "missing" {
			return fault.New(fault.Unavailable, "publish", "no such topic")
		}
		return nil
	}}
	err := s.Replay(t.Context(), k.publish)
	require.ErrorContains(t, err, "no such topic")
	require.Equal(t, []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, k.values())
	require.False(t, s.Holds("t", []byte("k")))
	require.True(t, s.Holds("missing", []byte("k")))
	require.Equal(t, map[string]int64{"missing": 10}, s.Waiting())
	k.fail = nil
	require.NoError(t, s.Replay(t.Context(), k.publish))
	require.Len(t, k.got, 20, "what was taken is not published again")
	require.Zero(t, s.Depth().Records)
}

func TestAReplayEndsWithItsContext(t *testing.T) {
	s := openAt(t, Options{Dir: t.TempDir()})
	appendAll(t, s, rec("k", "v"))
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Replay(ctx, func(ctx context.Context, _ Record) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 1, s.Depth().Records)
}

func TestTheCallersTimeIsBounded(t *testing.T) {
	s := openAt(t, Options{Dir: t.TempDir()})
	s.io.Lock() // the disk hangs
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("budget over"))
	err := s.Append(ctx, rec("k", "v"))
	s.io.Unlock()
	require.Equal(t, fault.Ambiguous, fault.KindOf(err), "the record may be written yet")
	require.ErrorContains(t, err, "budget over")
}

func TestAHangingDiskDoesNotFillTheMemory(t *testing.T) {
	s := openAt(t, Options{Dir: t.TempDir()})
	s.io.Lock()
	defer s.io.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	value := string(make([]byte, 1<<18))
	var err error
	for range 100 {
		if err = s.Append(ctx, rec("k", value)); fault.KindOf(err) == fault.Unavailable {
			break
		}
	}
	require.ErrorContains(t, err, "the disk does not keep up")
}

func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s, err := Open(Options{Dir: b.TempDir(), MaxBytes: 1 << 40})
			require.NoError(b, err)
			r := rec("k", string(make([]byte, 600)))
			b.SetBytes(600)
			b.ResetTimer()
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					for i := c; i < b.N; i += callers {
						if err := s.Append(context.Background(), r); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(s.Stats().Appended)/float64(max(s.Stats().Syncs, 1)), "records/sync")
			require.NoError(b, s.Close())
		})
	}
}
