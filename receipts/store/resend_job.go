package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

// The states of re-sends.
const (
	ResendRunning   = "running"
	ResendFinished  = "finished"
	ResendCancelled = "cancelled"
)

// ErrLost says that a re-send is in other hands now, or is over.
var ErrLost = errors.New("the re-send is in other hands")

// ResendJob is one confirmed re-send. Times are Unix milliseconds.
type ResendJob struct {
	Request, App, By, Reason string
	Filter                   Filter
	Counted                  int // the most that are sent
	CountedAt                int64
	Again                    bool
	Rate                     int // a second
	State                    string
	Mark                     *Mark
	Flight                   []ResendMark
	Sent                     int
	Skipped                  map[string]int
	BegunAt, NextAt          int64
	FinishedAt               int64
	claim                    string
}

const jobColumns = "request, app, started_by, reason, selection, counted, counted_at, again, rate, state, mark, flight, sent, skipped, begun_at, next_at, finished_at"

// StartResend makes a confirmed re-send a row, once: whoever confirms the same
// again gets the row as it is. Of messages that were re-sent before nothing may
// have gone out since they were counted, or two who count at the same time send
// everything twice.
func (s *SQL) StartResend(ctx context.Context, j ResendJob) (ResendJob, error) {
	selection, err := json.Marshal(j.Filter)
	if err != nil {
		return j, fault.Wrap(fault.Internal, "write selection", err)
	}
	now := s.now().UnixMilli()
	err = s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if s.db.Dialect() == sqldb.Postgres { // SQLite has one writer anyway
			if _, err := tx.Exec(ctx, "LOCK TABLE resend_jobs IN SHARE ROW EXCLUSIVE MODE"); err != nil {
				return err
			}
		}
		n, err := tx.Exec(ctx, "INSERT INTO resend_jobs ("+jobColumns+", claim, claim_until) VALUES "+values(1, 19)+" ON CONFLICT (request) DO NOTHING",
			j.Request, j.App, j.By, j.Reason, string(selection), j.Counted, j.CountedAt, bit(j.Again), j.Rate, ResendRunning, "", "", 0, "{}", now, now, 0, "", 0)
		if err != nil || n == 0 || !j.Again {
			return err
		}
		var others int
		if err := tx.QueryRow(ctx, "SELECT COUNT(*) FROM resend_jobs WHERE request <> $1 AND begun_at >= $2", j.Request, j.CountedAt).Scan(&others); err != nil {
			return err
		}
		if others > 0 {
			return fault.New(fault.Conflict, "begin re-send", "something was re-sent since this was counted: count again")
		}
		return nil
	})
	if err != nil {
		return j, err
	}
	return s.ResendOf(ctx, j.Request)
}

// ResendOf reads one re-send.
func (s *SQL) ResendOf(ctx context.Context, request string) (ResendJob, error) {
	js, err := s.readJobs(ctx, s.db, "SELECT "+jobColumns+" FROM resend_jobs WHERE request = $1", request)
	if err == nil && len(js) == 0 {
		err = fault.New(fault.NotFound, "find re-send", "there is no re-send %.40q", request)
	}
	if err != nil {
		return ResendJob{}, err
	}
	return js[0], nil
}

// Resends reads the newest re-sends; app may be empty for those of all.
func (s *SQL) Resends(ctx context.Context, app string, limit int) ([]ResendJob, error) {
	return s.readJobs(ctx, s.db, "SELECT "+jobColumns+" FROM resend_jobs WHERE ($1 = '' OR app = $1) ORDER BY begun_at DESC, request LIMIT $2", app, min(max(limit, 1), MaxPage))
}

// ClaimResend takes a re-send that is due, for the length of lease; nil if none
// is. Only who holds it can go on with it.
func (s *SQL) ClaimResend(ctx context.Context, lease time.Duration) (*ResendJob, error) {
	lock, now, claim := "", s.now().UnixMilli(), rand.Text()
	if s.db.Dialect() == sqldb.Postgres {
		lock = " FOR UPDATE SKIP LOCKED"
	}
	var js []ResendJob
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		js, err = s.readJobs(ctx, tx, "UPDATE resend_jobs SET claim = $1, claim_until = $2 WHERE request IN (SELECT request FROM resend_jobs"+
			" WHERE (state = 'running' OR state = 'cancelled' AND flight <> '') AND next_at <= $3 AND claim_until <= $3 ORDER BY next_at LIMIT 1"+lock+") RETURNING "+jobColumns,
			claim, now+lease.Milliseconds(), now)
		return err
	})
	if err != nil || len(js) == 0 {
		return nil, err
	}
	js[0].claim = claim
	return &js[0], nil
}

// TakeFlight marks messages as re-sent and notes them as under way, if the
// re-send is still the caller's. What somebody else has re-sent meanwhile is
// left out and counted as skipped.
func (s *SQL) TakeFlight(ctx context.Context, j *ResendJob, marks []ResendMark, behind *Mark) error {
	var flight []ResendMark
	skipped := map[string]int{}
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		var state string
		if err := tx.QueryRow(ctx, "SELECT state FROM resend_jobs WHERE request = $1"+s.forUpdate(), j.Request).Scan(&state); err != nil {
			return err
		}
		if state != ResendRunning {
			return ErrLost
		}
		flight = flight[:0]
		clear(skipped)
		for reason, n := range j.Skipped {
			skipped[reason] = n
		}
		for _, m := range sortedMarks(marks) {
			n, err := tx.Exec(ctx, "UPDATE "+s.t.messages.name+" SET resent_as = $1 WHERE id = $2 AND variant = $3 AND resent_as = $4", m.NewID, m.OldID, m.Variant, m.Seen)
			if err != nil {
				return err
			}
			if n == 0 {
				skipped["resent_already"]++
				continue
			}
			flight = append(flight, m)
		}
		underWay := ""
		if len(flight) > 0 {
			underWay = asJSON(flight)
		}
		return s.noteJob(ctx, tx, j, "flight = $3, mark = $4, skipped = $5", underWay, asJSON(behind), asJSON(skipped))
	})
	if err == nil {
		j.Flight, j.Mark, j.Skipped = flight, behind, skipped
	}
	return err
}

// DropResend gives a re-send back before its time, so that another attempt can
// take it at once.
func (s *SQL) DropResend(ctx context.Context, j *ResendJob) error {
	return s.noteJob(ctx, s.db, j, "claim = '', claim_until = 0, next_at = $3", j.NextAt)
}

// EndFlight notes that everything under way was published, and when the next may
// go.
func (s *SQL) EndFlight(ctx context.Context, j *ResendJob, nextAt int64) error {
	n := len(j.Flight)
	err := s.noteJob(ctx, s.db, j, "flight = '', sent = sent + $3, next_at = $4, claim = '', claim_until = 0", n, nextAt)
	if err == nil {
		j.Flight, j.Sent, j.NextAt = nil, j.Sent+n, nextAt
	}
	return err
}

// FinishResend ends a re-send whose selection is worked off.
func (s *SQL) FinishResend(ctx context.Context, j *ResendJob) error {
	return s.noteJob(ctx, s.db, j, "state = CASE WHEN state = 'running' THEN 'finished' ELSE state END, finished_at = $3, skipped = $4, claim = '', claim_until = 0", s.now().UnixMilli(), asJSON(j.Skipped))
}

// noteJob changes the row of a re-send that the caller holds.
func (s *SQL) noteJob(ctx context.Context, q sqldb.Querier, j *ResendJob, set string, args ...any) error {
	n, err := q.Exec(ctx, "UPDATE resend_jobs SET "+set+" WHERE request = $1 AND claim = $2", append([]any{j.Request, j.claim}, args...)...)
	if err == nil && n == 0 {
		err = ErrLost
	}
	return err
}

// CancelResend ends a re-send where it is. What is under way still goes. It
// reports whether there was something to end.
func (s *SQL) CancelResend(ctx context.Context, request string) (bool, error) {
	n, err := s.db.Exec(ctx, "UPDATE resend_jobs SET state = 'cancelled', finished_at = $1 WHERE request = $2 AND state = 'running'", s.now().UnixMilli(), request)
	return n > 0, err
}

func asJSON(v any) string {
	if m, ok := v.(*Mark); ok && m == nil {
		return ""
	}
	text, _ := json.Marshal(v) // strings and numbers: it cannot fail
	return string(text)
}

func (s *SQL) readJobs(ctx context.Context, q sqldb.Querier, text string, args ...any) ([]ResendJob, error) {
	rows, err := q.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []ResendJob
	for rows.Next() {
		var j ResendJob
		var selection, mark, flight, skipped string
		var again int
		if err := rows.Scan(&j.Request, &j.App, &j.By, &j.Reason, &selection, &j.Counted, &j.CountedAt, &again, &j.Rate, &j.State, &mark, &flight, &j.Sent, &skipped,
			&j.BegunAt, &j.NextAt, &j.FinishedAt); err != nil {
			return nil, err
		}
		j.Again = again != 0
		for _, f := range []struct {
			text string
			into any
		}{{selection, &j.Filter}, {mark, &j.Mark}, {flight, &j.Flight}, {skipped, &j.Skipped}} {
			if f.text == "" {
				continue
			}
			if err := json.Unmarshal([]byte(f.text), f.into); err != nil {
				return nil, fault.Wrap(fault.Internal, "read re-send "+j.Request, err)
			}
		}
		out = append(out, j)
	}
	return out, rows.Err()
}
