package intent

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

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/telemetry"
)

//go:embed migrations
var migrations embed.FS

// Key names a message. Two messages whose ids are equal and whose hashes
// differ are different messages (D3); the hash is empty for generated ids.
type Key struct{ ID, IdentityHash string }

// Past is what is known about earlier tries of a message.
type Past struct {
	// Fresh is true when nobody has tried before.
	Fresh bool
	// FirstTryAt is when the first try was about to be made, with
	// millisecond precision; for a fresh message that is now.
	FirstTryAt time.Time
	// News is what Finish wrote: the message has ended. Empty if it has not, or
	// if nobody lived to write it.
	News string
}

// Options tune the store. Zero values take the defaults.
type Options struct {
	// Node is written beside each row, for people. Default "sender".
	Node string
	// Keep is how long rows stay. Default 72 h; it must be longer than a
	// letter can come back, which is the retention of the topics in practice.
	Keep time.Duration
	// MaxBatch bounds one INSERT. Default 200 rows.
	MaxBatch int
	// MaxWaiting bounds the callers that wait; further ones get
	// fault.Limited. Default 10,000.
	MaxWaiting int
	// Now is the clock; nil means the real one.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.Node == "" {
		o.Node = "sender"
	}
	if o.Keep == 0 {
		o.Keep = 72 * time.Hour
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = 200
	}
	if o.MaxWaiting == 0 {
		o.MaxWaiting = 10_000
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Store writes intents. It is safe for concurrent use once Run runs.
type Store struct {
	db    *sqldb.DB
	opt   Options
	boot  string // tells this process's marks from those of others
	seq   atomic.Int64
	queue chan *wish
	met   *metrics
	memo  memo
}

// wish is one caller that waits for its row: of an intent, or, with news, of
// an outcome.
type wish struct {
	key    Key
	mark   string
	news   string
	at     time.Time
	answer chan answer // of capacity one: the writer never waits for a caller
}

type answer struct {
	past Past
	err  error
}

// Open brings the table up to date and prepares the store; Run must run
// before Begin can return.
func Open(ctx context.Context, db *sqldb.DB, opt Options, reg prometheus.Registerer) (*Store, error) {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("open intent store: %w", err)
	}
	if err := db.Migrate(ctx, "intent", sub); err != nil {
		return nil, fmt.Errorf("open intent store: %w", err)
	}
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("open intent store: %w", err)
	}
	opt = opt.withDefaults()
	met, err := newMetrics(telemetry.Registerer(reg))
	if err != nil {
		return nil, fmt.Errorf("open intent store: %w", err)
	}
	return &Store{
		db: db, opt: opt, boot: hex.EncodeToString(b[:]), met: met,
		queue: make(chan *wish, opt.MaxWaiting),
		memo:  memo{max: opt.MaxWaiting, marks: map[Key]string{}},
	}, nil
}

// Begin makes sure that the message's row exists and tells its past. It
// returns after the row is durable. Errors: fault.Unavailable (database away
// or ctx ended: do not send), fault.Limited (too many wait).
func (s *Store) Begin(ctx context.Context, k Key) (Past, error) {
	if k.ID == "" {
		return Past{}, fault.New(fault.Internal, "begin intent", "no message id")
	}
	mark, known := s.memo.get(k)
	if !known {
		mark = s.boot + "-" + strconv.FormatInt(s.seq.Add(1), 36)
	}
	past, err := s.ask(ctx, &wish{key: k, mark: mark, at: s.opt.Now(), answer: make(chan answer, 1)})
	if err != nil {
		// Also when this call wrote nothing for sure: an earlier one may have.
		s.memo.keep(k, mark)
		return Past{}, err
	}
	s.memo.drop(k)
	return past, nil
}

// Finish makes a message's outcome durable; Begin gives it to whoever meets
// the letter again. The first news stay. Errors are those of Begin; after one
// the news may be there, and writing the same again is harmless.
func (s *Store) Finish(ctx context.Context, k Key, news string) error {
	if k.ID == "" || news == "" {
		return fault.New(fault.Internal, "finish intent", "no message id or no news")
	}
	_, err := s.ask(ctx, &wish{key: k, news: news, at: s.opt.Now(), answer: make(chan answer, 1)})
	return err
}

// Begun tells whether a message's row is there, without making it.
func (s *Store) Begun(ctx context.Context, k Key) (bool, error) {
	var n int
	err := s.db.QueryRow(ctx, "SELECT COUNT(*) FROM intent WHERE id = $1 AND identity_hash = $2", k.ID, k.IdentityHash).Scan(&n)
	return n > 0, fault.Wrap(fault.Unavailable, "look for intent "+k.ID, err)
}

func (s *Store) ask(ctx context.Context, w *wish) (Past, error) {
	op := "write intent " + w.key.ID
	select {
	case s.queue <- w:
	case <-ctx.Done():
		return Past{}, fault.Wrap(fault.Unavailable, op, ctx.Err())
	default:
		return Past{}, fault.New(fault.Limited, op, "%d letters already wait for the database", s.opt.MaxWaiting).WithRetryAfter(time.Second)
	}
	select {
	case a := <-w.answer:
		return a.past, fault.Wrap(fault.Unavailable, op, a.err)
	case <-ctx.Done():
		return Past{}, fault.Wrap(fault.Unavailable, op, ctx.Err())
	}
}

// Waiting is how many callers wait for their turn at the writer.
func (s *Store) Waiting() int { return len(s.queue) }

// memo holds the marks of rows that may have been written for callers that
// were then told to come again. Beyond its bound it forgets one for each new
// one, which only makes a past look ambiguous that is not.
type memo struct {
	mu    sync.Mutex
	max   int
	marks map[Key]string
}

func (m *memo) get(k Key) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.marks[k]
	return v, ok
}

func (m *memo) keep(k Key, mark string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.marks[k]; !known && len(m.marks) >= m.max {
		for old := range m.marks { // any: letters that went to another process never ask again
			delete(m.marks, old)
			break
		}
	}
	m.marks[k] = mark
}

func (m *memo) drop(k Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.marks, k)
}
