package robot_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/alarm"
	"tidegate/pkg/wire"
	"tidegate/robot"
	"tidegate/robot/backend"
	"tidegate/robot/engine"
)

// TestQuestionsAlone: more questions than can be worked. Who is answered has not
// waited for long, and payments do not wait at all.
func TestQuestionsAlone(t *testing.T) {
	span := long(t)
	if span == 0 {
		t.Skip("a question of time: TIDEGATE_TEST_OVERLOAD; TestLineOfQuestionsOnly is the short form")
	}
	w := newOverloaded(t, func(c *backend.Config) { c.Rate, c.Burst, c.Concurrency = rate, 20, 50 })
	w.cfg.Overload.Query, w.cfg.Overload.Event, w.cfg.Overload.Marketing = time.Second, time.Second, time.Second
	w.start(account("a"))
	offered, done := w.offer([engine.Levels]int{engine.Vital: 20, engine.Query: 580}, span)
	w.settled(offered[engine.Vital] + offered[engine.Query])
	waits, refused := w.waits()
	w.table("questions alone, overload.query 1s", offered, span)
	w.bar("user replies p99", "<= 2s", p99(waits[engine.Query]), p99(waits[engine.Query]) <= 2*time.Second)
	w.bar("payments p99", "<= 2s", p99(waits[engine.Vital]), p99(waits[engine.Vital]) <= 2*time.Second)
	w.bar("payments refused", "0", refused[engine.Vital], refused[engine.Vital] == 0)
	w.bar("permits used", ">= 95 %", fmt.Sprintf("%.1f %%", used(done, span)), used(done, span) >= 95)
}

// TestBacklogOfMarketing: payments come behind a backlog that takes minutes to
// work. They are answered before most of it is.
func TestBacklogOfMarketing(t *testing.T) {
	const payments, slow = 30, 50
	backlog := 800
	if long(t) != 0 {
		backlog = 6000
	}
	w := newOverloaded(t, func(c *backend.Config) { c.Rate, c.Burst, c.Concurrency = slow, 5, 50 })
	var wg sync.WaitGroup
	for from := range 20 {
		wg.Go(func() {
			for i := from; i < backlog; i += 20 {
				w.come(engine.Marketing, fmt.Sprintf("oSale-%d", i), i)
			}
		})
	}
	wg.Wait()
	for i := range payments {
		w.come(engine.Vital, fmt.Sprintf("oPay-%d", i), i)
	}
	began := time.Now()
	w.start(account("a"))
	var waits [engine.Levels][]time.Duration
	require.Eventually(t, func() bool {
		waits, _ = w.waits()
		return len(waits[engine.Vital]) == payments
	}, patient, 20*time.Millisecond)
	took := time.Since(began)
	require.Less(t, len(waits[engine.Marketing]), backlog/4, "in the order of arrival all of it would have been answered first")
	w.settled(backlog + payments)
	if long(t) != 0 {
		w.bar(fmt.Sprintf("%d payments behind %d marketing clicks (%d s of work), all answered", payments, backlog, backlog/slow), "<= 10s", took.Round(100*time.Millisecond), took <= 10*time.Second)
	}
}

// TestOldCallbacksExpire: what is older than its rule allows when its turn comes
// is told so, or nothing, and costs no call.
func TestOldCallbacksExpire(t *testing.T) {
	w := newOverloaded(t, func(*backend.Config) {})
	w.start(account("a"))
	made := func(user, text string, age time.Duration) *wire.Callback {
		c := callback("a", user, 1, text)
		c.ReceivedAt = wire.Millis(time.Now().Add(-age))
		return c
	}
	told, quiet := made("o1", "old x", 61*time.Second), made("o2", "stale x", 61*time.Second)
	young, never, unknown := made("o3", "old x", 50*time.Second), made("o4", "ask x", time.Hour), made("o5", "old x", 0)
	unknown.ReceivedAt = 0
	w.send(told, quiet, young, never, unknown)
	w.awaitReceipts(5)
	require.Equal(t, []string{"too late"}, w.texts("o1"))
	require.Empty(t, w.texts("o2"))
	require.Equal(t, []string{"new"}, w.texts("o3"))
	require.Equal(t, []string{"ask x"}, w.texts("o4"), "max_age of the room bounds the work, not the age")
	require.Equal(t, []string{"new"}, w.texts("o5"), "the age is not known")
	require.Equal(t, int64(3), w.calls.Load())
	for _, c := range []*wire.Callback{told, quiet} {
		rc := w.receipt(c.ID)
		require.Equal(t, wire.Expired, rc.State)
		require.Equal(t, "older than the rule's max_age 1m0s when its turn came", rc.Reason)
	}
	require.Equal(t, map[refusalOf]int{{"query", "max_age"}: 2}, w.refusals())
}

// TestExpiryWhileWaiting: the turn that comes too late is the back end's.
func TestExpiryWhileWaiting(t *testing.T) {
	w := newOverloaded(t, func(c *backend.Config) { c.Rate, c.Burst = 0.01, 1 }) // its only permit comes after minutes
	w.start(account("a"))
	c := callback("a", "o1", 1, "old x")
	c.ReceivedAt = wire.Millis(time.Now().Add(-59 * time.Second))
	w.send(c)
	w.awaitReceipts(1)
	require.Equal(t, wire.Expired, w.receipt(c.ID).State)
	require.Equal(t, []string{"too late"}, w.texts("o1"))
	require.Zero(t, w.calls.Load())
}

// TestIdleCallbacksNeedNoTurn: what nobody answers does not take the permits of
// what somebody does.
func TestIdleCallbacksNeedNoTurn(t *testing.T) {
	w := newOverloaded(t, func(*backend.Config) {})
	w.start(robot.Account{Name: "a", Limits: robot.Limits{Rate: 0.01, Burst: 1}})
	for i := range 50 {
		c := callback("a", fmt.Sprintf("o%d", i), 1, "")
		c.MsgType, c.Event = "event", "VIEW"
		w.send(c)
	}
	w.awaitReceipts(50)
	for _, rc := range w.receipts() {
		require.Equal(t, wire.NotAnswered, rc.State)
	}
}

// TestSheddingIsTold: one alarm while callbacks are refused, with numbers.
func TestSheddingIsTold(t *testing.T) {
	w := newOverloaded(t, func(c *backend.Config) { c.Rate, c.Burst, c.Concurrency = 50, 5, 50 })
	heard := w.listen()
	w.cfg.Overload.Marketing, w.cfg.Overload.AlarmAfter = 200*time.Millisecond, time.Second
	w.start(account("a"))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				w.come(engine.Marketing, fmt.Sprintf("o%d", i), i)
			}
		}
	})
	require.Eventually(t, func() bool { return len(heard.told()) > 0 }, patient, 20*time.Millisecond)
	close(stop)
	wg.Wait()
	told := heard.told()[0]
	require.Equal(t, "robot_shedding", told.Name)
	require.Equal(t, "a", told.Subject)
	require.Equal(t, alarm.Warning, told.Severity)
	require.True(t, strings.Contains(told.Text, "marketing ") && strings.Contains(told.TextZH, "marketing "), told.Text)
}
