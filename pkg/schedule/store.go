package schedule

import (
	"context"
	"embed"
	"io/fs"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

//go:embed migrations
var migrations embed.FS

// State is what became of a slot, or of a run that somebody asked for.
type State string

// The states. Due and Running are open, the others final.
const (
	Due         State = "due"         // waits for its first attempt or the next
	Running     State = "running"     // begun by the leader of its fence
	Done        State = "done"        // succeeded
	Failed      State = "failed"      // given up
	Missed      State = "missed"      // never begun: nobody could in time
	Interrupted State = "interrupted" // begun and not ended, and left for a person
)

// Store is the schedule in SQL. It is safe for concurrent use, over processes.
type Store struct {
	db  *sqldb.DB
	now func(context.Context) (time.Time, error)
}

// room names this package's version table in the database.
const room = "schedule"

func migrationFiles() (fs.FS, error) {
	fsys, err := fs.Sub(migrations, "migrations")
	return fsys, fault.Wrap(fault.Internal, "open migrations of schedule", err)
}

// Migrate makes the tables. It asks first whether anything is to be done, so
// that a user who may not make tables can start once somebody else has.
func Migrate(ctx context.Context, db *sqldb.DB) error {
	if n, err := Pending(ctx, db); err != nil || n == 0 {
		return err
	}
	fsys, err := migrationFiles()
	if err != nil {
		return err
	}
	return db.Migrate(ctx, room, fsys)
}

// Pending tells how many migrations are still to be applied. It changes nothing.
func Pending(ctx context.Context, db *sqldb.DB) (int, error) {
	fsys, err := migrationFiles()
	if err != nil {
		return 0, err
	}
	return db.Pending(ctx, room, fsys)
}

// NewStore opens the schedule; Migrate has made the tables. now is the time that
// all nodes share; nil asks the database.
func NewStore(db *sqldb.DB, now func(context.Context) (time.Time, error)) *Store {
	s := &Store{db: db, now: now}
	if now == nil {
		s.now = s.clock
	}
	return s
}

// clock is the database's. Two nodes never agree on the time; this they do.
func (s *Store) clock(ctx context.Context) (time.Time, error) {
	q := "SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)"
	if s.db.Dialect() == sqldb.Postgres {
		q = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
	}
	var ms int64
	err := s.db.QueryRow(ctx, q).Scan(&ms)
	return time.UnixMilli(ms), err
}

// head is who leads.
type head struct {
	fence int64
	node  string
	since time.Time
}

func headOf(ctx context.Context, q sqldb.Querier, team string) (head, error) {
	var h head
	var since int64
	err := q.QueryRow(ctx, "SELECT fence, node, since FROM job_head WHERE team = $1", team).Scan(&h.fence, &h.node, &since)
	if fault.KindOf(err) == fault.NotFound {
		return head{}, nil
	}
	h.since = timeOf(since)
	return h, err
}

// takeOver makes the node the head and gives its fence, which is larger than
// every one before. It is the lease's, unless that is not larger: then the clock
// of Redis went back, or the caller slept behind its lease's end. renew tells the
// two apart.
func (s *Store) takeOver(ctx context.Context, team, node string, fence int64, renew func(context.Context) error) (int64, error) {
	now, err := s.now(ctx)
	if err != nil {
		return 0, err
	}
	was, err := headOf(ctx, s.db, team)
	if err != nil {
		return 0, err
	}
	if fence <= was.fence {
		if err := renew(ctx); err != nil {
			return 0, err
		}
		fence = was.fence + 1
	}
	err = s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO job_head (team, fence, node, since) VALUES ($1, 0, '', 0) ON CONFLICT (team) DO NOTHING", team); err != nil {
			return err
		}
		n, err := tx.Exec(ctx, "UPDATE job_head SET fence = $1, node = $2, since = $3 WHERE team = $4 AND fence = $5", fence, node, now.UnixMilli(), team, was.fence)
		if err == nil && n != 1 {
			err = overtaken("leader of " + team)
		}
		return err
	})
	return fence, err
}

// term is one leader's time at the head.
type term struct {
	s     *Store
	team  string
	node  string
	fence int64
}

// tx changes something as the leader: the head's row is locked, so that nobody
// takes over before the change is there.
func (t term) tx(ctx context.Context, fn func(ctx context.Context, tx *sqldb.Tx) error) error {
	return t.s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		n, err := tx.Exec(ctx, "UPDATE job_head SET fence = fence WHERE team = $1 AND fence = $2", t.team, t.fence)
		if err != nil {
			return err
		}
		if n != 1 {
			return overtaken("leader of " + t.team)
		}
		return fn(ctx, tx)
	})
}

// millisOf and timeOf keep "never" as 0.
func millisOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
