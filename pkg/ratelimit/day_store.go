package ratelimit

import (
	"context"
	"errors"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

// more fetches some of a day from the database. One caller at a time does; the
// others find what it brought.
func (q *Quota) more(ctx context.Context, day int64, now time.Time) error {
	select {
	case q.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-q.turn }()
	if _, sure := q.peek(day, now); sure {
		return nil
	}
	own, changed := q.ownCap()
	lease, err := q.lease(ctx, day, own, changed)
	if fault.KindOf(err) == fault.NotFound {
		var told Told
		told, err = q.begin(ctx, day, own, now)
		if err == nil && told.Most == 0 {
			q.keep(day, till{free: now.Add(unknownFor)}, own)
			return nil
		}
		if err == nil {
			lease, err = q.lease(ctx, day, own, false)
		}
	}
	if err != nil {
		return err
	}
	if lease.inHand == 0 {
		lease.emptyTo = now.Add(emptyFor)
	}
	q.keep(day, lease, own)
	return nil
}

// peek is fromHand without taking.
func (q *Quota) peek(day int64, now time.Time) (ok, sure bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tills[day]
	if t == nil || q.changed {
		return false, false
	}
	return t.inHand > 0, t.inHand > 0 || now.Before(t.free) || now.Before(t.emptyTo)
}

func (q *Quota) ownCap() (own int64, changed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.own, q.changed
}

// keep books what came, and forgets days that are over.
func (q *Quota) keep(day int64, got till, own int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.own == own {
		q.changed = false
	}
	t := q.tills[day]
	if t == nil {
		t = &till{}
		q.tills[day] = t
	}
	t.inHand += got.inHand
	t.most, t.taken, t.free, t.emptyTo = got.most, got.taken, got.free, got.emptyTo
	for d := range q.tills {
		if d < day-1 {
			delete(q.tills, d)
		}
	}
}

// part is how many are taken of a rest at once: 1/32 of each node's share, so
// that little is lost with a node, and the last ones go one by one.
func (d *Days) part(rest int64) int64 {
	return min(max(rest/int64(32*d.nodes), 1), mostInHand, max(rest, 0))
}

// lease takes a part of what is left. fault.NotFound: the day has no row.
func (q *Quota) lease(ctx context.Context, day, own int64, changed bool) (got till, err error) {
	err = q.days.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		sel := `SELECT most, taken FROM day_quota WHERE name = $1 AND day = $2`
		if q.days.db.Dialect() == sqldb.Postgres {
			sel += ` FOR UPDATE`
		}
		got = till{}
		if err := tx.QueryRow(ctx, sel, q.name, day).Scan(&got.most, &got.taken); err != nil {
			return err
		}
		if changed && own > 0 {
			// A raised cap is only right with what its owner counts; the next
			// question to them tells.
			if q.ask == nil {
				got.most = own
			} else {
				got.most = min(got.most, own)
			}
		}
		got.inHand = q.days.part(got.most - got.taken)
		got.taken += got.inHand
		_, err := tx.Exec(ctx, `UPDATE day_quota SET most = $3, taken = $4 WHERE name = $1 AND day = $2`, q.name, day, got.most, got.taken)
		return err
	})
	if fault.KindOf(err) == fault.Ambiguous {
		err = fault.Wrap(fault.Unavailable, "lease", err) // what was taken is lost, never taken twice
	}
	return got, err
}

// begin makes the row of a day. Nobody may have asked its owner yet; if the owner
// does not answer our own cap holds, and without one there is no quota. At the turn
// of the day the owner may still speak of yesterday, so only the size is believed;
// tomorrow is taken to be like today until it can be asked for.
func (q *Quota) begin(ctx context.Context, day, own int64, now time.Time) (Told, error) {
	told, today, asked := Told{Most: own}, q.days.dayOf(now), time.Time{}
	switch {
	case q.ask == nil:
	case day > today:
		most, _ := q.Level()
		told = lowest(own, Told{Most: most})
	case day == today:
		if said, err := q.ask(ctx); err == nil {
			told, asked = lowest(own, said), now
			if len(q.days.daysOf(now)) > 1 {
				told.Used, asked = 0, time.Time{}
			}
		}
	}
	if told.Most == 0 {
		return told, nil
	}
	return told, q.write(ctx, day, told, asked)
}

func lowest(own int64, said Told) Told {
	if own > 0 && (said.Most <= 0 || own < said.Most) {
		said.Most = own
	}
	said.Most, said.Used = max(said.Most, 0), max(said.Used, 0)
	return said
}

// write makes or corrects a row. What was taken never becomes less: what we have
// handed out and what others have used of the same quota are both in it.
func (q *Quota) write(ctx context.Context, day int64, told Told, asked time.Time) error {
	at := int64(0)
	if !asked.IsZero() {
		at = asked.UnixMilli()
	}
	_, err := q.days.db.Exec(ctx, `INSERT INTO day_quota (name, day, most, taken, asked_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (name, day) DO UPDATE SET most = excluded.most, asked_at = excluded.asked_at,
			taken = CASE WHEN excluded.taken > day_quota.taken THEN excluded.taken ELSE day_quota.taken END`,
		q.name, day, told.Most, told.Used, at)
	if fault.KindOf(err) == fault.Ambiguous {
		err = nil // it says the same when it is said again
	}
	return err
}

// Refresh asks the owner of the quota again, if no node has within every, gives
// back what this node has had in hand since the last Refresh without using any, and
// drops rows that nobody needs. It is for a loop beside the work.
func (q *Quota) Refresh(ctx context.Context, every time.Duration) error {
	now := q.days.now()
	if err := q.giveUp(ctx, func(t *till) bool {
		idle := !t.used
		t.used = false
		return idle
	}); err != nil {
		return err
	}
	day := q.days.dayOf(now)
	if _, err := q.days.db.Exec(ctx, `DELETE FROM day_quota WHERE name = $1 AND day < $2`, q.name, day-keepDays); err != nil {
		return err
	}
	if q.ask == nil || len(q.days.daysOf(now)) > 1 { // at the turn nobody knows of which day they speak
		return nil
	}
	n, err := q.days.db.Exec(ctx, `UPDATE day_quota SET asked_at = $3 WHERE name = $1 AND day = $2 AND asked_at <= $4`,
		q.name, day, now.UnixMilli(), now.Add(-every).UnixMilli())
	if err != nil || n == 0 {
		return err
	}
	said, err := q.ask(ctx)
	if err != nil {
		return err
	}
	own, _ := q.ownCap()
	told := lowest(own, said)
	if told.Most == 0 {
		return nil // it was there a moment ago; the row holds on
	}
	if err := q.write(ctx, day, told, now); err != nil || told.Used >= told.Most/10*9 {
		return err
	}
	// All is taken and the owner has counted much less: it began anew (clear_quota),
	// or calls never reached it. Its number may be off by one in a hundred.
	_, err = q.days.db.Exec(ctx, `UPDATE day_quota SET taken = $3 WHERE name = $1 AND day = $2 AND taken >= most`,
		q.name, day, told.Used+told.Most/100+1)
	return err
}

// Close gives back what is in hand. A node that is killed loses it.
func (q *Quota) Close(ctx context.Context) error {
	return q.giveUp(ctx, func(*till) bool { return true })
}

func (q *Quota) giveUp(ctx context.Context, which func(*till) bool) error {
	given := map[int64]int64{}
	q.mu.Lock()
	for day, t := range q.tills {
		if which(t) && t.inHand > 0 {
			given[day], t.inHand = t.inHand, 0
		}
	}
	q.mu.Unlock()
	var errs []error
	for day, n := range given { // an error loses them, which is safe
		_, err := q.days.db.Exec(ctx, `UPDATE day_quota SET taken = taken - $3 WHERE name = $1 AND day = $2`, q.name, day, n)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
