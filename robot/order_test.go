package robot_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/robot"
	"tidegate/robot/backend"
)

// TestEveryCallbackInOrder is the main road: many followers of two accounts,
// answers in the order of questions, one receipt each, everything committed.
func TestEveryCallbackInOrder(t *testing.T) {
	const users, each = 25, 20
	w := newWorld(t, "a", "b")
	var all []*wire.Callback
	for n := range each {
		for u := range users {
			kind := []string{"say", "two", "hush"}[n%3]
			for _, acct := range []string{"a", "b"} {
				all = append(all, callback(acct, fmt.Sprintf("o%s-%d", acct, u), n, fmt.Sprintf("%s %d", kind, n)))
			}
		}
	}
	r := w.start(account("a"), account("b"))
	w.send(all...)
	w.awaitReceipts(len(all))
	var want []string
	for n := range each {
		switch n % 3 {
		case 0:
			want = append(want, fmt.Sprintf("say %d", n))
		case 1:
			want = append(want, fmt.Sprintf("1 two %d", n), fmt.Sprintf("2 two %d", n))
		}
	}
	for u := range users {
		for _, acct := range []string{"a", "b"} {
			require.Equal(t, want, w.texts(fmt.Sprintf("o%s-%d", acct, u)))
		}
	}
	states := map[wire.State]int{}
	for _, rc := range w.receipts() {
		states[rc.State]++
		require.Equal(t, wire.FromRobot, rc.Source)
		require.Equal(t, wire.KindCallback, rc.MessageKind)
		require.NotEmpty(t, rc.TraceParent)
	}
	require.Equal(t, map[wire.State]int{wire.Answered: 14 * users * 2, wire.NotAnswered: 6 * users * 2}, states)
	require.Empty(t, w.dead())
	r.stop()
	require.Zero(t, w.uncommitted("a")+w.uncommitted("b"), "finished is committed")
}

// TestLetterOfAReply pins what the sender relies on, as read by a consumer.
func TestLetterOfAReply(t *testing.T) {
	w := newWorld(t, "a")
	got := make(chan kafka.Record, 4)
	stop := w.consume(w.topics.Replies("a"), got)
	defer stop()
	c := callback("a", "oUser", 1, "two x")
	w.start(account("a"))
	w.send(c)
	for ordinal := 1; ordinal <= 2; ordinal++ {
		rec := <-got
		reply, err := wire.Decode[wire.Reply](rec.Value, rec.Headers)
		require.NoError(t, err)
		hash := idgen.HashOf(c.ID, strconv.Itoa(ordinal))
		id, err := idgen.DeriveBeside(c.ID, hash)
		require.NoError(t, err)
		require.Equal(t, "oUser", string(rec.Key))
		require.Equal(t, id, reply.ID)
		require.Equal(t, id, wire.HeaderValue(rec.Headers, wire.HeaderID))
		require.Equal(t, c.TraceParent, wire.HeaderValue(rec.Headers, wire.HeaderTrace))
		require.Equal(t, &wire.Reply{
			ID: id, IdentityHash: hash.String(), CallbackID: c.ID, Ordinal: ordinal, Account: "a", OpenID: "oUser",
			Content: wire.Content{Type: "text", Text: fmt.Sprintf("%d two x", ordinal)}, Class: wire.PreferDuplicate, Rule: "two",
			ReceivedAt: c.ReceivedAt, CreatedAt: reply.CreatedAt, ExpiresAt: c.ReceivedAt + (48 * time.Hour).Milliseconds(), TraceParent: c.TraceParent,
		}, reply)
	}
	w.awaitReceipts(1)
	rc := w.receipt(c.ID)
	require.Equal(t, c.IdentityHash, rc.IdentityHash)
	require.Equal(t, "rule two", rc.Detail)
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(t, w.topics.Receipts(), w.durable[len(w.durable)-1].Topic, "the receipt is last")
}

// TestCapsHold: the business system sees no more than the account's rate and
// no more at once than its concurrency. The allowance is exact: what arrives
// within a window began within it or was in flight when it began.
func TestCapsHold(t *testing.T) {
	const rate, burst, concurrency, n = 100.0, 5, 3, 120
	w := newWorld(t, "a")
	var mu sync.Mutex
	var at []time.Time
	var now, most int
	w.backend(func(rw http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		at = append(at, time.Now())
		now++
		most = max(most, now)
		mu.Unlock()
		defer func() {
			mu.Lock()
			now--
			mu.Unlock()
		}()
		_, _ = io.WriteString(rw, `{"text":"x"}`)
	})
	w.start(robot.Account{Name: "a", Limits: robot.Limits{Rate: rate, Burst: burst, Concurrency: concurrency}})
	for i := range n {
		w.send(callback("a", fmt.Sprintf("o%d", i), 1, "ask it"))
	}
	w.awaitReceipts(n)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, at, n)
	require.LessOrEqual(t, most, concurrency)
	for i := range at {
		for j := i; j < n; j++ {
			window := at[j].Sub(at[i]).Seconds()
			require.LessOrEqual(t, float64(j-i+1), rate*window+burst+concurrency+1, "from %d to %d in %.3fs", i, j, window)
		}
	}
}

// TestAccountsDoNotWaitForEachOther: a backlog of an account that may do one
// callback in 100 seconds leaves the other account alone.
func TestAccountsDoNotWaitForEachOther(t *testing.T) {
	const n = 40
	w := newWorld(t, "slow", "quick")
	w.cfg.Workers = 4
	w.cfg.Overload = robot.OverloadConfig{AlarmAfter: time.Minute} // refuses none, has room for none
	for i := range 200 {
		w.send(callback("slow", fmt.Sprintf("s%d", i), 1, "hello"))
	}
	r := w.start(robot.Account{Name: "slow", Limits: robot.Limits{Rate: 0.01, Burst: 1}}, account("quick"))
	require.Eventually(t, func() bool { // the slow one's workers must all be waiting
		for _, p := range r.Stats() {
			if p.Topic == w.topics.Callbacks("slow") && p.InFlight > 0 && p.Queued > 0 {
				return true
			}
		}
		return false
	}, patient, 20*time.Millisecond)
	for i := range n {
		w.send(callback("quick", fmt.Sprintf("q%d", i), 1, "hello"))
	}
	quick := func() (k int) {
		for _, rc := range w.receipts() {
			if rc.Account == "quick" {
				k++
			}
		}
		return k
	}
	require.Eventually(t, func() bool { return quick() == n }, patient, 20*time.Millisecond)
	require.LessOrEqual(t, len(w.receipts()), n+2)
}

// TestSlowFollowerDelaysNobodyElse: the second question of a follower waits
// for the first, the others go on.
func TestSlowFollowerDelaysNobodyElse(t *testing.T) {
	w := newWorld(t, "a")
	open := make(chan struct{})
	w.backend(func(rw http.ResponseWriter, _ *http.Request) {
		<-open
		_, _ = io.WriteString(rw, `{"text":"first"}`)
	}, func(c *backend.Config) { c.Timeout = 30 * time.Second })
	w.start(account("a"))
	w.send(callback("a", "oSlow", 1, "ask first"), callback("a", "oSlow", 2, "second"))
	for i := range 20 {
		w.send(callback("a", fmt.Sprintf("o%d", i), 1, "hello"))
	}
	require.Eventually(t, func() bool { return len(w.receipts()) >= 20 }, patient, 10*time.Millisecond)
	require.Len(t, w.receipts(), 20)
	require.Empty(t, w.texts("oSlow"), "the second answer must not overtake the first")
	close(open)
	w.awaitReceipts(22)
	require.Equal(t, []string{"first", "second"}, w.texts("oSlow"))
}

func TestBackendGetsKeyBodyAndTrace(t *testing.T) {
	w := newWorld(t, "a")
	type call struct{ key, trace, text string }
	got := make(chan call, 1)
	w.backend(func(rw http.ResponseWriter, r *http.Request) {
		var body struct{ Text string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		got <- call{r.Header.Get("Idempotency-Key"), r.Header.Get("Traceparent"), body.Text}
		_, _ = io.WriteString(rw, `{"text":"the answer"}`)
	})
	w.start(account("a"))
	c := callback("a", "oUser", 1, "ask \"me\"")
	w.send(c)
	require.Equal(t, call{c.ID, c.TraceParent, "ask \"me\""}, <-got)
	w.awaitReceipts(1)
	require.Equal(t, []string{"the answer"}, w.texts("oUser"))
	require.Equal(t, "rule ask, back end core", w.receipt(c.ID).Detail)
}

// TestRedelivery: the same callback twice in the queue has one effect in one
// process; a second process, which cannot know, makes the same ids.
func TestRedelivery(t *testing.T) {
	w := newWorld(t, "a")
	first := w.start(account("a"))
	c := callback("a", "oUser", 1, "two x")
	w.send(c, c, callback("a", "oUser", 2, "after"))
	w.awaitReceipts(2)
	first.stop()
	require.Equal(t, []string{"1 two x", "2 two x", "after"}, w.texts("oUser"))
	ids := idsOf(w.replies())

	w.mu.Lock()
	w.durable = nil
	w.mu.Unlock()
	w.cfg.Group += "-again" // reads everything once more
	w.start(account("a"))
	w.awaitReceipts(2)
	require.Equal(t, ids, idsOf(w.replies()))
}

func idsOf(rs []*wire.Reply) (ids []string) {
	for _, r := range rs {
		ids = append(ids, r.ID)
	}
	return ids
}

// TestStopAndStartLosesNothing stops robots in the middle of their work, again
// and again; every callback is settled and every repeated reply has its id.
func TestStopAndStartLosesNothing(t *testing.T) {
	const users, each = 20, 10
	w := newWorld(t, "a")
	var calls atomic.Int64
	w.backend(func(rw http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		_, _ = io.WriteString(rw, `{"text":"x"}`)
	})
	for n := range each {
		for u := range users {
			w.send(callback("a", fmt.Sprintf("o%d", u), n, fmt.Sprintf("ask %d", n)))
		}
	}
	limits := robot.Limits{Rate: 100, Burst: 1}
	settled := func() int {
		seen := map[string]bool{}
		for _, rc := range w.receipts() {
			seen[rc.ID] = true
		}
		return len(seen)
	}
	for round := 1; round <= 3; round++ {
		r := w.start(robot.Account{Name: "a", Limits: limits})
		require.Eventually(t, func() bool { return settled() >= round*25 }, patient, 5*time.Millisecond)
		require.Less(t, settled(), users*each, "the stop must come in the middle of the work")
		r.stop()
	}
	w.start(account("a"))
	require.Eventually(t, func() bool { return settled() == users*each }, patient, 20*time.Millisecond)
	byID := map[string]string{}
	for _, r := range w.replies() {
		of := r.CallbackID + "/" + strconv.Itoa(r.Ordinal)
		if was, ok := byID[of]; ok {
			require.Equal(t, was, r.ID)
		}
		byID[of] = r.ID
	}
	require.Len(t, byID, users*each)
}

// TestAccountsAndRulesChangeLive adds, changes and removes while running.
func TestAccountsAndRulesChangeLive(t *testing.T) {
	w := newWorld(t, "a", "b")
	r := w.start(account("a"))
	w.send(callback("a", "o1", 1, "hello"), callback("b", "o2", 1, "hello"))
	w.awaitReceipts(1)
	require.NoError(t, r.SetAccounts([]robot.Account{account("a"), account("b")}))
	w.awaitReceipts(2)

	require.Error(t, r.SetAccounts([]robot.Account{account("a"), account("a")}))
	require.Error(t, r.SetAccounts([]robot.Account{account("Not An Account")}))
	require.Error(t, r.SetAccounts([]robot.Account{{Name: "a", Limits: robot.Limits{Rate: -1}}}))

	require.NoError(t, r.SetAccounts([]robot.Account{{Name: "b", Limits: robot.Limits{Concurrency: 200}}}))
	w.send(callback("a", "o1", 2, "hello"), callback("b", "o2", 2, "hello"))
	w.awaitReceipts(3)
	require.Equal(t, []string{"hello", "hello"}, w.texts("o2"))
	require.NoError(t, r.SetAccounts([]robot.Account{account("a"), account("b")}))
	w.awaitReceipts(4)

	require.ErrorContains(t, r.SetRules(rulesOf(t, "- {name: x, match: {default: true}, call: {backend: other, path: /x}}")), `"other"`)
	require.Error(t, r.SetRules(nil))
	require.NoError(t, r.SetRules(rulesOf(t, "- {name: x, match: {default: true}, reply: {text: new}}")))
	w.send(callback("a", "o3", 1, "hello"))
	w.awaitReceipts(5)
	require.Equal(t, []string{"new"}, w.texts("o3"))
}
