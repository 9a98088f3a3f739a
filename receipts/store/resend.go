package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

// Resend is one confirmed re-send: who asked for which selection, and how far
// it is.
type Resend struct {
	Request  string // unique per confirmation
	App      string
	KeyID    string
	Filter   Filter
	Counted  int
	Sent     int
	Finished bool
}

// BeginResend claims a confirmed re-send for this caller for the length of
// lease. The row comes back as it is stored: Finished and Sent tell of an
// execution that is over. While another caller holds it the error is
// fault.Conflict; when its lease has ended, its work is taken up again.
//
// One re-send runs at a time, over all nodes: two selections may hold the same
// message, and the second must see what the first has marked, or the follower
// gets it twice.
func (s *SQL) BeginResend(ctx context.Context, r Resend, lease time.Duration) (Resend, error) {
	selection, err := json.Marshal(r.Filter)
	if err != nil {
		return Resend{}, fault.Wrap(fault.Internal, "write selection", err)
	}
	now := s.now()
	err = s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if s.db.Dialect() == sqldb.Postgres { // SQLite has one writer anyway
			if _, err := tx.Exec(ctx, "LOCK TABLE resends IN SHARE ROW EXCLUSIVE MODE"); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, `INSERT INTO resends (request, app, key_id, selection, counted, sent, begun_at, lease_until, finished_at)
			VALUES ($1, $2, $3, $4, $5, 0, $6, 0, 0) ON CONFLICT (request) DO NOTHING`,
			r.Request, r.App, r.KeyID, string(selection), r.Counted, now.UnixMilli()); err != nil {
			return err
		}
		n, err := tx.Exec(ctx, `UPDATE resends SET lease_until = $1 WHERE request = $2 AND finished_at = 0
			AND NOT EXISTS (SELECT 1 FROM resends other WHERE other.finished_at = 0 AND other.lease_until > $3)`,
			now.Add(lease).UnixMilli(), r.Request, now.UnixMilli())
		if err != nil {
			return err
		}
		var finished int64
		if err := tx.QueryRow(ctx, "SELECT sent, finished_at FROM resends WHERE request = $1", r.Request).Scan(&r.Sent, &finished); err != nil {
			return err
		}
		r.Finished = finished > 0
		if n == 0 && !r.Finished {
			return fault.New(fault.Conflict, "begin re-send", "a re-send is being executed right now: send the same confirm again in a moment")
		}
		return nil
	})
	return r, err
}

// Resent notes that messages went out again under new ids, old id to new.
// Marked rows are left out by Filter.NotResent, so a re-send that was
// interrupted goes on behind them.
func (s *SQL) Resent(ctx context.Context, request string, marks []ResentMark) error {
	marks = slices.SortedFunc(slices.Values(marks), func(a, b ResentMark) int { return cmp.Compare(a.OldID, b.OldID) })
	return s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		for _, m := range marks {
			if _, err := tx.Exec(ctx, "UPDATE "+s.t.messages.name+" SET resent_as = $1 WHERE id = $2 AND variant = $3", m.NewID, m.OldID, m.Variant); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "UPDATE resends SET sent = sent + $1 WHERE request = $2", len(marks), request)
		return err
	})
}

// ResentMark names a message and its re-send.
type ResentMark struct {
	OldID   string
	Variant int
	NewID   string
}

// EndResend closes a re-send; the same request is answered from its row from
// now on.
func (s *SQL) EndResend(ctx context.Context, request string) error {
	_, err := s.db.Exec(ctx, "UPDATE resends SET finished_at = $1, lease_until = 0 WHERE request = $2", s.now().UnixMilli(), request)
	return err
}

// DropResend gives up a claim without an end, so that the request can be made
// again at once.
func (s *SQL) DropResend(ctx context.Context, request string) error {
	_, err := s.db.Exec(ctx, "UPDATE resends SET lease_until = 0 WHERE request = $1 AND finished_at = 0", request)
	return err
}
