package schedule

import (
	"context"
	"strings"
	"time"
	"unicode"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

// Record is one row of the history.
type Record struct {
	ID       int64     `json:"id"`
	Job      string    `json:"job"`
	Slot     time.Time `json:"slot"`
	LastSlot time.Time `json:"last_slot"` // of several that were missed; else as Slot
	Slots    int       `json:"slots"`
	ByHand   bool      `json:"by_hand"`
	State    State     `json:"state"`
	Attempt  int       `json:"attempt"`
	Due      time.Time `json:"due_at"`
	Started  time.Time `json:"started_at,omitzero"` // of the last attempt
	Ended    time.Time `json:"ended_at,omitzero"`
	Node     string    `json:"node,omitempty"`
	Fence    int64     `json:"fence,omitempty"`
	Error    string    `json:"error,omitempty"`
	AskedBy  string    `json:"asked_by,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

// Open tells that something is still to come.
func (r Record) Open() bool { return r.State == Due || r.State == Running }

const recordColumns = "id, job, slot, last_slot, slots, by_hand, state, attempt, due_at, started_at, ended_at, node, fence, error, asked_by, reason"

// MaxRecords bounds one answer.
const MaxRecords = 1000

// History gives rows of a job with ids below before (0: all), the newest first.
func (s *Store) History(ctx context.Context, job string, before int64, limit int) ([]Record, error) {
	if before <= 0 {
		before = 1<<63 - 1
	}
	return s.records(ctx, "job = $1 AND id < $2 ORDER BY id DESC LIMIT $3", job, before, min(max(limit, 1), MaxRecords))
}

// Record gives one row.
func (s *Store) Record(ctx context.Context, id int64) (Record, error) {
	rs, err := s.records(ctx, "id = $1", id)
	if err == nil && len(rs) == 0 {
		err = fault.New(fault.NotFound, "find run", "there is no run %d: it may be older than the history is kept", id)
	}
	if err != nil {
		return Record{}, err
	}
	return rs[0], nil
}

func (s *Store) records(ctx context.Context, where string, args ...any) ([]Record, error) {
	rows, err := s.db.Query(ctx, "SELECT "+recordColumns+" FROM job_runs WHERE "+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Record
	for rows.Next() {
		var r Record
		var slot, last, due, started, ended int64
		var byHand int
		if err := rows.Scan(&r.ID, &r.Job, &slot, &last, &r.Slots, &byHand, &r.State, &r.Attempt, &due, &started, &ended, &r.Node, &r.Fence, &r.Error, &r.AskedBy, &r.Reason); err != nil {
			return nil, err
		}
		r.Slot, r.LastSlot, r.Due, r.Started, r.Ended, r.ByHand = timeOf(slot), timeOf(last), timeOf(due), timeOf(started), timeOf(ended), byHand != 0
		out = append(out, r)
	}
	return out, rows.Err()
}

// progress is what is known of a job beyond its rows.
type progress struct {
	firstSeen, doneSlot, doneAt time.Time
	trouble                     string // what the newest row that did not succeed says
}

func (s *Store) progress(ctx context.Context, job string) (progress, error) {
	var first, slot, at int64
	var p progress
	err := s.db.QueryRow(ctx, "SELECT first_seen, done_slot, done_at FROM job_plan WHERE job = $1", job).Scan(&first, &slot, &at)
	if fault.KindOf(err) == fault.NotFound {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	err = s.db.QueryRow(ctx, "SELECT error FROM job_runs WHERE job = $1 AND slot > $2 AND error <> '' ORDER BY id DESC LIMIT 1", job, slot).Scan(&p.trouble)
	if fault.KindOf(err) == fault.NotFound {
		err = nil
	}
	p.firstSeen, p.doneSlot, p.doneAt = timeOf(first), timeOf(slot), timeOf(at)
	return p, err
}

// overdue is how long a slot has been waiting for a success: the first one
// behind the newest that succeeded. 0 if none has passed.
func (p progress) overdue(spec Spec, now time.Time) time.Duration {
	from := p.doneSlot
	if from.Before(p.firstSeen) {
		from = p.firstSeen
	}
	if from.IsZero() {
		return 0
	}
	if slot := spec.Next(from); !slot.IsZero() && now.After(slot) {
		return now.Sub(slot)
	}
	return 0
}

// Ask is a request to run a job outside of its schedule.
type Ask struct {
	Job    string
	Slot   time.Time // what it is to stand for; zero: the moment it is asked for
	By     string
	Reason string
}

// ask makes a row for it. Only one such row of a job may be open, so that
// somebody who clicks twice runs it once.
func (s *Store) ask(ctx context.Context, a Ask) (id int64, err error) {
	now, err := s.now(ctx)
	if err != nil {
		return 0, err
	}
	if a.Slot.IsZero() {
		a.Slot = now
	}
	if a.Slot.After(now) {
		return 0, fault.New(fault.Invalid, "run job "+a.Job, "slot %s is still to come: it will run by itself", a.Slot.Format(time.RFC3339)).WithField("slot")
	}
	err = s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		// The plan's row is locked by changing it: two who ask come one after the other.
		n, err := tx.Exec(ctx, "UPDATE job_plan SET job = job WHERE job = $1", a.Job)
		if err != nil {
			return err
		}
		if n == 0 {
			return fault.New(fault.Unavailable, "run job "+a.Job, "no node has led since it was added: try again when 'jobs list' names a leader")
		}
		err = tx.QueryRow(ctx, "SELECT id FROM job_runs WHERE job = $1 AND by_hand = 1 AND state IN ('due', 'running') LIMIT 1", a.Job).Scan(&id)
		if err == nil {
			return fault.New(fault.Conflict, "run job "+a.Job, "run %d was asked for already and has not ended", id)
		}
		if fault.KindOf(err) != fault.NotFound {
			return err
		}
		return tx.QueryRow(ctx, `INSERT INTO job_runs
			(job, slot, last_slot, slots, by_hand, state, attempt, made_at, due_at, started_at, ended_at, node, fence, error, asked_by, reason)
			VALUES ($1, $2, $2, 1, 1, $3, 0, $4, $4, 0, 0, '', 0, '', $5, $6) RETURNING id`,
			a.Job, a.Slot.UnixMilli(), Due, now.UnixMilli(), a.By, a.Reason).Scan(&id)
	})
	return id, err
}

// maxError bounds what is kept of an error.
const maxError = 500

// errorText is an error as it is kept: one line, bounded.
func errorText(err error) string {
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(err.Error(), " "))
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + "…"
	}
	return text
}
