package suspect

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

const ahead = 100

// engines runs a test on the embedded Redis and on a real one, if there is one.
func engines(t *testing.T, run func(t *testing.T, w *world)) {
	t.Run("embedded", func(t *testing.T) {
		s, err := redismem.Start("")
		require.NoError(t, err)
		t.Cleanup(s.Close)
		run(t, &world{t: t, server: s, redis: open(t, s.Addr())})
	})
	if addr := os.Getenv("TIDEGATE_TEST_REDIS"); addr != "" {
		t.Run("real", func(t *testing.T) { run(t, &world{t: t, redis: open(t, addr)}) })
	}
}

func open(t testing.TB, addr string) *redis.Client {
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Prefix, cfg.Timeout = []string{addr}, fmt.Sprintf("test:suspect:%d", time.Now().UnixNano()), 2*time.Second
	c, err := redis.Open(cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

type world struct {
	t      *testing.T
	redis  *redis.Client
	server *redismem.Server // nil where Redis is a real one
}

// process is a book that has one partition. To let go of it is to die.
func (w *world) process(low int64) *Book {
	b := New(w.redis, ahead, 2, zap.NewNop())
	b.Assigned("group", "topic", 0, low)
	return b
}

func rec(offset int64) kafka.Record { return kafka.Record{Topic: "topic", Offset: offset} }

// begin takes records in hand.
func (w *world) begin(b *Book, offsets ...int64) (hands []*Hand) {
	w.t.Helper()
	for _, o := range offsets {
		h := &Hand{}
		if !b.Try(rec(o), h) {
			require.NoError(w.t, b.Begin(w.t.Context(), rec(o), h))
		}
		hands = append(hands, h)
	}
	return hands
}

func (w *world) condemned(b *Book, offset int64) bool {
	w.t.Helper()
	h := w.begin(b, offset)[0]
	defer b.Done(h)
	return h.Condemned > 0
}

// Three deaths condemn the one that was alone at the last; who returned is
// cleared.
func TestThreeDeaths(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		a := w.process(10)
		hands := w.begin(a, 10, 11, 12)
		a.Done(hands[1])
		b := w.process(10) // a died with 10 and 12
		for _, o := range []int64{10, 11} {
			b.Done(w.begin(b, o)[0])
		}
		suspect := w.begin(b, 12)[0]
		require.False(t, suspect.pass.alone, "one death keeps nobody waiting")
		c := w.process(12) // b died with 12
		require.False(t, w.condemned(c, 13))
		require.True(t, w.begin(c, 12)[0].pass.alone)
		d := w.process(12) // c too
		require.True(t, w.condemned(d, 12))
		require.True(t, w.condemned(d, 12), "also when it comes again")
		require.False(t, w.condemned(d, 13))
		d.Released("topic", 0)
		e := w.process(12)
		require.True(t, w.condemned(e, 12), "and at the next owner, until its offset is committed")
		f := w.process(13)
		require.False(t, w.condemned(f, 13))
		kept, err := f.held[place{"topic", 0}].store.take(t.Context(), 13, 0)
		require.NoError(t, err)
		require.Empty(t, kept.kills)
	})
}

// After an owner who let go in order nothing is written down. The death behind
// it is the first of three all the same.
func TestADeathThatNobodyCounted(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		a := w.process(0)
		a.Done(w.begin(a, 0)[0])
		a.Released("topic", 0)
		b := w.process(ahead) // beyond what a can have begun
		b.Done(w.begin(b, ahead)[0])
		require.True(t, b.Try(rec(ahead+1), &Hand{}), "nothing has to be written down")
		c := w.process(ahead + 1) // b died
		h := w.begin(c, ahead+1)[0]
		require.False(t, h.pass.alone)
		d := w.process(ahead + 1) // c too
		h = w.begin(d, ahead+1)[0]
		require.True(t, h.pass.alone)
		require.True(t, w.condemned(w.process(ahead+1), ahead+1), "and d")
	})
}

// An orderly rebalance in between hides no death.
func TestRebalanceBetweenDeaths(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		orderly := func() {
			b := w.process(5)
			b.Done(w.begin(b, 6)[0])
			b.Released("topic", 0)
		}
		for range 3 {
			orderly()
			w.begin(w.process(5), 5)
		}
		orderly()
		require.True(t, w.condemned(w.process(5), 5))
		b := w.process(5)
		w.begin(b, 7)
		b.Released("topic", 0) // with a handler that hangs
		require.Contains(t, w.past(), int64(7))
	})
}

func (w *world) past() map[int64]int {
	w.t.Helper()
	p, err := store{redis: w.redis, key: redis.Tag("group/topic/0", "suspects"), token: "looks"}.take(w.t.Context(), 0, ahead)
	require.NoError(w.t, err)
	return p.kills
}

// No more suspects occupy workers than there is room for.
func TestRoomForSuspects(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		for range 2 {
			w.begin(w.process(0), 0, 1, 2, 3, 4)
		}
		b := w.process(0)
		others := w.begin(b, 9)[0]
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		results := make(chan error, 5)
		for o := range int64(5) {
			wg.Go(func() { results <- b.Begin(ctx, rec(o), &Hand{}) })
		}
		for range 3 {
			require.ErrorIs(t, <-results, ErrLater)
		}
		cancel()
		wg.Wait()
		for range 2 {
			require.ErrorIs(t, <-results, context.Canceled)
		}
		b.Done(others)
		b.Done(w.begin(b, 0)[0])
	})
}

// Without Redis, or while it is away, the work goes on.
func TestRedisAway(t *testing.T) {
	w := &world{t: t}
	b := w.process(0)
	b.Done(w.begin(b, 0)[0])
	b.Released("topic", 0)

	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	w.redis = open(t, s.Addr())
	s.Fail("LOADING Redis is loading the dataset in memory")
	a := w.process(0)
	h := w.begin(a, 0)[0]
	before := s.Commands()
	w.begin(a, 1, 2, 3)
	require.Equal(t, before, s.Commands(), "it is asked once per assignment")
	a.Done(h)
	s.Fail("")
	c := w.process(0)
	h = w.begin(c, 0)[0]
	s.Fail("LOADING Redis is loading the dataset in memory")
	w.begin(c, 1)
	c.Done(h)
	s.Fail("")
	require.Contains(t, w.past(), int64(0), "what could not be cleared is suspected, and cleared the next time")
}

// TestOnlyKillersAreCondemned plays many lives of a process with many workers
// over two partitions: whatever the schedule, exactly the killers are condemned,
// each after at most three deaths, and everybody else is worked.
func TestOnlyKillersAreCondemned(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		for seed := range uint64(20) {
			w.play(rand.New(rand.NewPCG(seed, 0)), seed)
		}
	})
}

func (w *world) play(dice *rand.Rand, seed uint64) {
	const records, workers = 60, 12
	topic := fmt.Sprintf("topic-%d", seed)
	var killers []kafka.Record
	for range 1 + dice.IntN(2) {
		killers = append(killers, kafka.Record{Topic: topic, Partition: int32(dice.IntN(2)), Offset: dice.Int64N(records)})
	}
	same := func(a, b kafka.Record) bool { return a.Partition == b.Partition && a.Offset == b.Offset }
	kills := func(r kafka.Record) bool {
		return slices.ContainsFunc(killers, func(k kafka.Record) bool { return same(k, r) })
	}
	done := map[int32]map[int64]bool{0: {}, 1: {}}
	low := map[int32]int64{}
	var condemned []kafka.Record
	for lives := 0; ; lives++ {
		require.LessOrEqual(w.t, lives, 3*len(killers), "seed %d: %v killed more often", seed, killers)
		b := New(w.redis, ahead, workers/2, zap.NewNop())
		for p, offset := range low {
			b.Assigned("group", topic, p, offset)
		}
		for p := range int32(2) {
			if _, known := low[p]; !known {
				b.Assigned("group", topic, p, -1)
			}
		}
		ctx, die := context.WithCancel(w.t.Context())
		queue := make(chan kafka.Record, 4*records)
		for o := range int64(records) {
			for p := range int32(2) {
				if o >= low[p] { // what is done and not committed comes again
					queue <- kafka.Record{Topic: topic, Partition: p, Offset: o}
				}
			}
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		left := len(queue)
		for range workers {
			wg.Go(func() {
				for {
					var r kafka.Record
					select {
					case r = <-queue:
					case <-ctx.Done():
						return
					}
					hand := &Hand{}
					if !b.Try(r, hand) {
						err := b.Begin(ctx, r, hand)
						if err != nil && ctx.Err() == nil {
							queue <- r // ErrLater: it is held
							continue
						}
					}
					mu.Lock()
					dead := ctx.Err() != nil
					if !dead && hand.Condemned == 0 && kills(r) {
						die()
						dead = true
					}
					if dead {
						mu.Unlock()
						hand.pass.leave() // frees the timer; nothing is written
						return
					}
					if hand.Condemned > 0 && !done[r.Partition][r.Offset] {
						condemned = append(condemned, r)
					}
					done[r.Partition][r.Offset] = true
					for done[r.Partition][low[r.Partition]] {
						low[r.Partition]++
					}
					left--
					over := left == 0
					mu.Unlock()
					b.Done(hand)
					if over {
						die()
					}
				}
			})
		}
		wg.Wait()
		die()
		if left == 0 {
			break
		}
	}
	slices.SortFunc(killers, compare)
	killers = slices.CompactFunc(killers, same)
	slices.SortFunc(condemned, compare)
	require.Equal(w.t, killers, condemned, "seed %d", seed)
	for p := range int32(2) {
		require.EqualValues(w.t, records, low[p])
	}
}

func compare(a, b kafka.Record) int {
	return int(a.Partition-b.Partition)*1000 + int(a.Offset-b.Offset)
}
