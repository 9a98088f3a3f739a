package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// G3: a power cut on a real file system. The spool lies on an ext4 image; the
// image is copied while the spool is being written, which is what the disk would
// have after a power cut, and the copy is mounted and opened. Set
// TIDEGATE_TEST_LOOP to the number of copies; mounting needs root.
func TestPowerLossOnImageCopies(t *testing.T) {
	if os.Getenv("TIDEGATE_TEST_LOOP") == "" {
		t.Skip("TIDEGATE_TEST_LOOP is not set: no loop devices to work on")
	}
	copies, err := strconv.Atoi(os.Getenv("TIDEGATE_TEST_LOOP"))
	require.NoError(t, err)
	work := t.TempDir()
	image := filepath.Join(work, "disk.img")
	run(t, "truncate", "-s", "256M", image)
	run(t, "mkfs.ext4", "-q", "-F", image)
	disk := mount(t, image, filepath.Join(work, "disk"))
	s := openAt(t, Options{Dir: filepath.Join(disk, "spool"), MaxBytes: 200 << 20, SegmentBytes: 256 << 10})
	l := &powerLoad{s: s, enough: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for k := range 16 {
		wg.Go(func() { l.append(ctx, t, fmt.Sprint("k", k)) })
	}
	checked := 0
	for n := range copies {
		l.wait(2000)
		if n%2 == 1 { // some of it is with the queue when the power goes
			left := 500
			require.Error(t, s.Replay(t.Context(), l.take(&left)))
		}
		checked += l.cutPower(t, image, filepath.Join(work, fmt.Sprint("copy", n)))
	}
	stop()
	wg.Wait()
	t.Logf("CI: %d image copies, %d acknowledged records looked for: lost 0, out of order 0", copies, checked)
}

// powerLoad is what was acknowledged, and what the queue has.
type powerLoad struct {
	s      *Spool
	mu     sync.Mutex
	acked  map[string]int // values per key: 0, 1, 2 …
	total  int
	target int
	enough chan struct{}
	taken  []string
}

func (l *powerLoad) append(ctx context.Context, t *testing.T, k string) {
	for n := 0; ctx.Err() == nil; n++ {
		r := Record{Topic: "t", Key: []byte(k), Value: fmt.Appendf(nil, "%s#%d", k, n), Headers: []Header{{Key: "fill", Value: make([]byte, 300)}}}
		if err := l.s.Append(context.Background(), r); err != nil {
			t.Error(err)
			return
		}
		l.mu.Lock()
		if l.acked == nil {
			l.acked = map[string]int{}
		}
		l.acked[k] = n + 1
		if l.total++; l.total == l.target {
			l.enough <- struct{}{}
		}
		l.mu.Unlock()
	}
}

func (l *powerLoad) wait(more int) {
	l.mu.Lock()
	l.target = l.total + more
	l.mu.Unlock()
	<-l.enough
}

// take is a queue that goes away after so many records.
func (l *powerLoad) take(left *int) Publish {
	return func(_ context.Context, r Record) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if *left == 0 {
			return errors.New("away")
		}
		*left--
		l.taken = append(l.taken, string(r.Value))
		return nil
	}
}

// cutPower copies the image between two batches, with half a batch written and
// not synced, and looks for everything that was acknowledged until then.
func (l *powerLoad) cutPower(t *testing.T, image, to string) int {
	t.Helper()
	l.s.io.Lock()
	l.mu.Lock()
	if l.s.handle != nil {
		_, err := l.s.handle.WriteAt(appendFrame(nil, 1<<30, make([]byte, 5000))[:3000], l.s.active.size)
		require.NoError(t, err)
	}
	want := map[string]int{}
	checked := 0
	for k, n := range l.acked {
		want[k] = n
		checked += n
	}
	seen := append([]string{}, l.taken...)
	run(t, "cp", "--sparse=always", image, to+".img")
	l.mu.Unlock()
	l.s.io.Unlock()

	disk := mount(t, to+".img", to)
	s, err := Open(Options{Dir: filepath.Join(disk, "spool"), MaxBytes: 200 << 20})
	require.NoError(t, err)
	var mu sync.Mutex
	require.NoError(t, s.Replay(t.Context(), func(_ context.Context, r Record) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, string(r.Value))
		return nil
	}))
	require.NoError(t, s.Close())
	run(t, "umount", disk)
	require.NoError(t, os.Remove(to+".img"))
	next := map[string]int{}
	for _, v := range seen {
		n, err := strconv.Atoi(v[len(key(v))+1:])
		require.NoError(t, err)
		require.LessOrEqual(t, n, next[key(v)], "%s is there and the one before it is not", v)
		next[key(v)] = max(next[key(v)], n+1)
	}
	for k, n := range want {
		require.GreaterOrEqual(t, next[k], n, "%s: acknowledged and lost", k)
	}
	return checked
}

func mount(t *testing.T, image, at string) string {
	t.Helper()
	require.NoError(t, os.Mkdir(at, 0o700))
	run(t, "mount", "-o", "loop", image, at)
	t.Cleanup(func() { _ = exec.Command("umount", at).Run() }) // the copies are unmounted already
	return at
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
}

// G16: the disk is full before the spool is. What was acknowledged stays, the
// rest is refused, replaying makes room, and no torn record is left (on a tmpfs of
// 2 MiB; mounting needs root, as above).
func TestFullDiskRefusesAndRecovers(t *testing.T) {
	if os.Getenv("TIDEGATE_TEST_LOOP") == "" {
		t.Skip("TIDEGATE_TEST_LOOP is not set: nothing may be mounted")
	}
	at := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.Mkdir(at, 0o700))
	run(t, "mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", at)
	t.Cleanup(func() { run(t, "umount", at) })
	o := Options{Dir: filepath.Join(at, "spool"), MaxBytes: 1 << 30, SegmentBytes: 256 << 10}
	s, err := Open(o)
	require.NoError(t, err)
	var acked []string
	for n := 0; err == nil; n++ {
		v := fmt.Sprintf("k#%d", n)
		r := Record{Topic: "t", Key: []byte("k"), Value: []byte(v), Headers: []Header{{Key: "fill", Value: make([]byte, 3000)}}}
		if err = s.Append(t.Context(), r); err == nil {
			acked = append(acked, v)
		}
	}
	require.ErrorContains(t, err, "no space left on device")
	require.Greater(t, len(acked), 300)
	require.ErrorContains(t, s.Ready(), "no space left on device")
	require.NoError(t, s.Close())
	s, err = Open(o) // also a start with a full disk must get at what is there
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	k := &sink{}
	require.NoError(t, s.Replay(t.Context(), k.publish))
	require.Equal(t, acked, k.values())
	require.Zero(t, s.Stats().Bad, "no torn record")
	require.NoError(t, s.Ready())
	appendAll(t, s, rec("k", "there is room again"))
	t.Logf("CI: disk full after %d records: the next one refused, all of them replayed", len(acked))
}
