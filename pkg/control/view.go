package control

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/sqldb"
)

const (
	// pollEvery is how often a node asks for the version: what an announcement
	// brings at once comes this late without one.
	pollEvery = 500 * time.Millisecond
	// pollTimeout bounds one look, so that a database that hangs is told from one
	// that answers.
	pollTimeout = 1500 * time.Millisecond
	// dialPause is how long a database that cannot be reached is left alone.
	dialPause = 2 * time.Second
)

// Never is the age of a view that has not seen anything yet.
const Never = time.Duration(math.MaxInt64)

// View is what one node knows of the settings. It is safe for concurrent use.
type View struct {
	log  *zap.Logger
	now  func() time.Time
	met  *metrics
	poke chan struct{}

	mu      sync.Mutex
	store   *Store
	state   State
	active  []Row // those of state that have not expired
	seen    time.Time
	away    bool // the last look failed
	watches []func(version int64, rows []Row)
}

func newView(log *zap.Logger, now func() time.Time, met *metrics) *View {
	return &View{log: log, now: now, met: met, poke: make(chan struct{}, 1)}
}

// Age is the time since the settings were last seen to be these, by the
// monotonic clock; Never before the first time.
func (v *View) Age() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.seen.IsZero() {
		return Never
	}
	return v.now().Sub(v.seen)
}

// Rows gives the settings of a kind that are in force, and the version of all
// settings.
func (v *View) Rows(kind string) (version int64, rows []Row) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.active {
		if r.Kind == kind {
			rows = append(rows, r)
		}
	}
	return v.state.Version, rows
}

// Watch has fn called with the settings in force, of every kind, at the first
// look and after each change; the view's version is theirs once all watchers
// have returned. Register before the panel runs; fn must not block.
func (v *View) Watch(fn func(version int64, rows []Row)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watches = append(v.watches, fn)
}

// Look asks for a look as soon as possible.
func (v *View) Look() {
	select {
	case v.poke <- struct{}{}:
	default:
	}
}

// open is the store, or nil while the database could not be opened.
func (v *View) open() *Store {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.store
}

// run looks until ctx ends. dial opens the database; it is called until it
// succeeds.
func (v *View) run(ctx context.Context, dial func(context.Context) (*sqldb.DB, error)) {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	var again time.Time
	for {
		if v.open() == nil && !v.now().Before(again) {
			v.dial(ctx, dial)
			again = v.now().Add(dialPause)
		}
		if s := v.open(); s != nil {
			v.look(ctx, s)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-v.poke:
		}
	}
}

func (v *View) dial(ctx context.Context, dial func(context.Context) (*sqldb.DB, error)) {
	db, err := dial(ctx)
	if err != nil {
		v.failed(ctx, err)
		return
	}
	v.mu.Lock()
	v.store = NewStore(db, v.now)
	v.mu.Unlock()
}

// look asks for the version, and for everything if it is a new one.
func (v *View) look(ctx context.Context, s *Store) {
	bounded, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	asked := v.now()
	version, err := s.Version(bounded)
	if err != nil {
		v.failed(ctx, err)
		return
	}
	v.mu.Lock()
	st, first := v.state, v.seen.IsZero()
	v.mu.Unlock()
	if was := st.Version; first || version != was {
		if st, err = s.State(bounded); err != nil {
			v.failed(ctx, err)
			return
		}
		if st.Version < was { // a backup was put back
			v.log.Warn("the settings went back to an older version, as if a backup had been put back: restart all roles, because limits of a newer version go before; until then none can be changed", zap.Int64("version", st.Version), zap.Int64("was", was))
		}
	}
	v.take(st, first)
	v.mu.Lock()
	was := v.away
	v.seen, v.away = asked, false
	v.mu.Unlock()
	if was {
		v.log.Info("the settings can be read again", zap.Int64("version", st.Version))
	}
}

// take makes a state the view's and tells the watchers what is new. Settings
// expire by this node's clock. Only run's goroutine calls it.
func (v *View) take(st State, first bool) {
	now := v.now()
	var active []Row
	for _, r := range st.Rows {
		if !r.Expired(now) {
			active = append(active, r)
		}
	}
	v.mu.Lock()
	changed := first || st.Version != v.state.Version || !slices.EqualFunc(active, v.active, sameRow)
	watches := v.watches
	v.mu.Unlock()
	if changed {
		for _, fn := range watches {
			fn(st.Version, active)
		}
	}
	v.mu.Lock()
	v.state, v.active = st, active
	v.mu.Unlock()
	v.met.version.Set(float64(st.Version))
}

func sameRow(a, b Row) bool {
	return a.Version == b.Version && a.Kind == b.Kind && a.Subject == b.Subject && string(a.Value) == string(b.Value)
}

// failed counts a look that failed; the first one in a row is told.
func (v *View) failed(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the process ends
	}
	v.met.failures.Inc()
	v.mu.Lock()
	was, known, st := v.away, !v.seen.IsZero(), v.state
	v.away = true
	v.mu.Unlock()
	if known {
		v.take(st, false) // what expires does so without the database
	}
	if !was {
		v.log.Warn("the settings cannot be read from the database; the last known ones stay", zap.Error(err))
	}
}
