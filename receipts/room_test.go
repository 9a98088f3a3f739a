package receipts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
	"tidegate/receipts"
	"tidegate/receipts/store"
)

func TestTheStoryOfAPush(t *testing.T) {
	each(t, func(w *world) {
		const msgID = "9007199254740993" // JavaScript would make it …992 (T52)
		p := w.push(1)
		w.event(p, msgID, wire.Delivered) // before everything else
		w.queue(p)
		w.outcome(p, wire.Sending)
		w.outcome(p, wire.Accepted, func(r *wire.Receipt) { r.MsgID = msgID })
		got := w.message(p.ID, wire.Delivered)
		require.Equal(w, msgID, got["msg_id"])
		require.Equal(w, p.ID, got["id"])
		require.Equal(w, "bill 1", got["reference"])
		require.Equal(w, true, got["terminal"])
		require.Eventually(w, func() bool {
			return len(w.message(p.ID, wire.Delivered)["timeline"].([]any)) == 4
		}, 10*time.Second, 10*time.Millisecond, "queued is learnt from the pushes topic")
		_, _, text := w.fetch("card", http.MethodGet, "/v1/messages/"+p.ID, nil)
		require.Contains(w, string(text), `"msg_id":"9007199254740993"`)
	})
}

func TestRepliesCallbacksAndRepeatsGetRows(t *testing.T) {
	each(t, func(w *world) {
		callback, hash := idOf(1)
		reply, replyHash := idOf(2)
		repeat, _ := idOf(3)
		w.put(w.topics.Replies("bank"), &wire.Reply{ID: reply, IdentityHash: replyHash, CallbackID: callback, Account: "bank", OpenID: openID(1),
			Content: wire.Content{Type: "text", Text: "hi"}, Rule: "greeting", CreatedAt: time.Now().UnixMilli()})
		w.put(w.topics.Receipts(), &wire.Receipt{Source: wire.FromRobot, MessageKind: wire.KindCallback, ID: callback, IdentityHash: hash,
			Account: "bank", OpenID: openID(1), State: wire.Answered, Detail: "greeting", At: time.Now().UnixMilli()})
		w.put(w.topics.Repeats(), &wire.Repeat{ID: repeat, Account: "bank", OpenID: openID(1), Action: "CLICK bill", Reason: "pressed twice", At: time.Now().UnixMilli()})
		w.message(callback, wire.Answered)
		w.message(repeat, wire.Repeated)
		require.Equal(w, callback, w.message(reply, wire.Queued)["callback_id"])
		_, page := w.call("ops", http.MethodGet, "/v1/messages?callback_id="+callback, nil)
		require.Len(w, page["messages"], 1)
	})
}

func TestCallbacksAreNotKeptWhereSoConfigured(t *testing.T) {
	each(t, func(w *world) {
		id, hash := idOf(50)
		w.put(w.topics.Receipts(), &wire.Receipt{Source: wire.FromRobot, MessageKind: wire.KindCallback, ID: id, IdentityHash: hash, Account: "bank", OpenID: openID(1), State: wire.Answered, At: time.Now().UnixMilli()})
		p := w.push(1) // the same follower, hence the same partition, behind it
		w.outcome(p, wire.Dead)
		w.message(p.ID, wire.Dead)
		code, _ := w.call("ops", http.MethodGet, "/v1/messages/"+id, nil)
		require.Equal(w, http.StatusNotFound, code)
	}, func(c *receipts.Config) { c.KeepCallbacks = false })
}

func TestUnreadableLettersBecomeDeadLetters(t *testing.T) {
	each(t, func(w *world) {
		header := func(kind, v string) []kafka.Header {
			return []kafka.Header{{Key: wire.HeaderKind, Value: []byte(kind)}, {Key: wire.HeaderVersion, Value: []byte(v)}, {Key: wire.HeaderID, Value: []byte("x")}}
		}
		good, _ := json.Marshal(&wire.Receipt{Source: wire.FromSender, MessageKind: wire.KindPush, Account: "bank", State: "exploded"})
		stranger := w.push(7)
		stranger.Account = "shop"
		_, strangeValue, strangeHeaders, err := wire.Encode(stranger)
		require.NoError(w, err)
		bad := []kafka.Record{
			{Topic: w.topics.Receipts(), Key: []byte(openID(1)), Value: []byte("{"), Headers: header("receipt", "1")},
			{Topic: w.topics.Receipts(), Key: []byte(openID(1)), Value: []byte("{}"), Headers: header("telegram", "1")},
			{Topic: w.topics.Receipts(), Key: []byte(openID(1)), Value: []byte("{}"), Headers: header("receipt", "99")},
			{Topic: w.topics.Receipts(), Key: []byte(openID(1)), Value: []byte("{}")},
			{Topic: w.topics.Receipts(), Key: []byte(openID(1)), Value: good, Headers: header("receipt", "1")},
			{Topic: w.topics.Receipts(), Key: []byte(openID(1)), Value: []byte(strings.Repeat("x", wire.MaxValue+1)), Headers: header("receipt", "1")},
			{Topic: w.topics.Pushes("bank", wire.LaneBulk), Key: []byte(openID(7)), Value: strangeValue, Headers: strangeHeaders},
		}
		for _, r := range bad {
			w.raw(r)
		}
		p := w.push(1) // behind them, in their partition
		w.outcome(p, wire.Dead)
		w.message(p.ID, wire.Dead)

		seen := map[string]bool{}
		for _, rec := range w.read(w.topics.DeadLetters(), len(bad)) {
			d, err := wire.Decode[wire.DeadLetter](rec.Value, rec.Headers)
			require.NoError(w, err)
			require.Equal(w, "receipts", d.Room)
			require.NotEmpty(w, d.Reason)
			require.NotContains(w, d.Reason, "exploded", "a letter is not quoted")
			seen[d.Reason] = true
			if len(d.Value) > 0 {
				require.Contains(w, []string{"{", "{}", string(good), string(strangeValue)}, string(d.Value), "kept whole")
			} else {
				require.Contains(w, d.Reason, "too large")
			}
		}
		require.GreaterOrEqual(w, len(seen), 5, "%v", seen)
		code, _ := w.call("ops", http.MethodGet, "/v1/messages/"+stranger.ID, nil)
		require.Equal(w, http.StatusNotFound, code, "a letter of another account than its topic makes no row")
	})
}

// While dead letters cannot be published, their partition waits: nothing is
// committed past them.
func TestDeadLettersAreDurableBeforeTheCommit(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t))
	w.gate.shut(func([]kafka.Record) error { return fault.New(fault.Unavailable, "publish", "no broker") })
	w.raw(kafka.Record{Topic: w.topics.Receipts(), Key: []byte(openID(1)), Value: []byte("{"), Headers: nil})
	require.Eventually(w, func() bool { return w.gate.count() >= 2 }, 20*time.Second, 10*time.Millisecond)
	w.stop()
	w.gate.shut(nil)
	w.reg = prometheus.NewRegistry()
	w.open()
	w.start() // another life: the record is still there
	w.read(w.topics.DeadLetters(), 1)
}

// The database goes away and comes back: news waits in the queue, the API says
// so, and nothing is lost.
func TestNewsWaitsForTheDatabase(t *testing.T) {
	c := sqldbtest.SQLiteConfig(t)
	c.Timeout = 200 * time.Millisecond
	db, err := sqldb.Open(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	w := newWorld(t, db)
	other, err := sqldb.Open(t.Context(), sqldb.Config{Driver: c.Driver, DSN: c.DSN, Timeout: 20 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	p := w.push(1)
	err = other.Tx(t.Context(), func(ctx context.Context, tx *sqldb.Tx) error { // holds the only write lock
		w.outcome(p, wire.Dead)
		require.Eventually(t, func() bool {
			n, err := applied(w)
			return err == nil && n >= 2
		}, 15*time.Second, 10*time.Millisecond, "the room tried and failed")
		code, _ := w.call("ops", http.MethodGet, "/v1/messages/"+p.ID, nil)
		require.Equal(t, http.StatusNotFound, code)
		return nil
	})
	require.NoError(t, err)
	w.message(p.ID, wire.Dead)
}

func TestPushWithoutReceiptTimesOut(t *testing.T) {
	each(t, func(w *world) {
		p := w.push(1)
		w.queue(p)
		w.outcome(p, wire.Accepted, func(r *wire.Receipt) { r.MsgID = "77" })
		w.message(p.ID, wire.Accepted)
		w.clock.step(w.cfg.NoReceiptAfter + time.Minute)
		got := w.message(p.ID, wire.NoReceipt)
		require.Equal(w, "no receipt came", got["reason"])
		w.event(p, "77", wire.Delivered)
		w.message(p.ID, wire.Delivered)
	})
}

func TestOldRowsGo(t *testing.T) {
	each(t, func(w *world) {
		p := w.push(1)
		w.queue(p)
		w.event(w.push(2), "404", wire.Delivered) // foreign
		w.message(p.ID, wire.Queued)
		parking := func(waiting, foreign int64) func() bool {
			return func() bool {
				a, b, err := w.room.Store().Parking(context.Background())
				return err == nil && a == waiting && b == foreign
			}
		}
		require.Eventually(w, parking(1, 0), 20*time.Second, 10*time.Millisecond)
		w.clock.step(w.cfg.ParkFor + time.Minute)
		require.Eventually(w, parking(0, 1), 20*time.Second, 10*time.Millisecond)
		w.clock.step(w.cfg.Retention)
		require.Eventually(w, parking(0, 0), 20*time.Second, 10*time.Millisecond)
		w.settled(0, wire.Queued)
	})
}

// An account that is added while the room runs is picked up (D4).
func TestAccountsChangeLive(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t))
	require.NoError(t, w.room.SetAccounts([]string{"bank"}))
	require.Error(t, w.room.SetAccounts([]string{"receipts"}))
	p := w.push(1)
	p.Account = "shop"
	w.queue(p)
	require.NoError(t, w.room.SetAccounts([]string{"bank", "shop"}))
	w.message(p.ID, wire.Queued)
}

// 300 pushes whose letters, outcomes and events come shuffled and doubled, over
// a restart in the middle: one row each, all joined, the sums right (G20, G30).
func TestStormIsJoined(t *testing.T) {
	each(t, func(w *world) {
		const pushes = 300
		var jobs []func()
		for n := range pushes {
			p, msgID := w.push(n), fmt.Sprint(900_000+n)
			jobs = append(jobs,
				func() { w.queue(p) },
				func() { w.outcome(p, wire.Accepted, func(r *wire.Receipt) { r.MsgID = msgID }) },
				func() { w.event(p, msgID, wire.Delivered) },
				func() { w.event(p, msgID, wire.Delivered) })
		}
		rng := rand.New(rand.NewPCG(1, 2))
		rng.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
		for i, j := range jobs {
			if i == len(jobs)/2 {
				w.stop()
				w.reg = prometheus.NewRegistry()
				w.open()
				w.start()
			}
			j()
		}
		w.settled(pushes, wire.Delivered)
		require.Eventually(w, func() bool {
			ts, err := w.room.Store().Tallies(context.Background(), time.Time{}, time.Time{})
			return err == nil && len(ts) == 1 && ts[0].N == pushes
		}, 20*time.Second, 10*time.Millisecond)
		n, err := w.room.Store().Count(context.Background(), store.Filter{}, 10*pushes)
		require.NoError(w, err)
		require.Equal(w, pushes, n)
		waiting, foreign, err := w.room.Store().Parking(context.Background())
		require.NoError(w, err)
		require.Zero(w, waiting+foreign)
	})
}

func TestWrongSettingsAreNamed(t *testing.T) {
	for field, change := range map[string]func(*receipts.Config){
		"group":            func(c *receipts.Config) { c.Group = "" },
		"workers":          func(c *receipts.Config) { c.Workers = 0 },
		"no_receipt_after": func(c *receipts.Config) { c.NoReceiptAfter = 0 },
		"retention":        func(c *receipts.Config) { c.Retention = time.Hour },
		"report.location":  func(c *receipts.Config) { c.Report.Location = "Mars/Olympus" },
		"report.schedule":  func(c *receipts.Config) { c.Report.Schedule = "sometimes" },
		"report.catch_up":  func(c *receipts.Config) { c.Report.CatchUp = -time.Second },
		"report.attempts":  func(c *receipts.Config) { c.Report.Attempts = 0 },
		"resend.max":       func(c *receipts.Config) { c.Resend.Max = 0 },
		"resend.timeout":   func(c *receipts.Config) { c.Resend.Timeout = 0 },
	} {
		c := receipts.DefaultConfig()
		require.NoError(t, c.Validate())
		change(&c)
		err := c.Validate()
		require.ErrorContains(t, err, "receipts."+field)
		require.Equal(t, "receipts."+field, fault.FieldOf(err))
		_, err = receipts.New(t.Context(), c, receipts.Deps{})
		require.Error(t, err)
	}
}

// No openid, no content and no key may reach a log line (S50).
func TestLogsHoldNothingPersonal(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t))
	p := w.push(1)
	w.queue(p)
	w.outcome(p, wire.Rejected)
	w.raw(kafka.Record{Topic: w.topics.Receipts(), Key: []byte(openID(1)), Value: []byte(`{"openid":"` + openID(1) + `"`)})
	w.message(p.ID, wire.Rejected)
	w.read(w.topics.DeadLetters(), 1)
	w.stop()
	require.NotZero(t, w.logs.FilterMessageSnippet("dead letter").Len())
	for _, e := range w.logs.All() {
		line, err := json.Marshal(e.ContextMap())
		require.NoError(t, err)
		for _, secret := range []string{openID(1), "账单", w.keys["card"]} {
			require.NotContains(t, e.Message+string(line), secret)
		}
	}
}

// applied is how often the room has tried to join a batch.
func applied(w *world) (uint64, error) {
	families, err := w.reg.Gather()
	for _, f := range families {
		if f.GetName() == "tidegate_receipts_apply_seconds" {
			return f.GetMetric()[0].GetHistogram().GetSampleCount(), err
		}
	}
	return 0, err
}
