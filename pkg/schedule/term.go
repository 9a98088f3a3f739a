package schedule

import (
	"context"
	"fmt"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

// adopt decides about runs of this job that an earlier leader began and never
// ended. It gives what became of them.
func (t term) adopt(ctx context.Context, j Job, now time.Time) (map[State]int64, error) {
	out := map[State]int64{}
	err := t.tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		clear(out)
		var id, fence int64
		var attempt int
		var node string
		err := tx.QueryRow(ctx, "SELECT id, fence, attempt, node FROM job_runs WHERE job = $1 AND state = $2 AND fence < $3", j.Name, Running, t.fence).Scan(&id, &fence, &attempt, &node)
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		e := j.interrupted(attempt, fmt.Sprintf("begun on %s and never ended", node), now)
		out[e.state] = 1
		return e.write(ctx, tx, id, fence)
	})
	return out, err
}

// ending is what becomes of an attempt.
type ending struct {
	state State
	at    time.Time
	due   time.Time // if it is due again
	text  string
}

// interrupted decides by the job's policy about a run that was begun and has not
// ended.
func (j Job) interrupted(attempt int, why string, now time.Time) ending {
	switch {
	case j.Interrupted == Leave:
		return ending{state: Interrupted, at: now, text: why}
	case attempt >= j.Retry.Most:
		return ending{state: Failed, at: now, text: fmt.Sprintf("%s, at attempt %d of %d", why, attempt, j.Retry.Most)}
	}
	return ending{state: Due, at: now, due: now, text: why}
}

// ended decides about an attempt that came to its end.
func (j Job) ended(attempt int, err error, now time.Time) ending {
	if err == nil {
		return ending{state: Done, at: now}
	}
	text := errorText(err)
	if k := fault.KindOf(err); attempt >= j.Retry.Most || k == fault.Invalid || k == fault.Final {
		return ending{state: Failed, at: now, text: text}
	}
	return ending{state: Due, at: now, due: now.Add(j.Retry.wait(attempt)), text: text}
}

// write ends a run, if it is still as it was begun.
func (e ending) write(ctx context.Context, tx *sqldb.Tx, id, fence int64) error {
	n, err := tx.Exec(ctx, "UPDATE job_runs SET state = $1, ended_at = $2, due_at = CASE WHEN CAST($3 AS BIGINT) = 0 THEN due_at ELSE $3 END, error = $4 WHERE id = $5 AND state = $6 AND fence = $7",
		e.state, e.at.UnixMilli(), millisOf(e.due), e.text, id, Running, fence)
	if err == nil && n != 1 {
		err = overtaken(fmt.Sprintf("run %d", id))
	}
	return err
}

// waits tells whether a row of the job is due. It is asked all the time, so it
// writes nothing.
func (s *Store) waits(ctx context.Context, job string, now time.Time) (bool, error) {
	var n int
	err := s.db.QueryRow(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM job_runs WHERE job = $1 AND state = 'due' AND due_at <= $2 LIMIT 1) AS one", job, now.UnixMilli()).Scan(&n)
	return n > 0, err
}

// due gives the job's next row to begin, if any. Rows that waited too long are
// recorded as missed on the way, and so are all but the newest slot of a job
// that wants only that.
func (t term) due(ctx context.Context, j Job, now time.Time) (r *Run, missed int64, err error) {
	err = t.tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		r = nil
		if missed, err = passOver(ctx, tx, j, now); err != nil {
			return err
		}
		var id, slot int64
		var byHand, attempt int
		err := tx.QueryRow(ctx, "SELECT id, slot, by_hand, attempt FROM job_runs WHERE job = $1 AND state = $2 AND due_at <= $3 ORDER BY due_at, id LIMIT 1", j.Name, Due, now.UnixMilli()).
			Scan(&id, &slot, &byHand, &attempt)
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		r = &Run{ID: id, Job: j.Name, Slot: j.Spec.In(time.UnixMilli(slot)), Attempt: attempt + 1, Fence: t.fence, ByHand: byHand != 0, term: t}
		return nil
	})
	return r, missed, err
}

// passOver records what is not to be begun any more.
func passOver(ctx context.Context, tx *sqldb.Tx, j Job, now time.Time) (int64, error) {
	const q = "UPDATE job_runs SET state = $1, ended_at = $2, error = $3 WHERE job = $4 AND state = $5 AND by_hand = 0 AND attempt = 0 AND "
	n, err := tx.Exec(ctx, q+"slot < $6", Missed, now.UnixMilli(), "nobody could begin it within "+j.window().String(), j.Name, Due, now.Add(-j.window()).UnixMilli())
	if err != nil || !j.NewestOnly {
		return n, err
	}
	m, err := tx.Exec(ctx, q+"slot < (SELECT MAX(slot) FROM job_runs WHERE job = $4 AND state = $5 AND by_hand = 0)",
		Missed, now.UnixMilli(), "a newer slot was waiting", j.Name, Due)
	return n + m, err
}

// begin makes a run this leader's. From here on the slot counts as begun,
// whatever happens to the process.
func (t term) begin(ctx context.Context, r *Run, now time.Time) error {
	return t.tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		n, err := tx.Exec(ctx, "UPDATE job_runs SET state = $1, attempt = $2, started_at = $3, ended_at = 0, node = $4, fence = $5, error = '' WHERE id = $6 AND state = $7 AND attempt = $8",
			Running, r.Attempt, now.UnixMilli(), t.node, t.fence, r.ID, Due, r.Attempt-1)
		if err == nil && n != 1 {
			err = overtaken(r.Job)
		}
		return err
	})
}

// finish writes down what became of a run.
func (t term) finish(ctx context.Context, r *Run, e ending) error {
	return t.tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error { return r.end(ctx, tx, e) })
}

// purge forgets final rows that are older than the history is kept, and more
// than keep of them, some at a time. Their slots stay behind the plan.
func (t term) purge(ctx context.Context, j Job, c Config, now time.Time) (n int64, err error) {
	err = t.tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		n, err = tx.Exec(ctx, `DELETE FROM job_runs WHERE id IN (SELECT id FROM job_runs WHERE job = $1 AND state NOT IN ('due', 'running')
			AND (made_at < $2 OR id <= (SELECT id FROM job_runs WHERE job = $1 ORDER BY id DESC LIMIT 1 OFFSET $3)) ORDER BY id LIMIT 1000)`,
			j.Name, now.Add(-c.History).UnixMilli(), c.Keep)
		return err
	})
	return n, err
}
