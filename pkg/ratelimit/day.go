package ratelimit

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

//go:embed migrations
var migrations embed.FS

// A day quota is a number of calls in a day of its owner's zone, over all nodes.
//
// Idea: the row in the database says how many have been handed out. A node takes
// some of them at a time and spends them in memory; near the end of the quota it
// takes them one by one, so that none lies unused at a node while another wants.
// Whatever happens to Redis or to a node, nothing is handed out twice: a node that
// is killed loses what it had in hand, 1/256 of the rest at most.
//
// The turn of the day. Our clock is not that of who counts, and what leaves before
// midnight may arrive after it. So within seam of midnight a call is taken from
// both days.
//
// On failure: database away: an error, and nothing may be sent.

const (
	// seam is longer than a request takes and than clocks differ.
	seam = 5 * time.Second
	// keepDays is how long rows stay, for people.
	keepDays = 30
	// mostInHand bounds what a node takes from the database at once.
	mostInHand = 500
	// unknownFor is how long a quota that nobody can tell is taken for none.
	unknownFor = time.Minute
	daySeconds = 24 * 3600
)

// Ask tells what the owner of a quota counts today; Most is 0 if there is none.
type Ask func(ctx context.Context) (Told, error)

// Told is what the owner of a quota says.
type Told struct{ Most, Used int64 }

// Days are the day quotas that nodes share through a database.
type Days struct {
	db    *sqldb.DB
	nodes int
	zone  time.Duration // its day begins at midnight of UTC + zone
	now   func() time.Time
}

// NewDays opens the tables. zone is where the days begin: 8 h for UTC+8.
func NewDays(ctx context.Context, db *sqldb.DB, nodes int, zone time.Duration, now func() time.Time) (*Days, error) {
	if nodes < 1 || zone < -14*time.Hour || zone > 14*time.Hour {
		return nil, fault.New(fault.Internal, "new day quotas", "%d nodes and a zone of %v: use at least one node and -14h to 14h", nodes, zone)
	}
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("open day quotas: %w", err)
	}
	if err := db.Migrate(ctx, "ratelimit", sub); err != nil {
		return nil, fmt.Errorf("open day quotas: %w", err)
	}
	if now == nil {
		now = time.Now
	}
	return &Days{db: db, nodes: nodes, zone: zone, now: now}, nil
}

// Quota is one day quota, as this node sees it. It is safe for concurrent use.
type Quota struct {
	days *Days
	name string
	ask  Ask

	turn chan struct{} // of one: who holds it may talk to the database

	mu      sync.Mutex
	own     int64 // our own cap; 0 is none
	changed bool  // own has changed and the rows do not know
	tills   map[int64]*till
}

// till is what this node holds of one day.
type till struct {
	inHand  int64
	used    bool      // since the last Refresh
	most    int64     // of the row, when it was seen last
	taken   int64     // by all nodes
	free    time.Time // until then no quota is known
	emptyTo time.Time // until then it is not looked again
}

// Quota joins the quota called name. own caps it, if it is not 0; ask, if it is not
// nil, tells what its owner counts, and the lower of the two holds.
func (d *Days) Quota(name string, own int64, ask Ask) *Quota {
	return &Quota{days: d, name: name, own: max(own, 0), ask: ask, turn: make(chan struct{}, 1), tills: map[int64]*till{}}
}

// Slip is one call taken from a day, or from two. The zero Slip is of no quota.
type Slip struct {
	quota *Quota
	days  []int64
}

// dayOf numbers the days of the zone.
func (d *Days) dayOf(at time.Time) int64 {
	s := at.Unix() + int64(d.zone/time.Second)
	return (s - ((s%daySeconds)+daySeconds)%daySeconds) / daySeconds
}

// daysOf gives the days that a call at that moment may be counted in.
func (d *Days) daysOf(at time.Time) []int64 {
	from, to := d.dayOf(at.Add(-seam)), d.dayOf(at.Add(seam))
	if from == to {
		return []int64{from}
	}
	return []int64{from, to}
}

// opens is when calls are no longer counted in a day or one before it.
func (d *Days) opens(after int64) time.Time {
	return time.Unix((after+1)*daySeconds-int64(d.zone/time.Second), 0).Add(seam)
}

// Take takes one call of now. wait is 0 if it may be made; otherwise when the
// quota comes back. Errors are those of the database: the call may not be made.
func (q *Quota) Take(ctx context.Context) (s Slip, wait time.Duration, err error) {
	if q == nil {
		return Slip{}, 0, nil
	}
	now := q.days.now()
	s.quota = q
	for _, day := range q.days.daysOf(now) {
		ok, err := q.takeOf(ctx, day, now)
		if err != nil || !ok {
			s.Back()
			return Slip{}, max(q.days.opens(day).Sub(now), time.Millisecond), err
		}
		s.days = append(s.days, day)
	}
	return s, 0, nil
}

// Holds reports that a call which leaves now is one of the slip's days.
func (s Slip) Holds(now time.Time) bool {
	if s.quota == nil {
		return true
	}
	for _, day := range s.quota.days.daysOf(now) {
		found := false
		for _, have := range s.days {
			found = found || have == day
		}
		if !found {
			return false
		}
	}
	return true
}

// Back gives a call back that was not made.
func (s Slip) Back() {
	if s.quota == nil {
		return
	}
	s.quota.mu.Lock()
	defer s.quota.mu.Unlock()
	for _, day := range s.days {
		if t := s.quota.tills[day]; t != nil && t.most > 0 {
			t.inHand++
			t.emptyTo = time.Time{}
		}
	}
}

// takeOf takes one call of a day: from what is in hand, or with more from the
// database.
func (q *Quota) takeOf(ctx context.Context, day int64, now time.Time) (bool, error) {
	for range 3 {
		if ok, sure := q.fromHand(day, now); sure {
			return ok, nil
		}
		if err := q.more(ctx, day, now); err != nil {
			return false, fault.Wrap(fault.Unavailable, "take from the day quota "+q.name, err)
		}
	}
	return q.last(day), nil
}

// emptyFor is how long a day that was found used up is not looked at again: a
// node may give something back, or the owner may raise it.
const emptyFor = time.Second

func (q *Quota) fromHand(day int64, now time.Time) (ok, sure bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tills[day]
	switch {
	case t == nil || q.changed:
		return false, false
	case t.inHand > 0:
		t.inHand--
		t.used = true
		return true, true
	case now.Before(t.free):
		return true, true
	case now.Before(t.emptyTo):
		return false, true
	}
	return false, false
}

// last is a try after others have been quicker each time.
func (q *Quota) last(day int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tills[day]
	if t == nil || t.inHand == 0 {
		return false
	}
	t.inHand--
	return true
}

// SetOwn changes our own cap of the quota; 0 is none.
func (q *Quota) SetOwn(n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n = max(n, 0); n != q.own {
		q.own, q.changed = n, true
	}
}

// Level is what is known of today: the quota, and what all nodes have taken; 0 and
// 0 if there is none, or nobody has asked yet.
func (q *Quota) Level() (most, taken int64) {
	if q == nil {
		return 0, 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.tills[q.days.dayOf(q.days.now())]; t != nil {
		return t.most, t.taken
	}
	return 0, 0
}
