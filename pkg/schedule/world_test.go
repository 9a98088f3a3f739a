package schedule_test

import (
	"context"
	"crypto/rand"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/schedule"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// world is a cluster: one database, one Redis, one clock that all nodes ask, and
// the nodes.
type world struct {
	*testing.T
	cfg    sqldb.Config
	db     *sqldb.DB // the test's own
	redis  string
	prefix string
	clock  clock
	traps  chan *trap
}

// clock is moved by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) get() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) shared(ctx context.Context) (time.Time, error) { return c.get(), ctx.Err() }

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// noon is when every test begins.
var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// each runs a test on every database at hand; Redis is the real one where
// TIDEGATE_TEST_REDIS names it.
func each(t *testing.T, fn func(w *world)) {
	t.Run(sqldb.SQLite, func(t *testing.T) { fn(newWorld(t, sqldbtest.SQLiteConfig(t))) })
	if os.Getenv(sqldbtest.PostgresVar) != "" {
		t.Run(sqldb.Postgres, func(t *testing.T) { fn(newWorld(t, sqldbtest.PostgresConfig(t))) })
	}
}

func newWorld(t *testing.T, cfg sqldb.Config) *world {
	w := &world{T: t, traps: make(chan *trap, 1), cfg: cfg, prefix: "test:jobs:" + rand.Text(), redis: os.Getenv("TIDEGATE_TEST_REDIS")}
	w.clock.now = noon
	if w.redis == "" {
		s, err := redismem.Start("")
		require.NoError(t, err)
		t.Cleanup(s.Close)
		w.redis = s.Addr()
	}
	w.db = w.openDB()
	require.NoError(t, schedule.Migrate(t.Context(), w.db))
	t.Cleanup(func() { require.NoError(t, w.db.Close()) })
	_, err := w.db.Exec(t.Context(), "CREATE TABLE effects (job TEXT NOT NULL, slot BIGINT NOT NULL, node TEXT NOT NULL, fence BIGINT NOT NULL)")
	require.NoError(t, err)
	return w
}

func (w *world) openDB() *sqldb.DB {
	db, err := sqldb.Open(context.Background(), w.cfg)
	require.NoError(w, err)
	return db
}

func (w *world) store(db *sqldb.DB) *schedule.Store {
	return schedule.NewStore(db, w.clock.shared)
}

// trap catches one run in the middle of a job, so that something can be done to
// its node.
type trap struct {
	job  string
	in   chan *schedule.Run
	open chan struct{}
}

func (w *world) set(job string) *trap {
	tr := &trap{job: job, in: make(chan *schedule.Run, 1), open: make(chan struct{})}
	w.traps <- tr
	return tr
}

// caught waits for the run.
func (w *world) caught(tr *trap) *schedule.Run {
	w.Helper()
	select {
	case r := <-tr.in:
		return r
	case <-time.After(patience):
		require.Fail(w, "no run went into the trap")
		return nil
	}
}

// pass stands where a job may be caught. It does not end when ctx does: a
// process that stands still does not hear of that either.
func (w *world) pass(r *schedule.Run) {
	select {
	case tr := <-w.traps:
		if tr.job != r.Job {
			w.traps <- tr
			return
		}
		tr.in <- r
		<-tr.open
	default:
	}
}

// node is one process of the cluster.
type node struct {
	*schedule.Scheduler
	name  string
	db    *sqldb.DB
	reg   *prometheus.Registry
	wires *redismem.Proxy // to Redis
	stop  func()          // as a process manager does
	kill  func()          // as kill -9 does: nothing is said any more
}

// job gives the world's jobs to a node; its Do is told the node's name.
type job struct {
	schedule.Job
	do func(ctx context.Context, node string, r *schedule.Run) error
}

const leaseLife = 200 * time.Millisecond

func (w *world) start(name string, skew time.Duration, jobs ...job) *node {
	w.Helper()
	n := &node{name: name, db: w.openDB(), reg: prometheus.NewRegistry()}
	var err error
	n.wires, err = redismem.StartProxy(w.redis)
	require.NoError(w, err)
	rc := redis.DefaultConfig()
	rc.Addrs, rc.Prefix, rc.Timeout = []string{n.wires.Addr()}, w.prefix, 200*time.Millisecond
	client, err := redis.Open(rc, zap.NewNop())
	require.NoError(w, err)
	o := schedule.Options{Config: schedule.DefaultConfig(), Team: "test", Node: name, Store: w.store(n.db), Redis: client, Registry: n.reg,
		Now: func() time.Time { return w.clock.get().Add(skew) }, Poll: 2 * time.Millisecond}
	o.Lease, o.Keep = leaseLife, 100_000
	for _, j := range jobs {
		j.Job.Do = func(ctx context.Context, r *schedule.Run) error { return j.do(ctx, name, r) }
		o.Jobs = append(o.Jobs, j.Job)
	}
	n.Scheduler, err = schedule.New(o)
	require.NoError(w, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	end := sync.OnceFunc(func() {
		cancel()
		require.NoError(w, <-done)
		require.NoError(w, client.Close())
		n.wires.Close()
		_ = n.db.Close() // twice after a kill
	})
	n.stop, n.kill = end, func() {
		n.wires.Close()
		require.NoError(w, n.db.Close())
		end()
	}
	w.Cleanup(end)
	return n
}

// hourly is a job at ten past every hour that nothing is special about.
func hourly(name string, do func(ctx context.Context, node string, r *schedule.Run) error) job {
	s, err := schedule.ParseSpec("10 * * * *", "UTC")
	if err != nil {
		panic(err)
	}
	return job{schedule.Job{Name: name, Spec: s, Timeout: time.Minute, CatchUp: 6 * time.Hour, Retry: schedule.Retry{Most: 20}, Interrupted: schedule.Again}, do}
}

// note makes the effect, beside the row that says it is done.
func note(ctx context.Context, node string, r *schedule.Run) error {
	return r.Complete(ctx, func(ctx context.Context, tx *sqldb.Tx) error { return insert(ctx, tx, node, r) })
}

func insert(ctx context.Context, q sqldb.Querier, node string, r *schedule.Run) error {
	_, err := q.Exec(ctx, "INSERT INTO effects (job, slot, node, fence) VALUES ($1, $2, $3, $4)", r.Job, r.Slot.UnixMilli(), node, r.Fence)
	return err
}

// effects gives the slots of a job's effects, in their order.
func (w *world) effects(job string) []time.Time {
	rows, err := w.db.Query(context.Background(), "SELECT slot FROM effects WHERE job = $1 ORDER BY slot", job)
	require.NoError(w, err)
	defer rows.Close()
	var out []time.Time
	for rows.Next() {
		var ms int64
		require.NoError(w, rows.Scan(&ms))
		out = append(out, time.UnixMilli(ms).UTC())
	}
	require.NoError(w, rows.Err())
	return out
}

// history gives a job's rows, the oldest first.
func (w *world) history(job string) (all []schedule.Record) {
	for before := int64(0); ; before = all[len(all)-1].ID {
		rs, err := w.store(w.db).History(context.Background(), job, before, schedule.MaxRecords)
		require.NoError(w, err)
		if all = append(all, rs...); len(rs) < schedule.MaxRecords {
			slices.Reverse(all)
			return all
		}
	}
}

// states counts the slots of a job's rows.
func (w *world) states(job string) map[schedule.State]int {
	out := map[schedule.State]int{}
	for _, r := range w.history(job) {
		out[r.State] += r.Slots
	}
	return out
}

func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	require.Eventually(w, ok, patience, 2*time.Millisecond, what)
}

// leader waits for one of the nodes to lead and have a plan, and gives it.
func (w *world) leader(nodes ...*node) (n *node) {
	w.Helper()
	w.eventually("one of the nodes leads", func() bool {
		i := slices.IndexFunc(nodes, func(n *node) bool {
			return n.metric(w, "tidegate_job_leading") == 1 && n.metric(w, "tidegate_job_rounds_total", "ok") > 0
		})
		if i >= 0 {
			n = nodes[i]
		}
		return i >= 0
	})
	return n
}

// metric adds up a metric over its labels, or where one of them is as told.
func (n *node) metric(w *world, name string, label ...string) (sum float64) {
	families, err := n.reg.Gather()
	require.NoError(w, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				wanted := len(label) == 0
				for _, l := range m.GetLabel() {
					wanted = wanted || l.GetValue() == label[0]
				}
				if wanted {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}
