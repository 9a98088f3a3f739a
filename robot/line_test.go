package robot

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/alarm"
	"tidegate/pkg/ratelimit"
	"tidegate/robot/engine"
)

// queue is a line under load in a bubble of its own time.
type queue struct {
	*line
	mu        sync.Mutex
	waits     [engine.Levels][]time.Duration
	refused   perLevel
	late      perLevel
	refusedAt []time.Duration // when somebody was refused, by time since the begin
	began     time.Time
	wg        sync.WaitGroup
}

func newQueue(l ratelimit.Limit, p patience) *queue {
	gauges := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "waiting"}, []string{"line", "level"})
	return &queue{line: newLine("account", "account a", ratelimit.New(l), p, gauges), began: time.Now()}
}

func (q *queue) come(level engine.Level, work time.Duration) {
	q.wg.Go(func() {
		came := time.Now()
		release, err := q.Acquire(withTurn(context.Background(), turn{level: level}), 0)
		q.note(level, time.Since(came), err)
		if err == nil {
			time.Sleep(work) //nolint:forbidigo // fake time: this is the call
			release()
		}
	})
}

func (q *queue) note(level engine.Level, waited time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var no *refusal
	switch {
	case err == nil:
		q.waits[level] = append(q.waits[level], waited)
	case errors.As(err, &no):
		q.refused[level]++
		if no.why == "late" {
			q.late[level]++
		}
		q.refusedAt = append(q.refusedAt, time.Since(q.began))
	}
}

func (q *queue) soFar() perLevel {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refused
}

// load lets callbacks of each level come evenly, so many a second.
func (q *queue) load(perSecond perLevel, for_ time.Duration, work time.Duration) {
	var wg sync.WaitGroup
	for level, n := range perSecond {
		if n == 0 {
			continue
		}
		wg.Go(func() {
			tick := time.NewTicker(time.Second / time.Duration(n))
			defer tick.Stop()
			for end := time.Now().Add(for_); time.Now().Before(end); <-tick.C {
				q.come(engine.Level(level), work)
			}
		})
	}
	wg.Wait()
}

func (q *queue) p99(l engine.Level) time.Duration {
	w := slices.Sorted(slices.Values(q.waits[l]))
	if len(w) == 0 {
		return 0
	}
	return w[len(w)*99/100]
}

func (q *queue) served() (n int) {
	for _, w := range q.waits {
		n += len(w)
	}
	return n
}

var usual = DefaultOverloadConfig().patience()

// Three times of what the permits allow: the least urgent is refused, the next in
// part, questions and payments are neither refused nor delayed, and no permit is
// left unused.
func TestLineRefusesTheLeastUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, long = 100, 30 * time.Second
		q := newQueue(ratelimit.Limit{Rate: rate, Burst: 10}, usual)
		q.load(perLevel{engine.Vital: 10, engine.Query: 50, engine.Event: 90, engine.Marketing: 150}, long, 0)
		q.wg.Wait()
		require.Zero(t, q.refused[engine.Vital]+q.refused[engine.Query])
		require.LessOrEqual(t, q.p99(engine.Vital), 20*time.Millisecond)
		require.LessOrEqual(t, q.p99(engine.Query), 50*time.Millisecond)
		require.LessOrEqual(t, slices.Max(q.waits[engine.Event]), usual[engine.Event])
		require.GreaterOrEqual(t, q.served(), rate*30*97/100, "permits were left unused")
		require.LessOrEqual(t, len(q.waits[engine.Marketing]), 10, "marketing went before events")
		require.GreaterOrEqual(t, len(q.waits[engine.Event]), 35*30)
		require.Less(t, q.late[engine.Event], q.refused[engine.Event]/2, "most are refused at once")
		require.Equal(t, perLevel{}, q.waiting)
	})
}

// When questions alone are too many, the payments among them are not delayed, and
// who is answered has not waited for longer than a question may.
func TestLineOfQuestionsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := usual
		p[engine.Query], p[engine.Event], p[engine.Marketing] = time.Second, time.Second, time.Second
		q := newQueue(ratelimit.Limit{Rate: 100, Burst: 10}, p)
		q.load(perLevel{engine.Vital: 10, engine.Query: 290}, 30*time.Second, 0)
		q.wg.Wait()
		require.Zero(t, q.refused[engine.Vital])
		require.LessOrEqual(t, q.p99(engine.Vital), 20*time.Millisecond)
		require.LessOrEqual(t, slices.Max(q.waits[engine.Query]), time.Second)
		require.GreaterOrEqual(t, q.served(), 100*30*97/100)
	})
}

// A burst that is over within the patience of its level, and a line that is full
// but stands still for less than a second, are no overload.
func TestLineTakesBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(ratelimit.Limit{Rate: 100, Burst: 10}, usual)
		for range 190 {
			q.come(engine.Marketing, 0)
		}
		q.wg.Wait()
		require.Equal(t, perLevel{}, q.refused)
	})
}

// The rate is measured: a back end that slows down is overload at once, and when
// it is quick again nobody is refused any more.
func TestLineFollowsTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(ratelimit.Limit{Concurrency: 20}, usual)
		mix := perLevel{engine.Vital: 2, engine.Query: 10, engine.Event: 10, engine.Marketing: 30}
		q.load(mix, 20*time.Second, 100*time.Millisecond) // takes 200 a second
		require.Equal(t, perLevel{}, q.soFar())
		q.load(mix, 20*time.Second, time.Second) // takes 20 a second
		slow := q.soFar()
		require.Zero(t, slow[engine.Vital]+slow[engine.Query])
		require.Greater(t, slow[engine.Marketing], 450)
		time.Sleep(5 * time.Second) //nolint:forbidigo // fake time: what still waits is worked or leaves
		slow = q.soFar()
		q.load(mix, 20*time.Second, 100*time.Millisecond)
		q.wg.Wait()
		require.Equal(t, slow, q.refused, "it is quick again")
	})
}

// Refusals are spread evenly over the overload: they do not come in waves.
func TestLineDoesNotSwing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(ratelimit.Limit{Rate: 100, Burst: 10}, usual)
		q.load(perLevel{engine.Query: 50, engine.Event: 150}, time.Minute, 0)
		q.wg.Wait()
		perSecond := map[int]int{}
		for _, at := range q.refusedAt {
			perSecond[int(at/time.Second)]++
		}
		for s := 10; s < 60; s++ {
			require.InDelta(t, 100, perSecond[s], 25, "second %d", s)
		}
	})
}

// Whoever would be served too late by its rule leaves in time.
func TestLineEndsWithTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(ratelimit.Limit{Concurrency: 1}, usual)
		release, err := q.Acquire(t.Context(), 0)
		require.NoError(t, err)
		ctx := withTurn(t.Context(), turn{level: engine.Query, expires: time.Now().Add(3 * time.Second)})
		begin := time.Now()
		_, err = q.Acquire(ctx, 0)
		require.ErrorIs(t, err, errExpired)
		require.Equal(t, 3*time.Second, time.Since(begin))
		release()
	})
}

// A crowd of one level does not take the places of those above it, and gets places
// again when it is smaller.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(100)
		for range 60 {
			require.True(t, p.take(engine.Marketing), "a burst is taken")
		}
		time.Sleep(crowdedFor) //nolint:forbidigo // fake time
		require.False(t, p.take(engine.Marketing))
		for range 20 {
			require.True(t, p.take(engine.Event))
		}
		time.Sleep(crowdedFor) //nolint:forbidigo // fake time
		require.False(t, p.take(engine.Event))
		require.True(t, p.take(engine.Query))
		for range 10 {
			require.True(t, p.take(engine.Query))
		}
		time.Sleep(crowdedFor) //nolint:forbidigo // fake time
		require.False(t, p.take(engine.Query))
		for range 9 {
			require.True(t, p.take(engine.Vital))
		}
		for range 50 {
			p.give()
		}
		require.True(t, p.take(engine.Marketing))
	})
}

// Overload is over when nothing has been refused for a while, and not between two
// refusals.
func TestSheddingEnds(t *testing.T) {
	s := &shedding{}
	now := time.Now()
	lasted, _ := s.look(now)
	require.Zero(t, lasted)
	for range 60 {
		s.note(engine.Event, now)
		now = now.Add(time.Second)
	}
	lasted, refused := s.look(now.Add(calm - 2*time.Second))
	require.Equal(t, 59*time.Second, lasted)
	require.Equal(t, perLevel{engine.Event: 60}, refused)
	lasted, _ = s.look(now.Add(calm))
	require.Zero(t, lasted)
	s.note(engine.Query, now.Add(time.Hour))
	lasted, refused = s.look(now.Add(time.Hour))
	require.Zero(t, lasted, "it begins anew")
	require.Equal(t, alarm.Critical, severityOf(refused))
}

// A few long calls hold all permits and give them back together. Who comes in
// between is not refused: nothing says yet that it would wait for too long.
func TestLineOfLongCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(ratelimit.Limit{Concurrency: 200}, usual)
		var wg sync.WaitGroup
		for u := range 240 { // each asks again when it is answered
			wg.Go(func() {
				for range 4 {
					came := time.Now()
					release, err := q.Acquire(withTurn(context.Background(), turn{level: engine.Query}), 0)
					q.note(engine.Query, time.Since(came), err)
					if err == nil {
						time.Sleep(8*time.Second + time.Duration(u%20)*50*time.Millisecond) //nolint:forbidigo // fake time: this is the call
						release()
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, perLevel{}, q.refused)
		require.Len(t, q.waits[engine.Query], 960)
		require.GreaterOrEqual(t, slices.Max(q.waits[engine.Query]), 7*time.Second, "some must have waited for a wave")
	})
}
