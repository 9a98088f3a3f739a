package sender_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
	"tidegate/sender/intent"
)

// flaky is a producer whose records to one topic fail, or arrive unconfirmed.
type flaky struct {
	*kafka.Producer
	topic string
	fail  atomic.Int64 // so many more publishes fail
	lost  atomic.Bool  // they arrive all the same
	hits  atomic.Int64
}

func (f *flaky) Publish(ctx context.Context, r kafka.Record) (kafka.Record, error) {
	if r.Topic != f.topic || f.fail.Add(-1) < 0 {
		return f.Producer.Publish(ctx, r)
	}
	f.hits.Add(1)
	if f.lost.Load() {
		if _, err := f.Producer.Publish(ctx, r); err != nil {
			return r, err
		}
		return r, fault.New(fault.Ambiguous, "publish", "no answer in time")
	}
	return r, fault.New(fault.Unavailable, "publish", "no broker")
}

// The outcome is known and cannot be published: the letter must not go again.
func TestOutcomeThatCannotBePublishedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("lost=", lost), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			f := &flaky{Producer: w.producer, topic: w.topics().Receipts()}
			f.fail.Store(3)
			f.lost.Store(lost)
			w.start(func(s *setup) { s.publisher = f })
			id := w.reply("exactly once")
			require.Eventually(t, func() bool { return f.hits.Load() == 3 }, 20*time.Second, 5*time.Millisecond)
			require.Equal(t, wire.Accepted, w.outcome(id).State)
			next := w.reply("behind it")
			require.Equal(t, wire.Accepted, w.outcome(next).State)
			require.Len(t, w.arrivals(wechatsim.PathCustomSend), 2)
		})
	}
}

// begun makes the database look as if another process had begun a message.
func (w *world) begun(k intent.Key, ago time.Duration) {
	w.t.Helper()
	db, err := sqldb.Open(w.t.Context(), w.db)
	require.NoError(w.t, err)
	s, err := intent.Open(w.t.Context(), db, intent.Options{Node: "dead", Now: func() time.Time { return time.Now().Add(-ago) }}, nil)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	_, err = s.Begin(w.t.Context(), k)
	require.NoError(w.t, err)
	cancel()
	<-done
	require.NoError(w.t, db.Close())
}

// begunLater is begun for a letter that is being made.
func (w *world) begunLater(hash, openID string, ago time.Duration) {
	h, err := hex.DecodeString(hash)
	require.NoError(w.t, err)
	w.begun(intent.Key{ID: idgen.Derive(idgen.User(appID, openID), idgen.Hash(h)), IdentityHash: hash}, ago)
}

// A letter comes back whose intent is there (D7).
func TestLettersWithAnUnknownPast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	young := w.push("young", func(p *wire.Push) { w.begunLater(p.IdentityHash, p.OpenID, 7*time.Minute) })
	old := w.push("old", func(p *wire.Push) { w.begunLater(p.IdentityHash, p.OpenID, 8*time.Minute) })
	reply := w.reply("reply", func(r *wire.Reply) { w.begunLater(r.IdentityHash, r.OpenID, time.Minute) })
	loss := w.reply("loss", func(r *wire.Reply) {
		r.Class = wire.PreferLoss
		w.begunLater(r.IdentityHash, r.OpenID, time.Minute)
	})
	w.start()
	require.Equal(t, wire.Accepted, w.outcome(young).State, "the same client_msg_id: WeChat absorbs it")
	got := w.outcome(old)
	require.Equal(t, wire.Unknown, got.State)
	require.Zero(t, got.Attempt, "G9: not resent by itself")
	got = w.outcome(reply)
	require.Equal(t, wire.Accepted, got.State)
	require.True(t, got.PossibleDuplicate)
	require.Equal(t, wire.Unknown, w.outcome(loss).State)
	require.Len(t, w.arrivals(wechatsim.PathTemplateSend), 1)
	require.Len(t, w.arrivals(wechatsim.PathCustomSend), 1)
}

// No intent, no send: the database is away.
func TestDatabaseAwayNothingIsSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	require.Equal(t, wire.Accepted, w.outcome(w.push("before")).State)
	lock, err := sqldb.Open(t.Context(), w.db)
	require.NoError(t, err)
	defer func() { require.NoError(t, lock.Close()) }()
	release, locked := make(chan struct{}), make(chan struct{})
	held := make(chan error, 1)
	go func() {
		held <- lock.Tx(context.Background(), func(ctx context.Context, tx *sqldb.Tx) error {
			defer close(locked)                // so that a failure is not waited for
			if w.db.Driver == sqldb.Postgres { // SQLite has locked the whole file already
				if _, err := tx.Exec(ctx, "LOCK TABLE intent"); err != nil {
					return err
				}
			}
			locked <- struct{}{}
			<-release
			return nil
		})
	}()
	<-locked
	id := w.push("during")
	require.Never(t, func() bool { return len(w.arrivals(wechatsim.PathTemplateSend)) > 1 }, 700*time.Millisecond, 20*time.Millisecond)
	close(release)
	require.NoError(t, <-held)
	require.Equal(t, wire.Accepted, w.outcome(id).State)
}
