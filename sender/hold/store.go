package hold

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
)

//go:embed migrations
var migrations embed.FS

// Row is one letter that waits.
type Row struct {
	ID, IdentityHash string
	// Generation counts how often the letter was put here after a try had begun;
	// of two rows of one letter that of the higher generation is right.
	Generation int
	Due        time.Time
	AcceptedAt int64 // milliseconds, as in the letter
	Account    string
	App        string
	Template   string
	Lane       string
	Reason     string
	// Cause names the order that it waits for, so that it can be woken when the
	// order is over; empty if it waits for a time alone.
	Cause   string
	Key     []byte
	Value   []byte
	Headers []wire.Header
	// OnlyNew leaves a row of the same generation as it is.
	OnlyNew bool

	rev string // of what was read
}

// Filter selects rows; empty fields select all.
type Filter struct {
	Account, App, Template, Lane string
	AcceptedBefore               int64 // milliseconds; 0 is all
}

// Options tune the store. Zero values take the defaults.
type Options struct {
	Config
	Node string           // names this process in the lease
	Now  func() time.Time // nil: the real clock
	Log  *zap.Logger      // nil: none
	// MaxWaiting bounds the letters that wait to be written. Default 10,000.
	MaxWaiting int
}

// Store is the rows. It is safe for concurrent use once Run runs.
type Store struct {
	db    *sqldb.DB
	opt   Options
	boot  string
	seq   atomic.Int64
	queue chan *wish
	met   *metrics
	rows  atomic.Int64 // as last counted, and what was put here since
	until time.Time    // of the lease; only the releaser uses it
	pace  map[string]*ramp
	idle  map[string]time.Time
	poke  chan struct{}

	mu      sync.Mutex
	failing map[string]bool // what did not work when it was last tried
}

// Open brings the tables up to date; Run must run before Put can return.
func Open(ctx context.Context, db *sqldb.DB, opt Options, reg prometheus.Registerer) (*Store, error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = zap.NewNop()
	}
	if opt.MaxWaiting == 0 {
		opt.MaxWaiting = 10_000
	}
	sub, err := fs.Sub(migrations, "migrations")
	if err == nil {
		err = db.Migrate(ctx, "hold", sub)
	}
	if err != nil {
		return nil, fmt.Errorf("open held letters: %w", err)
	}
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("open held letters: %w", err)
	}
	met, err := newMetrics(telemetry.Registerer(reg))
	if err != nil {
		return nil, fmt.Errorf("open held letters: %w", err)
	}
	return &Store{
		db: db, opt: opt, boot: hex.EncodeToString(b[:]), met: met, queue: make(chan *wish, opt.MaxWaiting),
		pace: map[string]*ramp{}, idle: map[string]time.Time{}, poke: make(chan struct{}, 1), failing: map[string]bool{},
	}, nil
}

// HasRoom tells whether further letters may be held. Nodes count on their own,
// so the bound is kept within a few seconds' letters.
func (s *Store) HasRoom() bool { return s.rows.Load() < s.opt.MaxRows }

// Rows is how many letters are held, as this node knows it.
func (s *Store) Rows() int64 { return s.rows.Load() }

// Look asks the releaser to look at the orders soon.
func (s *Store) Look() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

const columns = "id, identity_hash, generation, rev, due_at, accepted_at, account, app, template, lane, reason, cause, letter_key, letter, headers"

// due gives rows of an account whose time has come, the oldest first.
func (s *Store) due(ctx context.Context, account string, now time.Time, limit int) ([]Row, error) {
	return s.read(ctx, "SELECT "+columns+" FROM held WHERE account = $1 AND due_at <= $2 ORDER BY due_at, id LIMIT $3", account, now.UnixMilli(), limit)
}

const matches = `($1 = '' OR account = $1) AND ($2 = '' OR app = $2) AND ($3 = '' OR template = $3) AND ($4 = '' OR lane = $4)
	AND (CAST($5 AS BIGINT) = 0 OR accepted_at < CAST($5 AS BIGINT))`

func (f Filter) args() []any {
	return []any{f.Account, f.App, f.Template, f.Lane, f.AcceptedBefore}
}

// Select gives rows behind another one, in the order of ids; a zero Row is the
// beginning.
func (s *Store) Select(ctx context.Context, f Filter, after Row, limit int) ([]Row, error) {
	return s.read(ctx, "SELECT "+columns+" FROM held WHERE "+matches+" AND (id, identity_hash) > ($6, $7) ORDER BY id, identity_hash LIMIT $8",
		append(f.args(), after.ID, after.IdentityHash, limit)...)
}

// Count counts the rows that a filter selects.
func (s *Store) Count(ctx context.Context, f Filter) (n int64, err error) {
	err = s.db.QueryRow(ctx, "SELECT COUNT(*) FROM held WHERE "+matches, f.args()...).Scan(&n)
	return n, err
}

func (s *Store) read(ctx context.Context, q string, args ...any) ([]Row, error) {
	rows, err := s.db.Query(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err below reports what ended the rows
	var out []Row
	for rows.Next() {
		var r Row
		var due int64
		var headers []byte
		if err := rows.Scan(&r.ID, &r.IdentityHash, &r.Generation, &r.rev, &due, &r.AcceptedAt, &r.Account, &r.App, &r.Template, &r.Lane, &r.Reason, &r.Cause, &r.Key, &r.Value, &headers); err != nil {
			return nil, err
		}
		if r.Headers, err = headersOf(headers); err != nil {
			return nil, fault.New(fault.Internal, "read held letter "+r.ID, "%w", err)
		}
		r.Due = time.UnixMilli(due)
		out = append(out, r)
	}
	return out, rows.Err()
}

// Delete takes rows out that have not been written anew since they were read,
// and gives how many those were.
func (s *Store) Delete(ctx context.Context, rows []Row) (int64, error) {
	if len(rows) == 0 {
		return 0, nil
	}
	q := "DELETE FROM held WHERE (id, identity_hash, rev) IN (VALUES "
	args := make([]any, 0, 3*len(rows))
	for i, r := range rows {
		if i > 0 {
			q += ", "
		}
		n := 3*i + 1
		q += "($" + strconv.Itoa(n) + ", $" + strconv.Itoa(n+1) + ", $" + strconv.Itoa(n+2) + ")"
		args = append(args, r.ID, r.IdentityHash, r.rev)
	}
	n, err := s.db.Exec(ctx, q+")", args...)
	s.rows.Add(-n)
	return n, err
}

// Postpone makes a row due at another time unless it was written anew.
func (s *Store) Postpone(ctx context.Context, r Row, due time.Time) error {
	_, err := s.db.Exec(ctx, "UPDATE held SET due_at = $1, cause = '' WHERE id = $2 AND identity_hash = $3 AND rev = $4", due.UnixMilli(), r.ID, r.IdentityHash, r.rev)
	return err
}

// causes lists the orders that letters wait for, by a walk over the index that
// looks at one entry of each.
func (s *Store) causes(ctx context.Context) (out []string, err error) {
	const most = 20_000 // there are no more orders than that
	for last := ""; len(out) < most; {
		var next *string
		if err := s.db.QueryRow(ctx, "SELECT MIN(cause) FROM held WHERE cause > $1", last).Scan(&next); err != nil || next == nil {
			return out, err
		}
		out, last = append(out, *next), *next
	}
	return out, nil
}

// wakeRows is how many rows one statement wakes: a long pause may have put aside
// more than the database changes within a statement's time.
const wakeRows = 2000

// wake makes letters due that waited for an order which is over, and gives how many.
// If that are wakeRows there may be more.
func (s *Store) wake(ctx context.Context, cause string, now time.Time) (int64, error) {
	return s.db.Exec(ctx, `UPDATE held SET due_at = $1 WHERE (id, identity_hash) IN
		(SELECT id, identity_hash FROM held WHERE cause = $2 AND due_at > $1 LIMIT $3)`, now.UnixMilli(), cause, wakeRows)
}

// Group is one line of the count of what is held.
type Group struct {
	Account   string    `json:"account"`
	Lane      string    `json:"lane"`
	Reason    string    `json:"reason"`
	Cause     string    `json:"cause,omitempty"`
	Rows      int64     `json:"rows"`
	FirstDue  time.Time `json:"first_due"`
	OldestPut time.Time `json:"oldest"`
}

// Groups counts what is held.
func (s *Store) Groups(ctx context.Context) ([]Group, error) {
	rows, err := s.db.Query(ctx, `SELECT account, lane, reason, cause, COUNT(*), MIN(due_at), MIN(held_at) FROM held
		GROUP BY account, lane, reason, cause ORDER BY account, lane, reason, cause LIMIT 10000`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err below reports what ended the rows
	out := []Group{}
	for rows.Next() {
		var g Group
		var due, put int64
		if err := rows.Scan(&g.Account, &g.Lane, &g.Reason, &g.Cause, &g.Rows, &due, &put); err != nil {
			return nil, err
		}
		g.FirstDue, g.OldestPut = time.UnixMilli(due).UTC(), time.UnixMilli(put).UTC()
		out = append(out, g)
	}
	return out, rows.Err()
}
