package webhook

import (
	"context"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

const (
	// stepRows is how many rows one transaction of a command or of the
	// housekeeping touches.
	stepRows = 500
	// maxRedeliver bounds one command.
	maxRedeliver = 100_000
	// hurried is how many events an endpoint that is enabled gets without waiting
	// for the pause behind their last failure.
	hurried = 10_000
)

// Enable lets an endpoint be called again, and gives its waiting events the next
// attempt at once. It is harmless where nothing was disabled.
func (h *Hub) Enable(ctx context.Context, endpoint string) error {
	if err := h.Known(endpoint); err != nil {
		return err
	}
	now := h.d.Now().UnixMilli()
	err := h.d.DB.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE webhook_endpoints SET failures = 0, failing_since = 0, disabled_at = 0, disabled_why = '' WHERE endpoint = $1`, endpoint); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE webhook_events SET due_at = $1 WHERE state = 'pending' AND seq IN (SELECT seq FROM webhook_events
			WHERE endpoint = $2 AND state = 'pending' AND due_at > $1 ORDER BY seq LIMIT $3)`, now, endpoint, hurried)
		return err
	})
	if err == nil {
		h.endpoints[endpoint].wake()
	}
	return err
}

// Again selects settled events that are to go once more; everything given must
// hold.
type Again struct {
	Endpoint string
	Message  string // of this message only
	Event    string // this event only
	From, To time.Time
	// Delivered takes those that were delivered as well; without it only those
	// that were given up.
	Delivered bool
}

// Redeliver makes settled events pending, with the ids they had, and tells how
// many. They are among what waits, oldest first; what went out meanwhile of the
// same message is not sent again for it.
func (h *Hub) Redeliver(ctx context.Context, a Again) (int, error) {
	if err := h.Known(a.Endpoint); err != nil {
		return 0, err
	}
	if a.From.IsZero() && a.Message == "" && a.Event == "" {
		return 0, fault.New(fault.Invalid, "redeliver webhooks", "say which: since when, a message or an event").WithField("since")
	}
	to := int64(1<<63 - 1)
	if !a.To.IsZero() {
		to = a.To.UnixMilli()
	}
	from := int64(0)
	if !a.From.IsZero() {
		from = a.From.UnixMilli()
	}
	now, total, after := h.d.Now().UnixMilli(), 0, int64(0)
	for total < maxRedeliver {
		n, last, err := h.redeliverSome(ctx, a, from, to, now, after)
		total += n
		if err != nil || n < stepRows {
			h.endpoints[a.Endpoint].wake()
			return total, err
		}
		after = last
	}
	return total, nil
}

func (h *Hub) redeliverSome(ctx context.Context, a Again, from, to, now, after int64) (n int, last int64, err error) {
	all := 0
	if a.Delivered {
		all = 1
	}
	err = h.d.DB.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		n, last = 0, after
		rows, err := tx.Query(ctx, `UPDATE webhook_events SET state = 'pending', due_at = $1, give_up_at = $2, attempts = 0, claim = '', claimed_until = 0, settled_at = 0
			WHERE seq IN (SELECT seq FROM webhook_events WHERE endpoint = $3 AND (state = 'failed' OR (state = 'delivered' AND $4 = 1))
			AND ($5 = '' OR message = $5) AND ($6 = '' OR id = $6) AND created_at >= $7 AND created_at < $8 AND seq > $9 ORDER BY seq LIMIT $10) RETURNING seq`,
			now, now+h.cfg.GiveUpAfter.Milliseconds(), a.Endpoint, all, a.Message, a.Event, from, to, after, stepRows)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var seq int64
			if err := rows.Scan(&seq); err != nil {
				return err
			}
			n, last = n+1, max(last, seq)
		}
		return rows.Err()
	})
	return n, last, err
}

// Erase removes what the outbox holds of a follower, sent or not, and tells how
// many events those were. An attempt under way may still arrive.
func (h *Hub) Erase(ctx context.Context, account, openid string) (int, error) {
	return Erase(ctx, h.d.DB, account, openid)
}

// Erase is Hub.Erase where no webhooks are configured any more.
func Erase(ctx context.Context, db *sqldb.DB, account, openid string) (int, error) {
	n, err := db.Exec(ctx, "DELETE FROM webhook_events WHERE openid = $1 AND account = $2", openid, account)
	if err != nil {
		return 0, err
	}
	_, err = db.Exec(ctx, "DELETE FROM webhook_targets WHERE openid = $1 AND account = $2", openid, account)
	return int(n), err
}
