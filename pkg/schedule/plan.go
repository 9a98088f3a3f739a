package schedule

import (
	"context"
	"strings"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

const (
	// planBatch is how many slots one transaction plans at most.
	planBatch = 1000
	// maxWaiting bounds the rows of one job that wait. Slots behind them are not
	// planned yet; if they grow too old meanwhile they are missed.
	maxWaiting = 1000
)

// planned is how far a job is planned.
type planned struct {
	until  time.Time
	more   bool // slots before now are left for the next batch
	missed int
}

// plan makes a row for every slot of a job since the last one planned, up to
// now. A job that is new begins now. One whose specification was changed has what
// the old one still promised until now, and no other past.
func (t term) plan(ctx context.Context, j Job, now time.Time) (planned, error) {
	var p planned
	err := t.tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		until, missed, err := planOf(ctx, tx, j, now)
		if err != nil {
			return err
		}
		var waiting int
		if err := tx.QueryRow(ctx, "SELECT COUNT(*) FROM job_runs WHERE job = $1 AND state = $2", j.Name, Due).Scan(&waiting); err != nil {
			return err
		}
		b := batch{job: j, now: now, room: maxWaiting - waiting}
		p = b.walk(until)
		p.missed = missed + len(b.missed)
		if p.until.Equal(until) {
			return nil
		}
		if err := b.write(ctx, tx); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE job_plan SET planned = $1 WHERE job = $2", p.until.UnixMilli(), j.Name)
		return err
	})
	return p, err
}

// meet writes down that a job is known, from when on its slots count. Every node
// does it, so that a job which nobody has ever led is overdue like any other.
func (s *Store) meet(ctx context.Context, j Job, now time.Time) error {
	_, err := s.db.Exec(ctx, "INSERT INTO job_plan (job, spec, planned, first_seen, done_slot, done_at) VALUES ($1, $2, $3, $3, 0, 0) ON CONFLICT (job) DO NOTHING",
		j.Name, j.Spec.named(), now.UnixMilli())
	return err
}

// planOf gives the slot up to which a job is planned, and how many of a former
// specification were missed.
func planOf(ctx context.Context, tx *sqldb.Tx, j Job, now time.Time) (_ time.Time, missed int, err error) {
	spec := j.Spec.named()
	var was string
	var until int64
	err = tx.QueryRow(ctx, "SELECT spec, planned FROM job_plan WHERE job = $1", j.Name).Scan(&was, &until)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		until = now.UnixMilli()
		_, err = tx.Exec(ctx, "INSERT INTO job_plan (job, spec, planned, first_seen, done_slot, done_at) VALUES ($1, $2, $3, $3, 0, 0)", j.Name, spec, until)
	case err == nil && was != spec:
		if missed, err = planFormer(ctx, tx, j, was, time.UnixMilli(until), now); err != nil {
			return time.Time{}, 0, err
		}
		// Never back: a slot of the old specification must not come again.
		until = max(until, now.UnixMilli())
		_, err = tx.Exec(ctx, "UPDATE job_plan SET spec = $1, planned = $2 WHERE job = $3", spec, until, j.Name)
	}
	return time.UnixMilli(until), missed, err
}

// planFormer plans the slots that a former specification promised until now:
// nobody may have led while they came.
func planFormer(ctx context.Context, tx *sqldb.Tx, j Job, was string, until, now time.Time) (missed int, err error) {
	i := strings.LastIndex(was, " in ")
	if i < 0 {
		return 0, nil
	}
	if j.Spec, err = ParseSpec(was[:i], was[i+len(" in "):]); err != nil {
		return 0, nil //nolint:nilerr // of a release that writes them in another way
	}
	for {
		b := batch{job: j, now: now, room: planBatch}
		p := b.walk(until)
		if err := b.write(ctx, tx); err != nil {
			return missed, err
		}
		missed += len(b.missed)
		if !p.more {
			return missed, nil
		}
		until = p.until
	}
}

// batch is the slots of one transaction.
type batch struct {
	job    Job
	now    time.Time
	room   int // rows that may be made to wait
	due    []time.Time
	missed []time.Time // older than the window; they come before all others
}

// walk visits the slots behind a moment, until now or until the batch is full.
func (b *batch) walk(from time.Time) planned {
	p := planned{until: from}
	for range planBatch {
		slot := b.job.Spec.Next(p.until)
		if slot.IsZero() || slot.After(b.now) {
			return p
		}
		switch {
		case b.now.Sub(slot) > b.job.window():
			b.missed = append(b.missed, slot)
		case len(b.due) < b.room:
			b.due = append(b.due, slot)
		default:
			return p // too many wait
		}
		p.until = slot
	}
	p.more = true
	return p
}

// write makes the rows: one for all that were missed, one for each other.
func (b *batch) write(ctx context.Context, tx *sqldb.Tx) error {
	if n := len(b.missed); n > 0 {
		if err := b.insert(ctx, tx, Missed, b.missed[0], b.missed[n-1], n); err != nil {
			return err
		}
	}
	for _, slot := range b.due {
		if err := b.insert(ctx, tx, Due, slot, slot, 1); err != nil {
			return err
		}
	}
	return nil
}

// insert claims a slot. One that has a row already keeps it.
func (b *batch) insert(ctx context.Context, tx *sqldb.Tx, st State, slot, last time.Time, n int) error {
	text, ended := "", int64(0)
	if st == Missed {
		text, ended = "nobody could begin it within "+b.job.window().String(), b.now.UnixMilli()
	}
	_, err := tx.Exec(ctx, `INSERT INTO job_runs
		(job, slot, last_slot, slots, by_hand, state, attempt, made_at, due_at, started_at, ended_at, node, fence, error, asked_by, reason)
		VALUES ($1, $2, $3, $4, 0, $5, 0, $6, $2, 0, $7, '', 0, $8, '', '') ON CONFLICT (job, slot) WHERE by_hand = 0 DO NOTHING`,
		b.job.Name, slot.UnixMilli(), last.UnixMilli(), n, st, b.now.UnixMilli(), ended, text)
	return err
}
