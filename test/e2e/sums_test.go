//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/kafka"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wire"
	"tidegate/test/chaos/herd"
)

// Requests that a sender may have under way (configuration: replies, template).
const placesPerSender = 64 + 32

// sums looks twice a second from outside whether the reports add up (G30, D10):
// what stands in the rows, in the tables of senders and in the queue is the same
// messages, at every look.
type sums struct {
	w       *world
	db      *sqldb.DB
	admin   *kafka.Admin
	senders int
	kills   bool // a push may be in the queue twice, so rows are not compared with what was read

	stop context.CancelFunc
	done chan struct{}

	looks      int
	worst      int // messages that were begun and had no ending at a look
	deviations []string
}

// watchSums begins; end stops it.
func (w *world) watchSums(senders int, kills bool) *sums {
	w.t.Helper()
	db, err := sqldb.Open(w.t.Context(), sqldb.Config{Driver: sqldb.Postgres, DSN: w.dsn, MaxConns: 2})
	require.NoError(w.t, err)
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{engine(w.t, "KAFKA")}
	admin, err := kafka.NewAdmin(cfg)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	s := &sums{w: w, db: db, admin: admin, senders: senders, kills: kills, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(500 * time.Millisecond):
			}
			if err := s.look(ctx); err != nil && ctx.Err() == nil {
				s.deviations = append(s.deviations, err.Error())
			}
		}
	}()
	w.t.Cleanup(func() {
		cancel()
		<-s.done
		_ = admin.Close()
		_ = db.Close()
	})
	return s
}

// census is one statement's view of the tables.
type census struct {
	intents, outcomes, rows, pushes, ended int // ended rows have an outcome of a sender, or WeChat's receipt behind it
}

func (s *sums) census(ctx context.Context) (c census, err error) {
	err = s.db.QueryRow(ctx, `SELECT (SELECT COUNT(*) FROM intent), (SELECT COUNT(*) FROM outcome),
		(SELECT COUNT(*) FROM all_messages WHERE kind IN ('push', 'reply')),
		(SELECT COUNT(*) FROM all_messages WHERE kind = 'push'),
		(SELECT COUNT(*) FROM all_messages WHERE kind IN ('push', 'reply') AND state NOT IN ('queued', 'held', 'sending'))`).
		Scan(&c.intents, &c.outcomes, &c.rows, &c.pushes, &c.ended)
	return c, err
}

// queue is what receipts have committed of the pushes, and where all messages end.
type queue struct{ pushes, end int64 }

func (s *sums) queued(ctx context.Context) (q queue, err error) {
	names := s.w.topics()
	topics := []string{names.Replies("card"), names.Pushes("card", wire.LaneRealtime), names.Pushes("card", wire.LaneBulk)}
	rows, err := s.admin.Lag(ctx, wire.QueuedGroup(names.Prefix+".receipts"), topics)
	for _, r := range rows {
		q.end += max(r.End, 0)
		if r.Topic != topics[0] { // two robots may have answered one callback: under one id
			q.pushes += max(r.Committed, 0)
		}
	}
	return q, err
}

// look compares one view. What is read first can only have grown since.
func (s *sums) look(ctx context.Context) error {
	before, err := s.queued(ctx)
	if err != nil {
		return fmt.Errorf("look at the queue: %w", err)
	}
	c, err := s.census(ctx)
	if err != nil {
		return fmt.Errorf("look at the tables: %w", err)
	}
	after, err := s.queued(ctx)
	if err != nil {
		return fmt.Errorf("look at the queue: %w", err)
	}
	s.looks++
	open := c.intents - c.outcomes
	s.worst = max(s.worst, open)
	switch {
	case open < 0 || open > (s.senders+1)*placesPerSender: // one more: of a sender that was killed, until its letters come again
		return fmt.Errorf("%d messages are begun and have no ending, with %d places per sender", open, placesPerSender)
	case c.ended > c.outcomes:
		return fmt.Errorf("%d rows have ended, and senders have ended %d messages", c.ended, c.outcomes)
	case int64(c.rows) > after.end:
		return fmt.Errorf("%d rows of %d messages that were ever queued", c.rows, after.end)
	case !s.kills && int64(c.pushes) < before.pushes:
		return fmt.Errorf("%d rows of pushes, and receipts have read %d", c.pushes, before.pushes)
	}
	return nil
}

// atRest waits until everything is worked off and demands that nothing is left
// over: intents = outcomes = rows = ended rows, and what the receipts room counts
// is what its store has.
func (s *sums) atRest() census {
	t := s.w.t
	t.Helper()
	var c census
	herd.Wait(t, "all messages to have ended in their rows", time.Minute, func() bool {
		var err error
		c, err = s.census(t.Context())
		require.NoError(t, err)
		return c.intents == c.outcomes && c.outcomes == c.ended && c.ended == c.rows
	})
	s.stop()
	<-s.done
	require.Positive(t, s.looks)
	require.Empty(t, s.deviations[:min(3, len(s.deviations))], "G30: the sums do not add up in %d of %d looks", len(s.deviations), s.looks)
	herd.Wait(t, "the counters of the receipts room to be a recount of its store", time.Minute, func() bool {
		var all int
		require.NoError(t, s.db.QueryRow(t.Context(), "SELECT COUNT(*) FROM all_messages").Scan(&all))
		return int(s.w.parts["receipts0"].Metric("tidegate_receipts_messages")) == all
	})
	return c
}

// row prints the line of the table.
func (s *sums) row(t *testing.T, c census) {
	t.Helper()
	ci(t, "G30  | bar: reports add up at every look: in motion at most what is under way, at rest 0 | measured: %d looks, deviations 0, most under way %d; at rest %d intents = outcomes = rows | kept", s.looks, s.worst, c.rows)
}
