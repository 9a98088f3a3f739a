package robot_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/robot"
	"tidegate/robot/backend"
	"tidegate/robot/engine"
)

func rulesOf(t *testing.T, list string) *engine.Rules {
	t.Helper()
	r, err := engine.Parse("rules.yaml", []byte("version: 1\nrules:\n"+list), engine.Known{})
	require.NoError(t, err)
	return r
}

// consume reads a topic into a channel, as another room would.
func (w *world) consume(topic string, out chan<- kafka.Record) (stop func()) {
	w.t.Helper()
	g, err := kafka.NewGroup(w.kafka, kafka.GroupOptions{
		Group: w.group + "-reader", Topics: []string{topic},
		Handler: func(ctx context.Context, r kafka.Record) error {
			select {
			case out <- r:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}, zap.NewNop(), prometheus.NewRegistry())
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	return func() { cancel(); require.NoError(w.t, <-done) }
}

func TestFailingBackendLeadsToFallback(t *testing.T) {
	w := newWorld(t, "a")
	var calls atomic.Int64
	w.backend(func(rw http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		rw.WriteHeader(http.StatusInternalServerError)
	}, func(c *backend.Config) {
		c.Attempts, c.BackoffMin, c.BackoffMax = 2, time.Millisecond, time.Millisecond
	})
	w.start(account("a"))
	own, general := callback("a", "o1", 1, "ask a"), callback("a", "o2", 1, "bare")
	w.send(own, callback("a", "o1", 2, "after"))
	w.awaitReceipts(2)
	require.Equal(t, []string{"core is away", "after"}, w.texts("o1"))
	rc := w.receipt(own.ID)
	require.Equal(t, wire.Answered, rc.State)
	require.Equal(t, "fallback text: call back end core: it answered with status 500", rc.Reason)
	require.Equal(t, int64(2), calls.Load())

	general.Content = "bare x"
	w.send(general)
	w.awaitReceipts(3)
	require.Equal(t, []string{"busy"}, w.texts("o2"), "the file's fallback where the rule has none")
}

func TestAnswerThatDoesNotFitLeadsToFallback(t *testing.T) {
	w := newWorld(t, "a")
	w.backend(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, `{"private":"4111-1111"}`) })
	w.start(account("a"))
	c := callback("a", "o1", 1, "bare 4111-1111")
	w.send(c)
	w.awaitReceipts(1)
	require.Equal(t, []string{"busy"}, w.texts("o1"))
	require.Contains(t, w.receipt(c.ID).Reason, "is missing")
	require.NotContains(t, w.receipt(c.ID).Reason, "4111")
	for _, l := range w.logs.All() {
		require.NotContains(t, l.Message, "4111")
		for _, v := range l.ContextMap() {
			require.NotContains(t, v, "4111")
			require.NotEqual(t, "o1", v, "no openid in logs")
		}
	}
}

func TestFailureWithoutFallbackIsDead(t *testing.T) {
	w := newWorld(t, "a")
	w.engine = rulesOf(t, "- {name: x, match: {default: true}, call: {backend: core, path: /x}, reply: {text: x}}")
	w.start(account("a"))
	c := callback("a", "o1", 1, "x")
	w.send(c)
	w.awaitReceipts(1)
	require.Empty(t, w.replies())
	require.Equal(t, wire.Dead, w.receipt(c.ID).State)
	require.Contains(t, w.receipt(c.ID).Reason, "cannot connect")
	require.Len(t, w.dead(), 1, "whoever says dead must find the letter")
	require.Equal(t, c.ID, w.dead()[0].ID)
	require.Equal(t, w.receipt(c.ID).Reason, w.dead()[0].Reason)
}

func TestWorkEndsAtMaxAge(t *testing.T) {
	w := newWorld(t, "a")
	w.cfg.MaxAge = time.Second
	w.backend(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}, func(c *backend.Config) { c.Timeout = 30 * time.Second })
	w.start(account("a"))
	c := callback("a", "o1", 1, "ask x")
	w.send(c, callback("a", "o1", 2, "after"))
	w.awaitReceipts(2)
	require.Equal(t, []string{"core is away", "after"}, w.texts("o1"))
	require.Equal(t, wire.Dead, w.receipt(c.ID).State)
	require.Contains(t, w.receipt(c.ID).Reason, "max_age 1s")
	require.Len(t, w.dead(), 1)
}

// TestUnreadableIsParked: whatever lies in the topic, the follower behind it
// is served, and the record is kept whole.
func TestUnreadableIsParked(t *testing.T) {
	w := newWorld(t, "a")
	encode := func(change func(*wire.Callback)) kafka.Record {
		c := callback("a", "oUser", 1, "secret text")
		change(c)
		key, value, headers, err := wire.Encode(c)
		require.NoError(t, err)
		return kafka.Record{Key: key, Value: value, Headers: headers}
	}
	good := encode(func(*wire.Callback) {})
	kind := encode(func(*wire.Callback) {})
	kind.Headers = append([]kafka.Header{{Key: wire.HeaderKind, Value: []byte("hologram")}}, kind.Headers...)
	newer := encode(func(*wire.Callback) {})
	newer.Headers = append([]kafka.Header{{Key: wire.HeaderVersion, Value: []byte("99")}}, newer.Headers...)
	other := encode(func(*wire.Callback) {})
	other.Key = []byte("oSomebodyElse")
	cases := []struct {
		rec     kafka.Record
		reason  string
		receipt bool
	}{
		{kafka.Record{Key: []byte("oUser"), Value: []byte("{")}, "no callback letter", false},
		{kafka.Record{Key: []byte("oUser"), Value: []byte(`{"id": 5, "content": "secret text"`), Headers: good.Headers}, "no JSON", true},
		{kind, "no callback letter", true},
		{newer, "newer release", true},
		{other, "another follower", true},
		{encode(func(c *wire.Callback) { c.Account = "b" }), "another account", true},
		{encode(func(c *wire.Callback) { c.ID = "7" }), "no message id", false},
		{encode(func(c *wire.Callback) { c.OpenID = "not an openid" }), "no openid", true},
		{encode(func(c *wire.Callback) { c.IdentityHash = "" }), "no SHA-256", true},
		{kafka.Record{}, "no callback letter", false},
	}
	w.start(account("a"))
	receipts := 1
	for _, c := range cases {
		w.raw("a", c.rec)
		if c.receipt {
			receipts++
		}
	}
	last := callback("a", "oUser", 2, "hello")
	w.send(last)
	w.awaitReceipts(receipts)
	require.Eventually(t, func() bool { return len(w.dead()) == len(cases) }, patient, 10*time.Millisecond)
	require.Equal(t, []string{"hello"}, w.texts("oUser"))
	require.Empty(t, w.texts("oSomebodyElse"))
	require.Equal(t, wire.Answered, w.receipt(last.ID).State)
	for _, c := range cases {
		found := false
		for _, d := range w.dead() {
			if string(d.Value) == string(c.rec.Value) && string(d.Key) == string(c.rec.Key) && strings.Contains(d.Reason, c.reason) {
				found = true
				require.Equal(t, "robot", d.Room)
				require.Equal(t, w.topics.Callbacks("a"), d.Topic)
				require.NotContains(t, d.Reason, "secret")
			}
		}
		require.True(t, found, c.reason)
	}
}

func TestAnsweredAndQuarantinedAreNotAnsweredAgain(t *testing.T) {
	w := newWorld(t, "a")
	w.start(account("a"))
	answered, trap, silent := callback("a", "o1", 1, "hours"), callback("a", "o2", 1, "x"), callback("a", "o3", 1, "x")
	answered.Answered = "opening-hours"
	trap.Answered, trap.Quarantined, trap.Body = engine.RuleFallback, "two openids", []byte("<xml/>")
	silent.Quarantined, silent.OpenID = "no sender", ""
	w.send(answered, trap, silent)
	w.awaitReceipts(3)
	require.Empty(t, w.replies())
	require.Equal(t, wire.Answered, w.receipt(answered.ID).State)
	require.Contains(t, w.receipt(answered.ID).Detail, "opening-hours")
	require.Equal(t, wire.Answered, w.receipt(trap.ID).State)
	require.Equal(t, "quarantined: two openids", w.receipt(trap.ID).Reason)
	require.Equal(t, wire.Dead, w.receipt(silent.ID).State)
	require.Len(t, w.dead(), 2, "the originals are kept")
}

// TestPublishFailureHoldsTheKey: the key waits, others go on, the back end is
// asked once, and what is published at last is what was decided first.
func TestPublishFailureHoldsTheKey(t *testing.T) {
	w := newWorld(t, "a")
	var calls, refused atomic.Int64
	w.backend(func(rw http.ResponseWriter, _ *http.Request) {
		n := calls.Add(1)
		_, _ = io.WriteString(rw, `{"text":"call `+string(rune('0'+n))+`"}`)
	})
	var open atomic.Bool
	w.setRefuse(func(r kafka.Record) error {
		if r.Topic == w.topics.Replies("a") && string(r.Key) == "oHeld" && !open.Load() {
			refused.Add(1)
			return fault.New(fault.Unavailable, "publish", "away")
		}
		return nil
	})
	w.start(account("a"))
	w.send(callback("a", "oHeld", 1, "ask x"), callback("a", "oHeld", 2, "second"))
	for i := range 10 {
		w.send(callback("a", "oFree", i, "hello"))
	}
	require.Eventually(t, func() bool { return len(w.receipts()) == 10 && refused.Load() >= 3 }, patient, 10*time.Millisecond)
	require.Empty(t, w.texts("oHeld"))
	open.Store(true)
	w.awaitReceipts(12)
	require.Equal(t, []string{"call 1", "second"}, w.texts("oHeld"))
	require.Equal(t, int64(1), calls.Load())
}

// TestReceiptFailureRepeatsNoReply: of two replies and a receipt only what is
// missing is published again.
func TestReceiptFailureRepeatsNoReply(t *testing.T) {
	w := newWorld(t, "a")
	var refused atomic.Int64
	w.setRefuse(func(r kafka.Record) error {
		if r.Topic == w.topics.Receipts() && refused.Add(1) <= 3 {
			return fault.New(fault.Ambiguous, "publish", "no answer")
		}
		return nil
	})
	w.start(account("a"))
	w.send(callback("a", "oUser", 1, "two x"))
	w.awaitReceipts(1)
	require.Equal(t, []string{"1 two x", "2 two x"}, w.texts("oUser"))
	require.Equal(t, int64(4), refused.Load())
}

// TestRepliesRefusedForGoodBecomeDeadLetters: while receipts can be written
// and replies cannot, a follower is not held for longer than max_age.
func TestRepliesRefusedForGoodBecomeDeadLetters(t *testing.T) {
	w := newWorld(t, "a")
	w.cfg.MaxAge = time.Second
	w.setRefuse(func(r kafka.Record) error {
		switch {
		case r.Topic != w.topics.Replies("a"):
			return nil
		case string(r.Key) == "oLarge":
			return fault.New(fault.Invalid, "publish", "too large")
		}
		return fault.New(fault.Denied, "publish", "no right")
	})
	w.start(account("a"))
	c := callback("a", "oUser", 1, "hello")
	large := callback("a", "oLarge", 1, "hello")
	w.send(c, callback("a", "oUser", 2, "hush x"), large)
	w.awaitReceipts(3)
	require.Equal(t, wire.Dead, w.receipt(c.ID).State)
	require.Contains(t, w.receipt(c.ID).Reason, "denied")
	require.Contains(t, w.receipt(large.ID).Reason, "invalid")
	require.Len(t, w.dead(), 2)
	require.Empty(t, w.replies())
}

// poison is an engine with a bug.
type poison struct{ robot.Engine }

func (p poison) Decide(c *wire.Callback) (engine.Decision, error) {
	if strings.HasPrefix(c.Content, "poison") {
		panic(errors.New("quoting " + c.Content))
	}
	return p.Engine.Decide(c)
}

func TestPanicIsIsolated(t *testing.T) {
	w := newWorld(t, "a")
	w.engine = poison{w.engine}
	w.start(account("a"))
	c := callback("a", "oUser", 1, "poison")
	w.send(c, callback("a", "oUser", 2, "after"), callback("a", "oOther", 1, "hello"))
	w.awaitReceipts(3)
	require.Equal(t, []string{"busy", "after"}, w.texts("oUser"))
	require.Equal(t, []string{"hello"}, w.texts("oOther"))
	require.Equal(t, wire.Dead, w.receipt(c.ID).State)
	require.Equal(t, "panic: *errors.errorString", w.receipt(c.ID).Reason)
	require.Len(t, w.dead(), 1)
}

// TestBugOutsideTheEngine: a panic anywhere else in the work of one record
// parks that record as well.
func TestBugOutsideTheEngine(t *testing.T) {
	w := newWorld(t, "a")
	var first atomic.Bool
	w.now = func() time.Time {
		if first.CompareAndSwap(false, true) {
			panic("a broken clock")
		}
		return time.Now()
	}
	w.start(account("a"))
	c := callback("a", "oUser", 1, "hello")
	w.send(c, callback("a", "oUser", 2, "after"))
	w.awaitReceipts(2)
	require.True(t, first.Load())
	require.Equal(t, []string{"after"}, w.texts("oUser"))
	require.Equal(t, wire.Dead, w.receipt(c.ID).State)
	require.Len(t, w.dead(), 1)
}
