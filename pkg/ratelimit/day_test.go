package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
)

const beijing = 8 * time.Hour

// watch is a clock that a test sets.
type watch struct {
	mu sync.Mutex
	at time.Time
}

func (w *watch) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *watch) set(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = at
}

func days(t require.TestingT, db *sqldb.DB, now func() time.Time) *Days {
	d, err := NewDays(context.Background(), db, 4, beijing, now)
	require.NoError(t, err)
	return d
}

// G11 with four nodes and more offered than there is: used up to the last one, and
// not one more; back at midnight in Beijing, which is 16:00 in UTC, and not at ours.
func TestDayQuotaIsUsedUpExactly(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := &watch{at: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)}
		const most, offered, nodes = 5000, 8000, 4
		var qs []*Quota
		for range nodes {
			qs = append(qs, days(t, db, w.now).Quota("shop.template", most, nil))
		}
		offer := func(n int) (taken int, wait time.Duration) {
			var wg sync.WaitGroup
			var mu sync.Mutex
			for i := range nodes {
				wg.Go(func() {
					for range n / nodes {
						s, hold, err := qs[i].Take(t.Context())
						mu.Lock()
						if err == nil && hold == 0 && s.Holds(w.now()) {
							taken++
						}
						wait = max(wait, hold)
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			return taken, wait
		}
		// Who has no more to send gives back what it has in hand.
		settle := func() {
			for range 2 {
				for _, q := range qs {
					require.NoError(t, q.Refresh(t.Context(), time.Hour))
				}
			}
			w.set(w.now().Add(emptyFor))
		}
		first, wait := offer(offered)
		settle()
		more, _ := offer(400)
		first += more
		require.Equal(t, 6*time.Hour+seam, wait, "until it is midnight in Beijing")
		w.set(time.Date(2026, 3, 1, 15, 59, 54, 0, time.UTC))
		before, _ := offer(40)
		w.set(time.Date(2026, 3, 1, 16, 0, 4, 0, time.UTC)) // calls of now may be counted in the old day
		turn, wait := offer(40)
		require.Equal(t, time.Second, wait)
		w.set(time.Date(2026, 3, 1, 16, 0, 5, 0, time.UTC))
		second, _ := offer(offered)
		settle()
		more, _ = offer(400)
		second += more
		w.set(time.Date(2026, 3, 2, 0, 0, 10, 0, time.UTC)) // midnight of UTC is no midnight
		later, _ := offer(40)
		fmt.Fprintf(os.Stdout, "G11 %s  %d nodes, quota %d, offered %d a day\n", db.Dialect(), nodes, most, offered)
		fmt.Fprintf(os.Stdout, "  %-34s %-10s %-10s\n", "bar", "measured", "verdict")
		row := func(bar string, got, want int) {
			verdict := "ok"
			if got != want {
				verdict = "MISSED"
			}
			fmt.Fprintf(os.Stdout, "  %-34s %-10d %-10s\n", bar, got, verdict)
			require.Equal(t, want, got, bar)
		}
		row("first day: exactly 5000", first, most)
		row("nothing more before midnight", before, 0)
		row("nothing within the turn", turn, 0)
		row("second day: exactly 5000", second, most)
		row("nothing at midnight of UTC", later, 0)
	})
}

// What is counted by WeChat in any of its days stays within the quota, wherever
// around midnight calls are taken, however late they arrive within seam, with nodes
// that die with some in hand and calls that are given back; and it is used.
func TestDayQuotaAtTheTurnOfTheDay(t *testing.T) {
	db := sqldbtest.OpenSQLite(t)
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		most := rapid.Int64Range(1, 60).Draw(t, "most")
		w := &watch{at: time.Date(2026, 3, 1, 15, 59, 40, 0, time.UTC)}
		name := fmt.Sprintf("q%d", round)
		open := func() *Quota { return days(t, db, w.now).Quota(name, most, nil) }
		nodes := []*Quota{open(), open(), open()}
		counted, lost := map[int64]int64{}, int64(0)
		arrive := func(at time.Time) { counted[nodes[0].days.dayOf(at)]++ }
		for range rapid.IntRange(20, 150).Draw(t, "steps") {
			w.set(w.at.Add(time.Duration(rapid.IntRange(0, 900).Draw(t, "ms")) * time.Millisecond))
			i := rapid.IntRange(0, 2).Draw(t, "node")
			switch rapid.IntRange(0, 20).Draw(t, "what") {
			case 0: // killed: what it had in hand is gone
				for _, in := range nodes[i].tills {
					lost += in.inHand
				}
				nodes[i] = open()
			case 1:
				require.NoError(t, nodes[i].Close(context.Background()))
				nodes[i] = open()
			default:
				s, wait, err := nodes[i].Take(context.Background())
				require.NoError(t, err)
				if wait > 0 {
					continue
				}
				if rapid.IntRange(0, 5).Draw(t, "unused") == 0 {
					s.Back()
					continue
				}
				w.set(w.at.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "queued")) * time.Millisecond))
				if !s.Holds(w.at) {
					s.Back()
					continue
				}
				arrive(w.at.Add(time.Duration(rapid.IntRange(-4900, 4900).Draw(t, "late")) * time.Millisecond))
			}
		}
		for day, n := range counted {
			if n > most {
				t.Fatalf("day %d: %d counted, quota %d", day, n, most)
			}
		}
		// The rest can still be had, but for what died.
		w.set(time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC))
		fresh, n := open(), int64(0)
		require.NoError(t, errors.Join(nodes[0].Close(context.Background()), nodes[1].Close(context.Background()), nodes[2].Close(context.Background())))
		for {
			if _, wait, err := fresh.Take(context.Background()); wait > 0 || err != nil {
				require.NoError(t, err)
				break
			}
			n++
		}
		if day := fresh.days.dayOf(w.at); n+counted[day] > most {
			t.Fatalf("day %d: %d counted, quota %d", day, n+counted[day], most)
		}
		if n == 0 && counted[fresh.days.dayOf(w.at)]+lost < most/2 {
			t.Fatalf("%d counted and %d lost of %d, and nothing can be had", counted[fresh.days.dayOf(w.at)], lost, most)
		}
	})
}

// The owner of a quota says how large it is and what others have used of it; a cap
// of ours that is lower holds; an owner that does not answer stops nothing.
func TestDayQuotaThatIsAskedFor(t *testing.T) {
	db := sqldbtest.OpenSQLite(t)
	w := &watch{at: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)}
	told, fails, asked := Told{Most: 10, Used: 4}, false, 0
	ask := func(context.Context) (Told, error) {
		asked++
		if fails {
			return Told{}, errors.New("no answer")
		}
		return told, nil
	}
	take := func(q *Quota) (n int) {
		for n < 100 {
			if _, wait, err := q.Take(t.Context()); wait > 0 || err != nil {
				require.NoError(t, err)
				return n
			}
			n++
		}
		return n
	}
	q := days(t, db, w.now).Quota("a", 0, ask)
	require.Equal(t, 6, take(q))
	require.Equal(t, 6, take(days(t, db, w.now).Quota("b", 0, ask)))
	require.Equal(t, 2, asked, "once a day and quota")

	told = Told{Most: 20, Used: 13} // raised, and others have used 3
	require.NoError(t, q.Refresh(t.Context(), 10*time.Minute))
	require.Equal(t, 2, asked, "a node has asked a moment ago")
	w.set(w.at.Add(11 * time.Minute))
	require.NoError(t, q.Refresh(t.Context(), 10*time.Minute))
	require.Equal(t, 7, take(q))
	most, taken := q.Level()
	require.Equal(t, []int64{20, 20}, []int64{most, taken})

	told = Told{Most: 20, Used: 2} // cleared by a person
	w.set(w.at.Add(11 * time.Minute))
	require.NoError(t, q.Refresh(t.Context(), 10*time.Minute))
	require.Equal(t, 17, take(q))
	told = Told{Most: 20, Used: 13}

	require.Equal(t, 3, take(days(t, db, w.now).Quota("c", 16, ask)), "our own cap is lower")
	fails = true
	require.Equal(t, 100, take(days(t, db, w.now).Quota("d", 0, ask)), "nobody can tell: it does not hold anything back")
	require.Equal(t, 5, take(days(t, db, w.now).Quota("e", 5, ask)))

	lowered := days(t, db, w.now).Quota("f", 9, nil)
	_, _, err := lowered.Take(t.Context())
	require.NoError(t, err)
	lowered.SetOwn(3)
	require.LessOrEqual(t, take(lowered), 2)
}

// Callers of one node share what it takes from the database, also when all come at
// once and some give back.
func TestDayQuotaOfManyCallers(t *testing.T) {
	db := sqldbtest.OpenSQLite(t)
	w := &watch{at: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)}
	q := days(t, db, w.now).Quota("many", 300, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 16 {
		wg.Go(func() {
			for range 40 {
				s, wait, err := q.Take(t.Context())
				if err != nil || wait > 0 {
					continue
				}
				if rand.N(4) == 0 {
					s.Back()
					continue
				}
				mu.Lock()
				made++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, made, 300)
	require.GreaterOrEqual(t, made, 291)
}
