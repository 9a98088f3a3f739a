package control

import (
	"context"
	"embed"
	"io/fs"
	"slices"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

//go:embed migrations
var migrations embed.FS

// room names this package's version table in the database.
const room = "control"

func migrationFiles() (fs.FS, error) {
	fsys, err := fs.Sub(migrations, "migrations")
	return fsys, fault.Wrap(fault.Internal, "open migrations of control", err)
}

// Migrate makes the tables. It asks first whether anything is to be done, so
// that a user who may only read them can start once somebody else has.
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

// Store is the settings in SQL. It is safe for concurrent use, over processes.
type Store struct {
	db  *sqldb.DB
	now func() time.Time
}

// NewStore opens the settings; Migrate has made the tables. now may be nil for
// the real clock.
func NewStore(db *sqldb.DB, now func() time.Time) *Store {
	if now == nil {
		now = time.Now
	}
	return &Store{db: db, now: now}
}

// Apply makes a change and gives its audit entry; the entry's version is the
// row's. Kinds of errors: Invalid; NotFound where there is nothing to take back;
// Conflict, with ErrChanged, if IfVersion is not the row's; Unavailable, nothing
// was done; Ambiguous, it may have been done: look before trying again.
func (s *Store) Apply(ctx context.Context, c Change) (Entry, error) {
	now := s.now().Truncate(time.Millisecond)
	if err := c.check(now); err != nil {
		return Entry{}, err
	}
	e := Entry{At: now, By: c.By, Kind: c.Kind, Subject: c.Subject, New: c.Value, Reason: c.Reason, ExpiresAt: c.ExpiresAt}
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		// The head is locked by changing it, which both engines do alike: changes
		// come one after the other, and nobody sees a version without its rows.
		if _, err := tx.Exec(ctx, "UPDATE control_head SET version = version + 1 WHERE id = 1"); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, "SELECT version, hash FROM control_head WHERE id = 1").Scan(&e.Version, &e.Prev); err != nil {
			return err
		}
		if err := replace(ctx, tx, c, &e); err != nil {
			return err
		}
		return e.write(ctx, tx)
	})
	return e, err
}

// replace changes the row and fills in what it was before.
func replace(ctx context.Context, tx *sqldb.Tx, c Change, e *Entry) error {
	const op = "change setting"
	var version, expires int64
	var old string
	err := tx.QueryRow(ctx, "SELECT version, value, expires_at FROM control WHERE kind = $1 AND subject = $2", c.Kind, c.Subject).Scan(&version, &old, &expires)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return err
	}
	e.Old = rawOrNil(old)
	if (Row{ExpiresAt: timeOf(expires)}).Expired(e.At) {
		version = 0 // nobody sees it any more
	}
	switch {
	case c.IfVersion != nil && *c.IfVersion != version:
		return fault.New(fault.Conflict, op, "%s has version %d and not %d: %w", c.Subject, version, *c.IfVersion, ErrChanged)
	case c.Value == nil && version == 0:
		return fault.New(fault.NotFound, op, "%s is not set: there is nothing to take back", c.Subject)
	}
	if _, err := tx.Exec(ctx, "DELETE FROM control WHERE kind = $1 AND subject = $2", c.Kind, c.Subject); err != nil || c.Value == nil {
		return err
	}
	var n int
	if err := tx.QueryRow(ctx, "SELECT COUNT(*) FROM control").Scan(&n); err != nil {
		return err
	}
	if n >= maxRows {
		return fault.New(fault.Conflict, op, "there are %d settings already: take some back first", n)
	}
	_, err = tx.Exec(ctx, `INSERT INTO control (kind, subject, value, version, changed_by, changed_at, reason, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		c.Kind, c.Subject, string(c.Value), e.Version, c.By, e.At.UnixMilli(), c.Reason, millisOf(c.ExpiresAt))
	return err
}

// State is every setting at one version.
type State struct {
	Version int64
	Hash    string // of the last audit entry
	Rows    []Row  // by kind and subject
}

// Version asks for the version alone: it is what every node asks all the time.
func (s *Store) Version(ctx context.Context) (v int64, err error) {
	err = s.db.QueryRow(ctx, "SELECT version FROM control_head WHERE id = 1").Scan(&v)
	return v, err
}

// State reads every row, over one unchanging picture of the data.
func (s *Store) State(ctx context.Context) (st State, err error) {
	err = s.db.View(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		st = State{}
		if err := tx.QueryRow(ctx, "SELECT version, hash FROM control_head WHERE id = 1").Scan(&st.Version, &st.Hash); err != nil {
			return err
		}
		st.Rows, err = rowsOf(ctx, tx)
		return err
	})
	return st, err
}

func rowsOf(ctx context.Context, q sqldb.Querier) ([]Row, error) {
	rows, err := q.Query(ctx, `SELECT kind, subject, value, version, changed_by, changed_at, reason, expires_at
		FROM control ORDER BY kind, subject LIMIT $1`, maxRows)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Row
	for rows.Next() {
		var r Row
		var value string
		var at, expires int64
		if err := rows.Scan(&r.Kind, &r.Subject, &value, &r.Version, &r.By, &at, &r.Reason, &expires); err != nil {
			return nil, err
		}
		r.Value, r.At, r.ExpiresAt = []byte(value), timeOf(at), timeOf(expires)
		out = append(out, r)
	}
	return slices.Clip(out), rows.Err()
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

func rawOrNil(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}
