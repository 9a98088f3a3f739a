package intent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/sender/intent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engines runs a test on SQLite, and on PostgreSQL where the environment names
// one; each open is one more process on the same database.
func engines(t *testing.T, test func(t *testing.T, open func(t *testing.T) *sqldb.DB)) {
	over := func(config func(testing.TB) sqldb.Config) func(*testing.T) {
		return func(t *testing.T) {
			c := config(t)
			test(t, func(t *testing.T) *sqldb.DB { return open(t, c) })
		}
	}
	t.Run(sqldb.SQLite, over(sqldbtest.SQLiteConfig))
	if os.Getenv(sqldbtest.PostgresVar) != "" {
		t.Run(sqldb.Postgres, over(sqldbtest.PostgresConfig))
	}
}

func open(t *testing.T, c sqldb.Config) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// start opens a store and runs its writer until the test ends.
func start(t *testing.T, db *sqldb.DB, opt intent.Options) *intent.Store {
	t.Helper()
	s, err := intent.Open(t.Context(), db, opt, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

func id(n int) string { return fmt.Sprintf("2011%019d", n) }

func TestFirstIsFreshAndEveryOtherKnowsWhen(t *testing.T) {
	engines(t, func(t *testing.T, open func(*testing.T) *sqldb.DB) {
		begun := time.UnixMilli(1_790_000_000_123)
		a := start(t, open(t), intent.Options{Node: "a", Now: func() time.Time { return begun }})
		b := start(t, open(t), intent.Options{Node: "b", Now: func() time.Time { return begun.Add(time.Hour) }})

		p, err := a.Begin(t.Context(), intent.Key{ID: id(1), IdentityHash: "x"})
		require.NoError(t, err)
		require.Equal(t, intent.Past{Fresh: true, FirstTryAt: begun}, p)
		for _, s := range []*intent.Store{a, b} {
			p, err = s.Begin(t.Context(), intent.Key{ID: id(1), IdentityHash: "x"})
			require.NoError(t, err)
			require.False(t, p.Fresh)
			require.True(t, p.FirstTryAt.Equal(begun), "%s", p.FirstTryAt)
		}
		p, err = b.Begin(t.Context(), intent.Key{ID: id(1), IdentityHash: "another identity with the same id"})
		require.NoError(t, err)
		require.True(t, p.Fresh, "D3: equal ids with different hashes are different messages")
	})
}

// Four stores share a database; many callers begin the same letters in
// different orders. Exactly one may find each letter fresh.
func TestOneFreshOverAllNodes(t *testing.T) {
	engines(t, func(t *testing.T, open func(*testing.T) *sqldb.DB) {
		const letters, nodes = 150, 4
		var mu sync.Mutex
		fresh := map[string]int{}
		var wg sync.WaitGroup
		for n := range nodes {
			s := start(t, open(t), intent.Options{MaxBatch: 32})
			for i := range letters {
				wg.Go(func() {
					k := intent.Key{ID: id((i*7 + n*31) % letters)}
					p, err := s.Begin(t.Context(), k)
					if err != nil {
						t.Errorf("begin %s: %v", k.ID, err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					if p.Fresh {
						fresh[k.ID]++
					} else {
						fresh[k.ID] += 0
					}
				})
			}
		}
		wg.Wait()
		require.Len(t, fresh, letters)
		for k, n := range fresh {
			require.Equal(t, 1, n, "letter %s was fresh %d times", k, n)
		}
	})
}

func TestSameLetterTwiceInOneBatch(t *testing.T) {
	engines(t, func(t *testing.T, open func(*testing.T) *sqldb.DB) {
		s, err := intent.Open(t.Context(), open(t), intent.Options{}, nil)
		require.NoError(t, err)
		var wg sync.WaitGroup
		var mu sync.Mutex
		fresh := 0
		for range 8 {
			wg.Go(func() {
				p, err := s.Begin(t.Context(), intent.Key{ID: id(5)})
				if err != nil {
					t.Errorf("begin: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if p.Fresh {
					fresh++
				}
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Run(ctx) }()
		wg.Wait()
		cancel()
		<-done
		require.Equal(t, 1, fresh)
	})
}

// A caller that gave up while its row was being written comes again: nobody
// sent anything, so the message is still fresh for this process, and not for
// another one.
func TestOwnUnansweredRowIsRecognised(t *testing.T) {
	engines(t, func(t *testing.T, open func(*testing.T) *sqldb.DB) {
		s, err := intent.Open(t.Context(), open(t), intent.Options{}, nil)
		require.NoError(t, err)
		given, giveUp := context.WithCancel(t.Context())
		asked := make(chan error, 1)
		go func() {
			_, err := s.Begin(given, intent.Key{ID: id(9)})
			asked <- err
		}()
		require.Eventually(t, func() bool { return s.Waiting() == 1 }, 5*time.Second, time.Millisecond)
		giveUp()
		require.Equal(t, fault.Unavailable, fault.KindOf(<-asked))

		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Run(ctx) }()
		defer func() { cancel(); <-done }()
		_, err = s.Begin(t.Context(), intent.Key{ID: id(10)}) // behind the abandoned one in the queue
		require.NoError(t, err)

		p, err := s.Begin(t.Context(), intent.Key{ID: id(9)})
		require.NoError(t, err)
		require.True(t, p.Fresh)
		other := start(t, open(t), intent.Options{})
		p, err = other.Begin(t.Context(), intent.Key{ID: id(9)})
		require.NoError(t, err)
		require.False(t, p.Fresh)
		p, err = s.Begin(t.Context(), intent.Key{ID: id(9)})
		require.NoError(t, err)
		require.False(t, p.Fresh, "once answered, a second coming is an ambiguous past")
	})
}

// A letter that ended and comes back, because its offset was not committed, is
// recognised on every node.
func TestOutcomesAreRemembered(t *testing.T) {
	engines(t, func(t *testing.T, open func(*testing.T) *sqldb.DB) {
		a, b := start(t, open(t), intent.Options{}), start(t, open(t), intent.Options{})
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				k := intent.Key{ID: id(i)}
				p, err := a.Begin(t.Context(), k)
				if err != nil || !p.Fresh || p.News != "" {
					t.Errorf("begin: %+v %v", p, err)
				}
				if i%2 == 1 {
					return
				}
				for range 2 { // the second changes nothing
					if err := a.Finish(t.Context(), k, fmt.Sprintf(`{"n":%d}`, i)); err != nil {
						t.Errorf("finish: %v", err)
					}
				}
				if err := b.Finish(t.Context(), k, "other news"); err != nil {
					t.Errorf("finish: %v", err)
				}
			})
		}
		wg.Wait()
		for i := range 100 {
			p, err := b.Begin(t.Context(), intent.Key{ID: id(i)})
			require.NoError(t, err)
			require.False(t, p.Fresh)
			if i%2 == 0 {
				require.Equal(t, fmt.Sprintf(`{"n":%d}`, i), p.News)
			} else {
				require.Empty(t, p.News)
			}
		}
	})
}

// A caller whose row may be there is once refused for want of room: that
// refusal wrote nothing, and must not make it forget the row either.
func TestRefusedForWantOfRoomIsStillFresh(t *testing.T) {
	db := open(t, sqldb.Config{Driver: sqldb.SQLite, DSN: filepath.Join(t.TempDir(), "x.db")})
	s, err := intent.Open(t.Context(), db, intent.Options{MaxWaiting: 1}, nil)
	require.NoError(t, err)
	given, giveUp := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := s.Begin(given, intent.Key{ID: id(1)})
		gone <- err
	}()
	require.Eventually(t, func() bool { return s.Waiting() == 1 }, 5*time.Second, time.Millisecond)
	giveUp()
	require.Equal(t, fault.Unavailable, fault.KindOf(<-gone))
	_, err = s.Begin(t.Context(), intent.Key{ID: id(1)})
	require.Equal(t, fault.Limited, fault.KindOf(err), "the first still waits in the queue")

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	defer func() { cancel(); <-done }()
	require.Eventually(t, func() bool { return s.Waiting() == 0 }, 5*time.Second, time.Millisecond)
	p, err := s.Begin(t.Context(), intent.Key{ID: id(1)})
	require.NoError(t, err)
	require.True(t, p.Fresh, "nobody has sent anything")
}

func TestDatabaseAwayMeansNoSend(t *testing.T) {
	db, err := sqldb.Open(t.Context(), sqldb.Config{Driver: sqldb.SQLite, DSN: filepath.Join(t.TempDir(), "x.db")})
	require.NoError(t, err)
	s := start(t, db, intent.Options{})
	_, err = s.Begin(t.Context(), intent.Key{ID: id(1)})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	_, err = s.Begin(t.Context(), intent.Key{ID: id(2)})
	require.Equal(t, fault.Unavailable, fault.KindOf(err), "%v", err)
}

func TestCallersAreBoundedAndToldWhenTheWriterEnds(t *testing.T) {
	db := open(t, sqldb.Config{Driver: sqldb.SQLite, DSN: filepath.Join(t.TempDir(), "x.db")})
	s, err := intent.Open(t.Context(), db, intent.Options{MaxWaiting: 1}, nil)
	require.NoError(t, err)
	waiting := make(chan error, 1)
	go func() {
		_, err := s.Begin(t.Context(), intent.Key{ID: id(1)})
		waiting <- err
	}()
	require.Eventually(t, func() bool { return s.Waiting() == 1 }, 5*time.Second, time.Millisecond)
	_, err = s.Begin(t.Context(), intent.Key{ID: id(2)})
	require.Equal(t, fault.Limited, fault.KindOf(err))
	require.Equal(t, time.Second, fault.RetryAfter(err))

	ended, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, s.Run(ended))
	select {
	case err := <-waiting:
		// Run's select may have taken the wish into a last batch first.
		if err != nil {
			require.Equal(t, fault.Unavailable, fault.KindOf(err))
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a caller was left waiting")
	}
}

func TestPurgeDeletesWholeDaysOnly(t *testing.T) {
	engines(t, func(t *testing.T, open func(*testing.T) *sqldb.DB) {
		now := time.Date(2026, 11, 10, 12, 0, 0, 0, time.UTC)
		var mu sync.Mutex
		clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
		s := start(t, open(t), intent.Options{Now: clock})
		for d := range 6 {
			mu.Lock()
			now = time.Date(2026, 11, 5+d, 12, 0, 0, 0, time.UTC)
			mu.Unlock()
			_, err := s.Begin(t.Context(), intent.Key{ID: id(d)})
			require.NoError(t, err)
		}
		n, err := s.Purge(t.Context()) // on the 10th: the 5th and 6th are older than 72 h in full days
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		p, err := s.Begin(t.Context(), intent.Key{ID: id(2)})
		require.NoError(t, err)
		require.False(t, p.Fresh)
	})
}

func TestEmptyIDIsOurBug(t *testing.T) {
	db := open(t, sqldb.Config{Driver: sqldb.SQLite, DSN: filepath.Join(t.TempDir(), "x.db")})
	s, err := intent.Open(t.Context(), db, intent.Options{}, nil)
	require.NoError(t, err)
	_, err = s.Begin(t.Context(), intent.Key{})
	require.Equal(t, fault.Internal, fault.KindOf(err))
	require.ErrorContains(t, err, "no message id")
}
