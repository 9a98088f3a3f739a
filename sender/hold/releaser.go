package hold

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Feed is what the releaser asks of the room.
type Feed interface {
	// Accounts are those that this deployment serves; rows of others stay.
	Accounts() []string
	// Release puts a letter into its lane's topic and returns once it is durable.
	Release(ctx context.Context, r Row) error
	// Stands tells whether an order is still in force; true where that is not
	// known.
	Stands(cause string) bool
	// Settle is called every second by the node that feeds back, so that the room
	// can end held letters that are cancelled.
	Settle(ctx context.Context) error
	// Counted hears how many letters are held.
	Counted(rows, most int64)
}

const (
	tick = 200 * time.Millisecond
	// leaseLife is how long a node that died keeps others from feeding back.
	leaseLife = 5 * time.Second
	// ordersEvery is how often letters are looked for whose order is over.
	ordersEvery = time.Second
	countEvery  = 5 * time.Second
	// emptyRest is how long an account with nothing due is not asked again.
	emptyRest = time.Second
	// portion bounds what is read and fed back for one account at a time.
	portion = 500
	// abreast is how many letters are on their way to the queue at once.
	abreast = 64
)

// Release feeds back what is due until ctx ends. Nothing that is away ends it.
func (s *Store) Release(ctx context.Context, f Feed) {
	t := time.NewTicker(tick)
	defer t.Stop()
	var orders, count time.Time
	for {
		now := s.opt.Now()
		if now.Sub(count) >= countEvery || now.Before(count) {
			s.count(ctx, f, now)
			count = now
		}
		if s.leads(ctx, now) {
			if now.Sub(orders) >= ordersEvery || now.Before(orders) {
				s.follow(ctx, f, now)
				orders = now
			}
			s.feed(ctx, f, now)
		}
		select {
		case <-ctx.Done():
			s.resign(ctx)
			return
		case <-s.poke:
			orders = time.Time{}
		case <-t.C:
		}
	}
}

// leads takes or keeps the lease. Its clock is this node's; one that goes wrong
// makes two feed back, which makes copies, or none for the difference.
func (s *Store) leads(ctx context.Context, now time.Time) bool {
	if left := s.until.Sub(now); left > leaseLife/2 && left <= leaseLife {
		return true
	}
	until := now.Add(leaseLife)
	n, err := s.db.Exec(ctx, "UPDATE held_releaser SET node = $1, until = $2 WHERE id = 1 AND (node = $1 OR until < $3 OR until > $4)",
		s.boot, until.UnixMilli(), now.UnixMilli(), until.Add(time.Minute).UnixMilli())
	s.failed(ctx, "lease", err)
	if err != nil || n == 0 {
		s.until = time.Time{}
		clear(s.pace) // whoever leads next begins with a ramp
		return false
	}
	s.until = until
	return true
}

// resign lets another node lead at once.
func (s *Store) resign(ctx context.Context) {
	if s.until.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = s.db.Exec(ctx, "UPDATE held_releaser SET until = 0 WHERE id = 1 AND node = $1", s.boot) // it lapses by itself
}

// failed counts what did not work; of what fails again and again the first one is
// told.
func (s *Store) failed(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() != nil {
		return // the process ends
	}
	s.mu.Lock()
	was := s.failing[what]
	s.failing[what] = err != nil
	s.mu.Unlock()
	switch {
	case err != nil:
		s.met.failures.WithLabelValues(what).Inc()
		if !was {
			s.opt.Log.Warn("held letters: this does not work and is tried again", zap.String("what", what), zap.Error(err))
		}
	case was:
		s.opt.Log.Info("held letters: this works again", zap.String("what", what))
	}
}

// follow wakes what waited for orders that are over, and lets the room settle
// what is cancelled.
func (s *Store) follow(ctx context.Context, f Feed, now time.Time) {
	causes, err := s.causes(ctx)
	s.failed(ctx, "orders", err)
	for _, c := range causes {
		if f.Stands(c) {
			continue
		}
		n, err := s.wake(ctx, c, now)
		s.failed(ctx, "orders", err)
		if n > 0 {
			clear(s.idle)
		}
	}
	s.failed(ctx, "settle", f.Settle(ctx))
}

func (s *Store) count(ctx context.Context, f Feed, now time.Time) {
	groups, err := s.Groups(ctx)
	s.failed(ctx, "count", err)
	if err != nil {
		return
	}
	var total int64
	first := now
	s.met.held.Reset()
	for _, g := range groups {
		total += g.Rows
		s.met.held.WithLabelValues(g.Account, g.Reason).Add(float64(g.Rows))
		if g.FirstDue.Before(first) {
			first = g.FirstDue
		}
	}
	s.met.overdue.Set(now.Sub(first).Seconds())
	s.rows.Store(total)
	f.Counted(total, s.opt.MaxRows)
}

// feed gives each account what its ramp allows.
func (s *Store) feed(ctx context.Context, f Feed, now time.Time) {
	var first *int64
	err := s.db.QueryRow(ctx, "SELECT MIN(due_at) FROM held").Scan(&first)
	s.failed(ctx, "look", err)
	if err != nil || first == nil || *first > now.UnixMilli() {
		clear(s.idle)
		return
	}
	for _, account := range f.Accounts() {
		if rest := now.Sub(s.idle[account]); rest >= 0 && rest < emptyRest {
			continue
		}
		r := s.pace[account]
		if r == nil {
			r = &ramp{}
			s.pace[account] = r
		}
		n := min(r.grant(s.opt.Config, now), portion)
		if n == 0 {
			continue
		}
		rows, err := s.due(ctx, account, now, n)
		s.failed(ctx, "look", err)
		if err != nil {
			return
		}
		if len(rows) == 0 {
			s.idle[account] = now
		}
		r.took(s.back(ctx, f, rows), now)
	}
}

// back puts rows into the queue and deletes those that it acknowledged. A row
// that is not deleted goes again, as a copy.
func (s *Store) back(ctx context.Context, f Feed, rows []Row) int {
	var mu sync.Mutex
	var acked []Row
	var all sync.WaitGroup
	gate := make(chan struct{}, abreast)
	for _, r := range rows {
		gate <- struct{}{}
		all.Go(func() {
			defer func() { <-gate }()
			err := f.Release(ctx, r)
			s.failed(ctx, "release", err)
			if err != nil {
				return
			}
			s.met.released.WithLabelValues(r.Account).Inc()
			mu.Lock()
			defer mu.Unlock()
			acked = append(acked, r)
		})
	}
	all.Wait()
	_, err := s.Delete(context.WithoutCancel(ctx), acked)
	s.failed(ctx, "delete", err)
	return len(acked)
}
