package hold_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
	"tidegate/sender/hold"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engines runs a test on SQLite, and on PostgreSQL where the environment names
// one; each open is one more process on the same database.
func engines(t *testing.T, test func(t *testing.T, open func() *sqldb.DB)) {
	over := func(config func(testing.TB) sqldb.Config) func(*testing.T) {
		return func(t *testing.T) {
			c := config(t)
			test(t, func() *sqldb.DB {
				db, err := sqldb.Open(t.Context(), c)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, db.Close()) })
				return db
			})
		}
	}
	t.Run(sqldb.SQLite, over(sqldbtest.SQLiteConfig))
	if os.Getenv(sqldbtest.PostgresVar) != "" {
		t.Run(sqldb.Postgres, over(sqldbtest.PostgresConfig))
	}
}

// quick feeds back without a ramp.
func quick() hold.Options {
	c := hold.DefaultConfig()
	c.ReleaseFrom, c.ReleaseTo, c.ReleaseOver = 1e5, 1e5, 0
	return hold.Options{Config: c}
}

// start opens a store and runs its writer until the test ends.
func start(t *testing.T, db *sqldb.DB) *hold.Store {
	t.Helper()
	s, err := hold.Open(t.Context(), db, quick(), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

func row(n int, change ...func(*hold.Row)) hold.Row {
	r := hold.Row{
		ID: fmt.Sprintf("2011%019d", n), Account: "shop", App: "crm", Template: "t1", Lane: wire.LaneBulk, Reason: "paused",
		Due: time.Now().Add(-time.Second), AcceptedAt: 1000, Key: []byte("user"), Value: []byte(`{"id":1}`), Headers: []wire.Header{{Key: "kind", Value: []byte("push")}},
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

// queue stands for Kafka and the room behind it.
type queue struct {
	mu       sync.Mutex
	got      []hold.Row
	fail     int  // so many releases fail
	standing bool // of every order
	settles  int
	on       func(hold.Row)
}

func (q *queue) Accounts() []string   { return []string{"shop"} }
func (q *queue) Counted(int64, int64) {}
func (q *queue) Stands(string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.standing
}

func (q *queue) Settle(context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settles++
	return nil
}

func (q *queue) Release(_ context.Context, r hold.Row) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fail > 0 {
		q.fail--
		return errors.New("no broker")
	}
	q.got = append(q.got, r)
	if q.on != nil {
		q.on(r)
	}
	return nil
}

func (q *queue) ids() (out []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.got {
		out = append(out, r.ID)
	}
	slices.Sort(out)
	return out
}

// feed runs a releaser until the test ends or the function given is called.
func feed(t *testing.T, s *hold.Store, q *queue) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Release(ctx, q) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

func count(t *testing.T, s *hold.Store, f hold.Filter) int64 {
	t.Helper()
	n, err := s.Count(t.Context(), f)
	require.NoError(t, err)
	return n
}

// D8: what is due goes back as it was, what is not stays, and a row is deleted
// only behind the queue's acknowledgement.
func TestWhatIsDueGoesBackOnce(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, open func() *sqldb.DB) {
		s := start(t, open())
		var all sync.WaitGroup
		for n := range 50 {
			all.Go(func() { require.NoError(t, s.Put(context.Background(), row(n))) })
		}
		all.Wait()
		require.NoError(t, s.Put(t.Context(), row(99, func(r *hold.Row) { r.Due = time.Now().Add(time.Hour) })))
		require.EqualValues(t, 51, count(t, s, hold.Filter{}))
		q := &queue{fail: 7, standing: true}
		feed(t, s, q)
		require.Eventually(t, func() bool { return len(q.ids()) >= 50 && count(t, s, hold.Filter{}) == 1 }, 20*time.Second, 5*time.Millisecond)
		require.Len(t, slices.Compact(q.ids()), 50)
		require.Zero(t, q.fail, "the fault must have happened")
		first := q.got[0]
		require.Equal(t, []byte("user"), first.Key)
		require.JSONEq(t, `{"id":1}`, string(first.Value))
		require.Equal(t, []wire.Header{{Key: "kind", Value: []byte("push")}}, first.Headers)
	})
}

// A letter that is put aside again while its row is being fed back is not lost:
// the delete is of the row that was read.
func TestARowWrittenAnewIsNotDeleted(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, open func() *sqldb.DB) {
		s := start(t, open())
		require.NoError(t, s.Put(t.Context(), row(1)))
		q := &queue{standing: true}
		q.on = func(hold.Row) { // its handler is quicker than the delete
			require.NoError(t, s.Put(context.Background(), row(1, func(r *hold.Row) { r.Due, r.Generation = time.Now().Add(time.Hour), 1 })))
		}
		feed(t, s, q)
		require.Eventually(t, func() bool { return len(q.ids()) == 1 && q.settled() > 1 }, 20*time.Second, 5*time.Millisecond)
		require.EqualValues(t, 1, count(t, s, hold.Filter{}))
		require.NoError(t, s.Put(t.Context(), row(1, func(r *hold.Row) { r.Reason = "quota" })))
		rows, err := s.Select(t.Context(), hold.Filter{}, hold.Row{}, 10)
		require.NoError(t, err)
		require.Equal(t, 1, rows[0].Generation, "an older copy of the letter does not take its row back")
		require.Equal(t, "paused", rows[0].Reason)
	})
}

func (q *queue) settled() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.settles
}

// One node feeds back at a time; when it goes another takes over, and nothing is
// left behind.
func TestOneNodeFeedsBackAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, open func() *sqldb.DB) {
		a, b := start(t, open()), start(t, open())
		qa, qb := &queue{standing: true}, &queue{standing: true}
		stop := feed(t, a, qa)
		require.Eventually(t, func() bool { return qa.settled() > 0 }, 20*time.Second, 5*time.Millisecond)
		feed(t, b, qb)
		for n := range 20 {
			require.NoError(t, b.Put(t.Context(), row(n)))
		}
		require.Eventually(t, func() bool { return len(qa.ids()) == 20 }, 20*time.Second, 5*time.Millisecond)
		require.Empty(t, qb.ids())
		require.Zero(t, qb.settled())
		stop()
		require.NoError(t, b.Put(t.Context(), row(30)))
		require.Eventually(t, func() bool { return len(qb.ids()) == 1 }, 20*time.Second, 5*time.Millisecond)
		require.Len(t, qa.ids(), 20)
	})
}

// What waits for an order goes when the order is over, and not before.
func TestAnOrderThatIsOverWakesWhatWaitedForIt(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, open func() *sqldb.DB) {
		s := start(t, open())
		for n := range 5 {
			require.NoError(t, s.Put(t.Context(), row(n, func(r *hold.Row) { r.Due, r.Cause = time.Now().Add(time.Hour), "night" })))
		}
		require.NoError(t, s.Put(t.Context(), row(9, func(r *hold.Row) { r.Due = time.Now().Add(time.Hour) })))
		q := &queue{standing: true}
		feed(t, s, q)
		require.Eventually(t, func() bool { return q.settled() > 1 }, 20*time.Second, 5*time.Millisecond)
		require.Empty(t, q.ids())
		q.mu.Lock()
		q.standing = false
		q.mu.Unlock()
		s.Look()
		require.Eventually(t, func() bool { return len(q.ids()) == 5 && count(t, s, hold.Filter{}) == 1 }, 20*time.Second, 5*time.Millisecond)
	})
}

func TestFiltersSelectByEachCondition(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, open func() *sqldb.DB) {
		s := start(t, open())
		require.NoError(t, s.Put(t.Context(), row(1)))
		require.NoError(t, s.Put(t.Context(), row(2, func(r *hold.Row) { r.Account, r.AcceptedAt = "bank", 1<<42 })))
		require.NoError(t, s.Put(t.Context(), row(3, func(r *hold.Row) { r.App, r.Lane, r.Template = "erp", wire.LaneRealtime, "t2" })))
		for want, f := range map[int64][]hold.Filter{
			3: {{}, {AcceptedBefore: 1<<42 + 1}},
			2: {{Account: "shop"}, {App: "crm"}, {Lane: wire.LaneBulk}, {Template: "t1"}, {AcceptedBefore: 1 << 42}},
			1: {{Account: "bank"}, {App: "erp", Lane: wire.LaneRealtime}, {Template: "t2"}, {Account: "shop", App: "crm", AcceptedBefore: 1001}},
			0: {{Account: "none"}, {Account: "bank", App: "erp"}, {AcceptedBefore: 1000}},
		} {
			for _, one := range f {
				require.Equal(t, want, count(t, s, one), "%+v", one)
			}
		}
		groups, err := s.Groups(t.Context())
		require.NoError(t, err)
		require.Len(t, groups, 3)
	})
}
