package webhook

import (
	"context"
	"crypto/rand"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/sqldb"
)

// The states of events.
const (
	pending   = "pending"
	delivered = "delivered"
	failed    = "failed"
)

// leaseMargin is how much longer than one attempt a claim lives. An attempt ends
// by itself before its claim does, so that two nodes never tell one event at
// once while clocks agree within a few seconds.
const leaseMargin = 20 * time.Second

// claimed is an event that this node alone may send now.
type claimed struct {
	seq       int64
	id, url   string
	body      []byte
	attempts  int // this one included
	giveUpAt  int64
	token     string
	endBefore time.Time // on this process's own clock
}

// claim takes up to n events of an endpoint that are due, of each message only
// the first that is not settled. A disabled endpoint has none.
func (h *Hub) claim(ctx context.Context, endpoint string, n int) ([]claimed, error) {
	lock := ""
	if h.d.DB.Dialect() == sqldb.Postgres {
		lock = " FOR UPDATE SKIP LOCKED"
	}
	token, began := rand.Text(), time.Now()
	now, lease := h.d.Now().UnixMilli(), h.cfg.Timeout+leaseMargin
	var out []claimed
	err := h.d.DB.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		out = nil
		rows, err := tx.Query(ctx, `UPDATE webhook_events SET claim = $1, claimed_until = $2, attempts = attempts + 1 WHERE seq IN (
			SELECT e.seq FROM webhook_events e WHERE e.endpoint = $3 AND e.state = 'pending' AND e.due_at <= $4 AND e.claimed_until <= $4
			AND NOT EXISTS (SELECT 1 FROM webhook_endpoints d WHERE d.endpoint = $3 AND d.disabled_at > 0)
			AND NOT EXISTS (SELECT 1 FROM webhook_events p WHERE p.message = e.message AND p.variant = e.variant
				AND p.endpoint = e.endpoint AND p.state = 'pending' AND p.seq < e.seq)
			ORDER BY e.due_at, e.seq LIMIT $5`+lock+`) RETURNING seq, id, url, body, attempts, give_up_at`,
			token, now+lease.Milliseconds(), endpoint, now, n)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			c := claimed{token: token, endBefore: began.Add(lease - leaseMargin/4)}
			var text string
			if err := rows.Scan(&c.seq, &c.id, &c.url, &text, &c.attempts, &c.giveUpAt); err != nil {
				return err
			}
			c.body = []byte(text)
			out = append(out, c)
		}
		return rows.Err()
	})
	return out, err
}

// settle notes what became of an attempt, if the claim still holds, and how the
// endpoint stands.
func (h *Hub) settle(ctx context.Context, endpoint string, c claimed, v verdict) error {
	now := h.d.Now().UnixMilli()
	state, due, settled := pending, now+v.pause.Milliseconds(), int64(0)
	switch {
	case v.taken:
		state, settled = delivered, now
	case now >= c.giveUpAt:
		state, settled = failed, now
	default:
		due = min(due, c.giveUpAt)
	}
	return h.d.DB.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE webhook_events SET state = $1, due_at = $2, settled_at = $3, status = $4, error = $5, claim = '', claimed_until = 0
			WHERE seq = $6 AND claim = $7 AND state = 'pending'`, state, due, settled, v.status, v.why, c.seq, c.token)
		if err != nil {
			return err
		}
		if n == 0 {
			h.met.lapsed.Inc() // the claim lapsed: another attempt decides
		}
		if v.taken {
			_, err = tx.Exec(ctx, `UPDATE webhook_endpoints SET failures = 0, failing_since = 0, last_ok_at = $1
				WHERE endpoint = $2 AND (failures > 0 OR last_ok_at < $3)`, now, endpoint, now-okEvery.Milliseconds())
			return err
		}
		return h.noteFailure(ctx, tx, endpoint, v, now)
	})
}

// okEvery is how often an endpoint that works is noted as such.
const okEvery = 10 * time.Second

// noteFailure counts, and disables an endpoint that is gone or has taken nothing
// for long.
func (h *Hub) noteFailure(ctx context.Context, tx *sqldb.Tx, endpoint string, v verdict, now int64) error {
	if _, err := tx.Exec(ctx, `UPDATE webhook_endpoints SET failures = failures + 1, last_error = $1,
		failing_since = CASE WHEN failing_since = 0 THEN $2 ELSE failing_since END WHERE endpoint = $3`, v.why, now, endpoint); err != nil {
		return err
	}
	since, why := now-h.cfg.DisableAfter.Milliseconds(), "it has taken nothing for "+h.cfg.DisableAfter.String()
	if v.gone {
		since, why = now, "it answered 410 Gone"
	}
	n, err := tx.Exec(ctx, `UPDATE webhook_endpoints SET disabled_at = $1, disabled_why = $2
		WHERE endpoint = $3 AND disabled_at = 0 AND failing_since <= $4`, now, why, endpoint, since)
	if n > 0 {
		h.d.Log.Warn("a webhook endpoint is disabled", zap.String("endpoint", endpoint), zap.String("why", why), zap.String("last_error", v.why))
	}
	return err
}
