package schedule

import (
	"context"
	"errors"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

// ErrOvertaken says that somebody else leads or has this run: stop, and do
// nothing more for it.
var ErrOvertaken = errors.New("another node has taken over")

// Run is one attempt at a slot, as the job sees it.
type Run struct {
	ID      int64
	Job     string
	Slot    time.Time // what it stands for; it may begin late
	Attempt int       // from 1
	Fence   int64     // larger than that of every leader before
	ByHand  bool      // somebody asked for it

	term      term
	valid     func() bool
	completed bool
}

// Key names the slot for effects outside of the database: the same for every
// attempt, another for every other slot.
func (r *Run) Key() string {
	key := r.Job + "@" + r.Slot.UTC().Format("2006-01-02T15:04:05.000Z")
	if r.ByHand {
		key += "/by-hand"
	}
	return key
}

// Check tells whether the run is still this node's. Ask right before each effect.
func (r *Run) Check(ctx context.Context) error {
	return r.Tx(ctx, func(context.Context, *sqldb.Tx) error { return nil })
}

// Tx makes an effect in the database of the schedule, if the run is still this
// node's: nobody can take it over before the effect is committed.
func (r *Run) Tx(ctx context.Context, fn func(ctx context.Context, tx *sqldb.Tx) error) error {
	if !r.valid() {
		return overtaken(r.Job)
	}
	return r.term.s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		n, err := tx.Exec(ctx, "UPDATE job_runs SET node = node WHERE id = $1 AND state = $2 AND fence = $3 AND attempt = $4", r.ID, Running, r.Fence, r.Attempt)
		if err != nil {
			return err
		}
		if n != 1 {
			return overtaken(r.Job)
		}
		return fn(ctx, tx)
	})
}

// Complete makes the job's last effect in the database of the schedule and
// records the slot as done in the same transaction: both happen, once, or
// neither does. The job then returns nil.
func (r *Run) Complete(ctx context.Context, fn func(ctx context.Context, tx *sqldb.Tx) error) error {
	now, err := r.term.s.now(ctx)
	if err != nil {
		return err
	}
	err = r.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := fn(ctx, tx); err != nil {
			return err
		}
		return r.end(ctx, tx, ending{state: Done, at: now})
	})
	r.completed = err == nil
	return err
}

// end writes what became of the run.
func (r *Run) end(ctx context.Context, tx *sqldb.Tx, e ending) error {
	if err := e.write(ctx, tx, r.ID, r.Fence); err != nil || e.state != Done {
		return err
	}
	// A run by hand stands for what is there when it is asked for, so it ends
	// the wait for the slots before it as well.
	_, err := tx.Exec(ctx, "UPDATE job_plan SET done_at = $1, done_slot = CASE WHEN done_slot < $2 THEN $2 ELSE done_slot END WHERE job = $3", e.at.UnixMilli(), r.Slot.UnixMilli(), r.Job)
	return err
}

func overtaken(what string) error {
	return fault.Wrap(fault.Conflict, "run job "+what, ErrOvertaken)
}
