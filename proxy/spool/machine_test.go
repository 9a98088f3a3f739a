package spool

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tidegate/pkg/fault"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("SPOOL_CHILD"); dir != "" {
		first, _ := strconv.Atoi(os.Getenv("SPOOL_FIRST"))
		appendForEver(dir, first)
		return
	}
	goleak.VerifyTestMain(m)
}

// machine is a spool on a file system that can crash, and what it owes.
type machine struct {
	fs        *memFS
	s         *Spool
	n         int
	appended  map[string]bool     // everything that was ever offered
	acked     map[string][]string // per key, in order
	published []string
	has       map[string]bool // of published
}

func (m *machine) open(t require.TestingT) {
	s, err := openOn(m.fs, Options{Dir: "/spool", MaxBytes: 64 << 10, SegmentBytes: 600, window: 5})
	require.NoError(t, err)
	m.s = s
}

func key(value string) string { k, _, _ := strings.Cut(value, "#"); return k }

// topic is one of two, so that a failing one can hold back half of the keys.
func topic(k string) string { return "t" + string('0'+k[1]%2) }

func (m *machine) value(k int) string {
	m.n++
	v := fmt.Sprintf("k%d#%d", k, m.n)
	m.appended[v] = true
	return v
}

func (m *machine) record(v string) Record {
	return Record{Topic: topic(v), Key: []byte(key(v)), Value: []byte(v), Headers: []Header{{Key: "id", Value: []byte(v)}}}
}

// append offers one record of each of several keys at the same time.
func (m *machine) append(t *rapid.T) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for k := range rapid.IntRange(1, 6).Draw(t, "keys") {
		v := m.value(k)
		wg.Go(func() {
			if m.s.Append(context.Background(), m.record(v)) == nil {
				mu.Lock()
				defer mu.Unlock()
				m.acked[key(v)] = append(m.acked[key(v)], v)
			}
		})
	}
	wg.Wait()
}

// replay lets some records through; then the queue, one topic of it, or the
// power goes away.
func (m *machine) replay(t *rapid.T) {
	answers := rapid.SliceOfN(rapid.Bool(), 1, 24).Draw(t, "answers of the queue")
	broken := rapid.SampledFrom([]string{"", "t0", "t1"}).Draw(t, "broken topic")
	power := rapid.Bool().Draw(t, "power cut during replay")
	var mu sync.Mutex
	err := m.s.Replay(context.Background(), func(_ context.Context, r Record) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Topic == broken:
			return fault.New(fault.Unavailable, "publish", "no such topic")
		case len(answers) == 0 && power:
			m.fs.cut()
			return fault.New(fault.Ambiguous, "publish", "the power is off")
		case len(answers) == 0:
			return fault.New(fault.Unavailable, "publish", "the queue is away")
		}
		good := answers[0]
		answers = answers[1:]
		if !good {
			return fault.New(fault.Ambiguous, "publish", "no answer")
		}
		m.took(r)
		return nil
	})
	if err == nil {
		require.Zero(t, m.s.Depth().Records)
	}
	if m.fs.off {
		m.crash(t)
	}
}

func (m *machine) took(r Record) {
	v := string(r.Value)
	m.published = append(m.published, v)
	m.has[v] = true
}

func (m *machine) crash(t *rapid.T) {
	m.fs.cut()
	_ = m.s.Close() // ends its goroutine; nothing reaches the disk
	m.fs.restart(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "of the disk") })
	m.open(t)
}

// check holds after every step.
func (m *machine) check(t *rapid.T) {
	d := m.s.Depth()
	require.LessOrEqual(t, d.Disk, d.Max)
	sum := int64(0)
	for _, n := range m.s.Waiting() {
		require.Positive(t, n)
		sum += n
	}
	require.Equal(t, d.Records, sum, "the topics' counts add up")
	for k, vs := range m.acked {
		for _, v := range vs {
			if !m.has[v] {
				require.True(t, m.s.Holds(topic(v), []byte(k)), "%s was acknowledged and not replayed", v)
			}
		}
	}
}

// end lets everything through and compares.
func (m *machine) end(t *rapid.T) {
	require.NoError(t, m.s.Replay(context.Background(), func(_ context.Context, r Record) error {
		m.s.mu.Lock() // any mutex does: lanes run side by side
		defer m.s.mu.Unlock()
		m.took(r)
		return nil
	}))
	require.Zero(t, m.s.Depth().Records)
	require.Zero(t, m.s.Depth().Bytes)
	first := map[string]int{}
	for i, v := range m.published {
		require.True(t, m.appended[v], "%s was invented", v)
		if _, again := first[v]; !again {
			first[v] = i
		}
	}
	for k, vs := range m.acked {
		require.False(t, m.s.Holds(topic(k), []byte(k)))
		at := -1
		for _, v := range vs {
			i, there := first[v]
			require.True(t, there, "%s was acknowledged and lost", v)
			require.Greater(t, i, at, "%s was overtaken", v)
			at = i
		}
	}
	require.NoError(t, m.s.Close())
}

// T27–T29: whatever happens, nothing acknowledged is lost, nothing of a key is
// overtaken, nothing is invented. A crash during the replay may double.
func TestCrashMachine(t *testing.T) {
	crashes, faults, doubled, cut := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{fs: newMemFS(), appended: map[string]bool{}, acked: map[string][]string{}, has: map[string]bool{}}
		m.open(t)
		t.Repeat(map[string]func(*rapid.T){
			"append": m.append, "append more": m.append, "append again": m.append,
			"replay": m.replay,
			"crash":  func(t *rapid.T) { m.crash(t); crashes++ },
			"crash while appending": func(t *rapid.T) {
				m.fs.cutSync = true
				m.append(t)
				m.crash(t)
			},
			"restart": func(t *rapid.T) {
				require.NoError(t, m.s.Close())
				m.fs.failSync, m.fs.failWrite = 0, 0 // a start on a failing disk is refused, rightly
				m.open(t)
			},
			"sync fails":   func(*rapid.T) { m.fs.failSync++ },
			"disk is full": func(*rapid.T) { m.fs.failWrite++ },
			"":             m.check,
		})
		m.fs.failSync, m.fs.failWrite = 0, 0
		m.end(t)
		faults += m.fs.faults
		doubled += len(m.published) - len(m.has)
		cut += m.fs.boot
	})
	require.Positive(t, crashes)
	require.Positive(t, faults, "some writes and syncs must have failed")
	require.Positive(t, doubled, "a crash between the queue's answer and the cursor must have happened")
	t.Logf("%d power cuts, %d failed writes and syncs, %d published again", cut, faults, doubled)
}
