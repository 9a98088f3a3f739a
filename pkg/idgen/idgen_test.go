package idgen_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidegate/pkg/idgen"
)

// B2.1: the worked example of the design, to the letter.
func TestThePapersExample(t *testing.T) {
	require.Equal(t, "577", idgen.UID(9527).Digits())
	id, err := idgen.NewGenerator(idgen.Fixed(3), nil).New(t.Context(), 9527)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(id, "1577"), id)
	p, err := idgen.Parse(id)
	require.NoError(t, err)
	require.Equal(t, 57, p.Shard)
	require.Equal(t, 7, p.Table)
	made, ok := p.Time()
	require.True(t, ok)
	require.WithinDuration(t, time.Now(), made, time.Minute)
}

// Golden values: an id must be the same in every release, on every machine.
func TestDerivedIdsAreGolden(t *testing.T) {
	u := idgen.User("wx9f3c7b21d08e4a56", "oZx81wQk2Lr7nVb0TtYpSdUeGhA4")
	h := idgen.HashOf("card", "oZx81wQk2Lr7nVb0TtYpSdUeGhA4", "msg", "23847650019283746")
	require.Equal(t, goldenHash, h.String())
	require.Equal(t, goldenID, idgen.Derive(u, h))
	beside, err := idgen.DeriveBeside(goldenID, idgen.HashOf(goldenID, "0"))
	require.NoError(t, err)
	require.Equal(t, goldenID[1:4], beside[1:4], "a reply lives where its callback lives")
	require.NotEqual(t, goldenID, beside)
}

func TestPartsOfAnIdentityDoNotRunTogether(t *testing.T) {
	require.NotEqual(t, idgen.HashOf("ab", "c"), idgen.HashOf("a", "bc"))
	require.NotEqual(t, idgen.HashOf("a"), idgen.HashOf("a", ""))
}

// P8: routing by id and by user agree for every divisor of 64 (F13).
func TestRouteOfIdIsRouteOfUser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := idgen.UID(rapid.Uint64Range(0, 1<<63-1).Draw(t, "uid"))
		p, err := idgen.Parse(idgen.Derive(u, idgen.HashOf(fmt.Sprint(u))))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 2, 4, 8, 16, 32, 64} {
			if (p.Shard-1)%n != int((uint64(u)/10)%uint64(n)) {
				t.Fatalf("uid %d over %d databases", u, n)
			}
		}
		if p.Table != int(uint64(u)%10) {
			t.Fatal("table")
		}
	})
}

func TestParseRefuses(t *testing.T) {
	for _, bad := range []string{"", "1", strings.Repeat("0", 23), strings.Repeat("1", 22), strings.Repeat("1", 24), "1577" + strings.Repeat("9", 19), "1657" + strings.Repeat("0", 19), "1007" + strings.Repeat("0", 19), "3577" + strings.Repeat("0", 19), "1577000000000000000000x", "１577" + strings.Repeat("0", 17)} {
		_, err := idgen.Parse(bad)
		require.ErrorIs(t, err, idgen.ErrBadID, bad)
	}
}

func TestManyGoroutinesNeverShareAnId(t *testing.T) {
	const workers, each = 4, 20000
	var mu sync.Mutex
	seen := make(map[string]struct{}, workers*each*2)
	var wg sync.WaitGroup
	for w := range 2 {
		g := idgen.NewGenerator(idgen.Fixed(w), nil)
		for range workers {
			wg.Go(func() {
				mine := make([]string, 0, each)
				for range each {
					id, err := g.New(t.Context(), 42)
					if err != nil {
						t.Error(err)
						return
					}
					mine = append(mine, id)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, id := range mine {
					if _, dup := seen[id]; dup {
						t.Errorf("%s twice", id)
					}
					seen[id] = struct{}{}
				}
			})
		}
	}
	wg.Wait()
	require.Len(t, seen, 2*workers*each)
}

// jumpy is a clock that steps back and forth; after a step it goes on as
// time does.
type jumpy struct{ off time.Duration }

func (j *jumpy) now() time.Time { return time.Now().Add(j.off) }

// B2.3: clock steps of −10 s … +10 s give no duplicate, and ids rise.
func TestClockStepsGiveNoDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &jumpy{}
		g := idgen.NewGenerator(idgen.Fixed(1), c.now)
		r := rand.New(rand.NewPCG(1, 2))
		seen := map[string]bool{}
		last, refused := "", 0
		for range 10000 {
			c.off += time.Duration(r.IntN(20000)-10000) * time.Millisecond
			id, err := g.New(t.Context(), 1)
			if errors.Is(err, idgen.ErrClockBack) {
				refused++
				c.off = 12 * time.Second * time.Duration(len(seen)+1) // an operator corrects the clock
				continue
			}
			require.NoError(t, err)
			require.False(t, seen[id])
			require.Greater(t, id, last)
			seen[id], last = true, id
		}
		require.Positive(t, refused, "the test must reach the refusal")
	})
}

type lender struct {
	n     int
	until time.Time
	err   error
	asked int
}

func (l *lender) Number(context.Context) (int, time.Time, error) {
	l.asked++
	return l.n, l.until, l.err
}

func TestNoIdsBeyondTheLeaseOfTheNumber(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := &lender{n: 5, until: now.Add(time.Hour)}
	g := idgen.NewGenerator(l, func() time.Time { return now })
	for range 3 {
		_, err := g.New(t.Context(), 1)
		require.NoError(t, err)
	}
	require.Equal(t, 1, l.asked, "a number in force is not asked for again")
	now = now.Add(time.Hour)
	l.err = errors.New("redis is away")
	_, err := g.New(t.Context(), 1)
	require.ErrorIs(t, err, idgen.ErrNoNumber)
	l.err, l.n, l.until = nil, idgen.Workers, now.Add(time.Hour)
	_, err = g.New(t.Context(), 1)
	require.ErrorIs(t, err, idgen.ErrNoNumber, "a number out of range is never used")
}

func BenchmarkNew(b *testing.B) {
	g := idgen.NewGenerator(idgen.Fixed(1), nil)
	for b.Loop() {
		if _, err := g.New(b.Context(), 9527); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("15770000000000000000000")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := idgen.Parse(s)
		if err == nil && (p.Shard < 1 || p.Shard > 64 || len(s) != idgen.Length) {
			t.Fatal(s)
		}
	})
}
