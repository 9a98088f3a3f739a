package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

// world is a cluster inside a bubble: nodes, callers and the server's clock live
// in fake time; the server itself is a real one outside, which is reached
// through real connections. Fake time stands still while an answer is under way.
type world struct {
	t   testing.TB
	c   *redis.Client
	cl  *Cluster
	ctx context.Context // ends all callers
	end context.CancelFunc
	wg  sync.WaitGroup

	over    sync.Once
	script  *redis.Script
	patient atomic.Bool

	mu    sync.Mutex
	begin time.Time
	step  time.Duration // how far the server's clock was put
	at    []int64
	now   int // calls under way
	most  int
}

func startRedis(t testing.TB) *redismem.Server {
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func newWorld(t testing.TB, addr string, cfg Config) *world {
	rc := redis.DefaultConfig()
	rc.Addrs, rc.Timeout = []string{addr}, 5*time.Second
	c, err := redis.Open(rc, nil)
	require.NoError(t, err)
	w := &world{t: t, c: c, begin: time.Now()}
	w.ctx, w.end = context.WithCancel(context.Background())
	w.cl, err = NewCluster(cfg, c, nil, nil)
	require.NoError(t, err)
	w.script = askScript
	w.patient.Store(true)
	w.cl.open = func(name string) exchange {
		st := newStore(c, name, cfg.PlaceLife)
		st.clock, st.script = w.clock, w.script
		return func(ctx context.Context, q question) (answer, error) {
			if w.patient.Load() { // an answer takes real time, which is none here
				ctx = context.WithoutCancel(ctx)
			}
			return st.ask(ctx, q)
		}
	}
	return w
}

// clock is the server's.
func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.step)
}

// close ends callers and nodes, in that order.
func (w *world) close() { w.over.Do(w.shut) }

func (w *world) shut() {
	w.end()
	w.wg.Wait()
	assert.NoError(w.t, w.cl.Close(context.Background()))
	_, err := w.c.Del(context.Background(), redis.Tag("permits/x", "cap")) // for the next world on this server
	assert.NoError(w.t, err)
	_, err = w.c.Del(context.Background(), redis.Tag("permits/x", "nodes"))
	assert.NoError(w.t, err)
	assert.NoError(w.t, w.c.Close())
}

// node joins the cap with so many callers, each of whose calls lasts hold.
func (w *world) node(l Limit, callers int, hold time.Duration) *Shared {
	s := w.cl.Permits("x", l)
	for range callers {
		w.wg.Go(func() { w.caller(w.ctx, s, hold) })
	}
	return s
}

func (w *world) caller(ctx context.Context, p Permits, hold time.Duration) {
	for {
		release, err := p.Acquire(ctx, 0)
		if err != nil {
			return
		}
		w.mu.Lock()
		w.at = append(w.at, int64(time.Since(w.begin)))
		w.now++
		w.most = max(w.most, w.now)
		w.mu.Unlock()
		if hold > 0 {
			<-time.After(hold)
		}
		w.mu.Lock()
		w.now--
		w.mu.Unlock()
		release()
	}
}

// live lets so much fake time pass.
func (w *world) live(d time.Duration) { <-time.After(d) }

func (w *world) since() int64 { return int64(time.Since(w.begin)) }

// put moves the server's clock.
func (w *world) put(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step += d
}

// peak is the largest number of calls under way since the last question.
func (w *world) peak() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.most
	w.most = w.now
	return n
}

func (w *world) departures() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := slices.Clone(w.at)
	slices.Sort(at)
	return at
}

// within counts the departures in [from, to).
func within(at []int64, from, to int64) int {
	a, _ := slices.BinarySearch(at, from)
	b, _ := slices.BinarySearch(at, to)
	return b - a
}

// B3.3, B3.6: 1,019 a minute is 1,019 a minute over three nodes, each with its
// part, and no 100 ms hold more than 3.
func TestSharedFractionalRateIsExact(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Addr(), DefaultConfig())
		defer w.close()
		l := Limit{Rate: 1019.0 / 60, Burst: 2}
		var nodes []*Shared
		for range 3 {
			nodes = append(nodes, w.node(l, 5, 0))
		}
		w.live(5 * time.Second)
		from, d := w.since(), int64(20*time.Second)
		w.live(time.Duration(d))
		w.close()
		at := w.departures()
		require.Empty(t, overfull(at, l.Rate, l.Burst))
		require.LessOrEqual(t, count(at, 100*time.Millisecond), 3)
		require.InDelta(t, 1019.0/3, within(at, from, from+d), 1)
		for i, p := range nodes {
			require.InDelta(t, len(at)/3, int(p.Stats().Granted), float64(len(at))/20, "node %d", i)
		}
	})
}

// A burst that is too small to pay for the life of a permit is exact as well.
// Nodes take turns then, which costs little.
func TestSharedWithoutBurst(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	for _, l := range []Limit{{Rate: 200, Burst: 1}, {Rate: 5, Burst: 1}, {Rate: 500, Burst: 4}} {
		t.Run(fmt.Sprint(l.Rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, s.Addr(), DefaultConfig())
				defer w.close()
				a, b := w.node(l, 50, 0), w.node(l, 50, 0)
				w.live(2 * time.Second)
				from := w.since()
				w.live(8 * time.Second)
				w.close()
				at := w.departures()
				require.Empty(t, overfull(at, l.Rate, l.Burst))
				got := float64(within(at, from, from+int64(8*time.Second))) / (8 * l.Rate)
				require.GreaterOrEqual(t, got, 0.93, "of the cap is used")
				require.Positive(t, a.Stats().Granted)
				require.InDelta(t, a.Stats().Granted, b.Stats().Granted, float64(len(at))/4)
			})
		})
	}
}

// T40: a cap begins empty, after the rest and one period; and so it does when the
// data are lost, when the clock of Redis is put back or forward.
func TestSharedBeginsEmpty(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	l := Limit{Rate: 100, Burst: 15}
	for name, loss := range map[string]func(w *world){
		"no data":         func(w *world) { w.loseData() },
		"clock back 10 s": func(w *world) { w.put(-10 * time.Second) },
		"forward by 10 s": func(w *world) { w.put(10 * time.Second) },
		"forward by .6 s": func(w *world) { w.put(600 * time.Millisecond) },
		"back by .3 s":    func(w *world) { w.put(-300 * time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, s.Addr(), DefaultConfig())
				defer w.close()
				first := w.node(l, 20, 0)
				w.live(settle + 9*time.Millisecond)
				require.Empty(t, w.departures(), "nothing before the rest and one period")
				w.node(l, 20, 0)
				w.live(2 * time.Second)
				require.InDelta(t, 200, len(w.departures()), 5)
				loss(w)
				from := w.since()
				w.live(3 * time.Second)
				got := within(w.departures(), from, from+int64(3*time.Second))
				require.InDelta(t, 300-100*settle.Seconds(), got, 35, "it goes on, without waiting for the step to be over")
				require.Equal(t, l, first.Limit())
				w.close()
				require.Empty(t, overfull(w.departures(), l.Rate, l.Burst))
			})
		})
	}
}

func (w *world) loseData() {
	for _, key := range []string{"cap", "nodes"} {
		found, err := w.c.Del(context.Background(), redis.Tag("permits/x", key))
		require.NoError(w.t, err)
		require.True(w.t, found, "there was something to lose")
	}
}

// T41: the process sleeps with 64 waiting and permits in hand. They lapse.
func TestSharedPermitsLapse(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Addr(), DefaultConfig())
		defer w.close()
		l := Limit{Rate: 100, Burst: 15}
		p := w.cl.Permits("x", l)
		var asleep time.Duration
		clock := p.now
		p.mu.Lock()
		p.now = func() int64 { return clock() + int64(asleep) }
		p.mu.Unlock()
		for range 64 {
			w.wg.Go(func() { w.caller(w.ctx, p, 0) })
		}
		w.live(time.Second)
		p.mu.Lock()
		had := len(p.permits)
		asleep = 2 * time.Second // the clock went on, nobody ran
		p.mu.Unlock()
		require.Greater(t, had, 5, "the fault happened with permits in hand")
		before := len(w.departures())
		w.live(2 * time.Millisecond)
		require.LessOrEqual(t, len(w.departures())-before, 1, "none of them is used late")
		w.live(time.Second)
		w.close()
		require.Empty(t, overfull(w.departures(), l.Rate, l.Burst))
	})
}

// The wall clock ran on while the monotonic one stood still: the machine was
// suspended, and permits in hand are old.
func TestSharedPermitsLapseOverASuspend(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Addr(), DefaultConfig())
		defer w.close()
		p := w.node(Limit{Rate: 100, Burst: 15}, 64, 0)
		w.live(time.Second)
		p.mu.Lock()
		defer p.mu.Unlock()
		require.NotEmpty(t, p.permits)
		p.ahead = func() int64 { return int64(time.Hour) }
		p.lapse(p.now())
		require.Empty(t, p.permits)
	})
}

// T39: places are leased over the cluster; all are used and never more, they move
// to where they are needed, and those of a dead node come back after its life.
func TestSharedConcurrency(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Addr(), DefaultConfig())
		defer w.close()
		l := Limit{Concurrency: 7}
		a := w.node(l, 20, 30*time.Millisecond)
		w.live(DefaultConfig().PlaceLife - 100*time.Millisecond)
		require.Zero(t, w.peak(), "nobody knows yet who may hold places")
		w.live(time.Second)
		require.Equal(t, 7, w.peak(), "alone it has all")
		b, c := w.node(l, 20, 30*time.Millisecond), w.node(l, 1, 30*time.Millisecond)
		w.live(time.Second)
		require.Equal(t, 7, w.peak())
		require.LessOrEqual(t, a.Stats().InFlight, 4)
		require.LessOrEqual(t, b.Stats().InFlight, 4)
		require.Positive(t, c.Stats().Granted)

		a.mu.Lock() // it dies: it says nothing more, and its calls are over
		a.exchange = func(ctx context.Context, _ question) (answer, error) {
			<-ctx.Done()
			return answer{}, ctx.Err()
		}
		a.own.Concurrency, a.limit.Concurrency, a.cfg.MaxNodes, a.allow = 1, 1, 8, 0
		a.mu.Unlock()
		w.live(time.Second)
		require.LessOrEqual(t, b.Stats().InFlight, 5, "its places are kept for its life")
		w.live(DefaultConfig().PlaceLife)
		w.peak()
		w.live(time.Second)
		require.Equal(t, 7, w.peak(), "and are used by the others then")
	})
}

// Fewer places than nodes go round.
func TestSharedPlacesGoRound(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Addr(), DefaultConfig())
		defer w.close()
		var nodes []*Shared
		for range 3 {
			nodes = append(nodes, w.node(Limit{Concurrency: 1, Rate: 100, Burst: 10}, 3, 20*time.Millisecond))
		}
		w.live(8 * time.Second)
		require.Equal(t, 1, w.peak())
		for i, n := range nodes {
			require.Greater(t, n.Stats().Granted, uint64(30), "node %d", i)
		}
		require.Greater(t, len(w.departures()), 170, "of 300 calls of 20 ms in 6 s")
	})
}

// The newest version holds, whoever heard of it; among equals the lowest; a late
// old one is ignored. Lower holds on all nodes at once.
func TestSharedLimitsByVersion(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Addr(), DefaultConfig())
		defer w.close()
		old := Limit{Rate: 200, Burst: 20}
		a, b := w.node(old, 40, 0), w.node(old, 40, 0)
		rate := func(of Limit) {
			t.Helper()
			w.live(400 * time.Millisecond) // what was given out before has gone
			from, d := w.since(), 2*time.Second
			w.live(d)
			require.InDelta(t, of.Rate*d.Seconds(), within(w.departures(), from, from+int64(d)), 6)
			w.live(beat) // the idle know as well
			require.Equal(t, of, a.Limit())
			require.Equal(t, of, b.Limit())
		}
		w.live(time.Second)
		rate(old)
		low := Limit{Rate: 20, Burst: 5}
		a.SetLimit(low, Version(2))
		rate(low)
		b.SetLimit(Limit{Rate: 500, Burst: 50}, Version(1))
		rate(low)
		high := Limit{Rate: 300, Burst: 20}
		b.SetLimit(high, Version(3))
		rate(high)
		a.SetLimit(Limit{Rate: 50, Burst: 10}, Version(3)) // one of two equals is slowed
		rate(Limit{Rate: 50, Burst: 10})
		a.Close() // and goes
		w.live(DefaultConfig().PlaceLife)
		from := w.since()
		w.live(time.Second)
		require.InDelta(t, 300, within(w.departures(), from, from+int64(time.Second)), 6)
		b.Close() // nobody is left who knows version 3
		c := w.node(old, 40, 0)
		w.live(3 * time.Second)
		require.Equal(t, high, c.Limit(), "it is not forgotten soon")
		w.live(9 * time.Second)
		require.Equal(t, old, c.Limit(), "but where numbers begin anew it does not hold for ever")
		w.close()
	})
}

// A raised rate climbs in a straight line, in one process and over the cluster.
func TestRamp(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	for _, kind := range []string{"process", "cluster"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, s.Addr(), DefaultConfig())
				defer w.close()
				low, high := Limit{Rate: 20, Burst: 10}, Limit{Rate: 220, Burst: 10}
				var all []Permits
				for range 2 {
					if kind == "cluster" {
						all = append(all, w.node(low, 30, 0))
					}
				}
				if kind == "process" {
					p := New(low)
					defer p.Close()
					for range 30 {
						w.wg.Go(func() { w.caller(w.ctx, p, 0) })
					}
					all = []Permits{p}
				}
				w.live(2 * time.Second)
				from := w.since()
				for _, p := range all {
					p.SetLimit(high, Version(1), Ramp(4*time.Second))
				}
				w.live(6 * time.Second)
				at := w.departures()
				for second, want := range []int{45, 95, 145, 195, 220, 220} {
					got := within(at, from+int64(second)*int64(time.Second), from+int64(second+1)*int64(time.Second))
					require.InDelta(t, want, got, 12, "second %d", second)
				}
				w.end()
				w.wg.Wait()
			})
		})
	}
}

func TestSharedCallersThatGiveUpAndClose(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Addr(), DefaultConfig())
		defer w.close()
		p := w.cl.Permits("x", Limit{Rate: 0.01, Burst: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Acquire(ctx, 0)
		require.Equal(t, fault.Limited, fault.KindOf(err))
		w.wg.Go(func() {
			_, err := p.Acquire(t.Context(), 0)
			assert.Equal(t, fault.Unavailable, fault.KindOf(err))
		})
		synctest.Wait()
		p.Close()
		p.Close()
		w.wg.Wait()
		require.Equal(t, Stats{}, p.Stats())
		release, err := w.cl.Permits("free", Limit{}).Acquire(t.Context(), 0)
		require.NoError(t, err, "no limit needs no Redis")
		release()
	})
}
