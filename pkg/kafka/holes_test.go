package kafka

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// However far the work has come when a partition is taken away: nothing behind the
// newest record that was begun is begun any more, and where nothing fails all that
// was finished is committed, so that the next owner repeats nothing.
func TestAnOrderlyEndLeavesNoHoles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t, GroupOptions{Handler: func(context.Context, Record) error { return nil }, MaxAhead: rapid.IntRange(1, 12).Draw(t, "ahead")})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				m.push([]byte(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")))
			case 2:
				m.begin(t)
			case 3:
				if n := len(m.running); n > 0 {
					m.end(t, rapid.IntRange(0, n-1).Draw(t, "which"), rapid.IntRange(0, 9).Draw(t, "fail") == 0)
				}
			}
		}
		newest := int64(-1)
		for off := range m.done {
			newest = max(newest, off)
		}
		for _, l := range m.running {
			newest = max(newest, l.next())
		}
		failed := len(m.stuck) > 0
		m.s.mu.Lock()
		m.s.closeHoles(m.c)
		m.s.mu.Unlock()
		for m.s.ring.len() > 0 || len(m.running) > 0 {
			before := len(m.running)
			m.begin(t)
			if len(m.running) > before {
				require.LessOrEqual(t, m.running[before].next(), newest, "begun though it closes no hole")
			}
			if n := len(m.running); n > 0 {
				i := rapid.IntRange(0, n-1).Draw(t, "which")
				if rapid.IntRange(0, 9).Draw(t, "fail") == 0 {
					failed = true
					m.s.finish(m.running[i], context.Canceled)
					m.running = append(m.running[:i:i], m.running[i+1:]...)
				} else {
					m.end(t, i, false)
				}
			}
		}
		select {
		case <-m.c.idle:
		default:
			t.Fatal("nothing runs or will be begun, and the end does not come")
		}
		if !failed {
			require.Len(t, m.done, int(newest+1), "holes")
			require.Equal(t, newest, max(m.sess.marked, 0)-1, "what was finished is not committed")
		}
	})
}

// A stop in the middle of two records of one follower: the second is worked too,
// since a later one of somebody else is finished, and the third is left.
func TestStopClosesHoles(t *testing.T) {
	m := newMachine(t, GroupOptions{Handler: func(context.Context, Record) error { return nil }})
	for _, key := range []string{"a", "a", "b", "a"} {
		m.push([]byte(key))
	}
	first, other := m.s.take(), m.s.take()
	m.s.finish(other, nil)
	drained := make(chan struct{})
	go func() {
		m.s.drain(m.c, time.Minute)
		close(drained)
	}()
	require.Eventually(t, func() bool { m.s.mu.Lock(); defer m.s.mu.Unlock(); return m.c.draining }, 10*time.Second, time.Millisecond)
	m.s.finish(first, nil)
	require.Equal(t, 1, m.s.ring.len())
	second := m.s.take()
	require.EqualValues(t, 1, second.next())
	m.s.finish(second, nil)
	<-drained
	require.EqualValues(t, 3, m.sess.marked)
	require.Zero(t, m.s.ring.len())
}

// Who waits for a turn goes on while holes are closed, and gives up when that time
// is over, long before those who work.
func TestWaitsEndBeforeWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, GroupOptions{Handler: func(ctx context.Context, _ Record) error {
			<-Open(ctx).Done()
			return ctx.Err()
		}, Workers: 1})
		stop := m.s.start()
		defer stop(false)
		m.push([]byte("a"))
		synctest.Wait()
		begin := time.Now()
		go m.s.drain(m.c, time.Minute)
		<-time.After(time.Minute/holesShare - time.Second)
		synctest.Wait()
		require.Equal(t, 1, m.inFlight(), "holes are closed still")
		<-m.c.idle
		require.Equal(t, time.Minute/holesShare, time.Since(begin))
	})
	require.NoError(t, Open(t.Context()).Err(), "outside a handler")
}

func (m *machine) inFlight() int {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.c.inFlight
}
