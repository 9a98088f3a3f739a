package proxy_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/proxy"
)

const patience = 20 * time.Second

func withSpool(dir string, change ...func(*proxy.Config)) func(*proxy.Config) {
	return func(c *proxy.Config) {
		c.Spool.Dir = dir
		for _, ch := range change {
			ch(c)
		}
	}
}

func contents(t *testing.T, w *world) []string {
	t.Helper()
	var out []string
	for _, c := range w.q.callbacks(t) {
		out = append(out, c.Content)
	}
	return out
}

func (w *world) waitFor(n int) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return len(w.q.in("tidegate.card.callbacks")) >= n }, patience, 5*time.Millisecond)
}

func TestWithASpoolTheDoorStaysOpenWhileTheQueueIsAway(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil, withSpool(t.TempDir()))
	require.NoError(t, w.p.CanSpool())
	requireAck(t, w.post(text(1, "before")))
	w.q.set(errAway)
	for i := range 5 {
		requireAck(t, w.post(text(10+i, fmt.Sprint("away ", i))))
	}
	requireAck(t, w.post(click(1, "balance")))
	requireAck(t, w.post(click(2, "balance"))) // a repeat
	requireAck(t, w.post(document("event", "<Event><![CDATA[TEMPLATESENDJOBFINISH]]></Event><MsgID>5</MsgID><Status><![CDATA[success]]></Status>")))
	requireAck(t, w.post(text(10, "away 0"))) // WeChat's repeat is a duplicate, also while it is on the disk
	require.Len(t, w.q.callbacks(t), 1)
	w.q.set(nil)
	w.waitFor(7)
	require.Eventually(t, func() bool { return len(w.q.in("tidegate.repeats")) == 1 && len(w.q.in("tidegate.receipts")) == 1 }, patience, 5*time.Millisecond)
	requireAck(t, w.post(text(20, "after")))
	w.waitFor(8)
	require.Equal(t, []string{"before", "away 0", "away 1", "away 2", "away 3", "away 4", "", "after"}, contents(t, w))
}

// T27: what follows a spooled record of the same user goes behind it, although
// the queue is back already.
func TestNobodyOvertakesTheirOwnSpooledRecord(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil, withSpool(t.TempDir()))
	w.q.set(errAway)
	requireAck(t, w.post(text(1, "first")))
	held, enough := make(chan struct{}), make(chan struct{})
	var begun atomic.Bool
	w.q.script(func(ctx context.Context, r kafka.Record) error {
		if strings.Contains(string(r.Value), `"first"`) && begun.CompareAndSwap(false, true) {
			close(held)
			<-enough // the replay is under way
		}
		return nil
	})
	w.q.set(nil)
	<-held
	for i := range 3 {
		requireAck(t, w.post(text(2+i, fmt.Sprint("then ", i))))
	}
	require.Empty(t, w.q.callbacks(t), "they wait behind the first one")
	close(enough)
	w.waitFor(4)
	require.Equal(t, []string{"first", "then 0", "then 1", "then 2"}, contents(t, w))
}

// D12: the first time-out opens the breaker; nobody else waits for the queue.
func TestASlowQueueCostsOneTimeout(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil, withSpool(t.TempDir(), func(c *proxy.Config) { c.Spool.PublishTimeout = 300 * time.Millisecond }))
	var waited atomic.Int64
	release := make(chan struct{})
	w.q.script(func(ctx context.Context, r kafka.Record) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			waited.Add(1)
			return fault.New(fault.Ambiguous, "publish", "the record is under way: %w", ctx.Err())
		}
	})
	began := time.Now()
	for i := range 50 {
		requireAck(t, w.post(textFrom(fmt.Sprintf("oUser%03d", i), 100+i, "x")))
	}
	require.Less(t, time.Since(began), 50*300*time.Millisecond/2)
	require.EqualValues(t, 1, waited.Load(), "only the first one may have waited")
	close(release)
	w.waitFor(50)
}

// D1: with the queue away and the spool full nothing durable is left, and the
// answer says so.
func TestAFullSpoolIsSaidHonestly(t *testing.T) {
	w := newWorld(t, wechat.ModePlain, nil, withSpool(t.TempDir(), func(c *proxy.Config) { c.Spool.MaxBytes = 4 << 20 }))
	w.q.set(errAway)
	acked, refused := 0, 0
	for i := range 60 {
		rec := w.post(text(i+1, strings.Repeat("x", 60_000)))
		if rec.Code == http.StatusServiceUnavailable {
			require.NotContains(t, rec.Body.String(), "success")
			refused++
			continue
		}
		requireAck(t, rec)
		acked++
	}
	require.Positive(t, acked)
	require.Positive(t, refused, "the spool must have been full")
	require.ErrorContains(t, w.p.CanSpool(), "spool full")
	w.q.set(nil)
	w.waitFor(acked)
	require.Eventually(t, func() bool { return w.p.CanSpool() == nil }, patience, 5*time.Millisecond)
	requireAck(t, w.post(text(1000, "there is room again")))
	w.waitFor(acked + 1)
	require.Len(t, w.q.callbacks(t), acked+1, "what was refused is not worked, what was acknowledged is, once")
}

// T13: a record that the queue will never take must not stop the ones behind it.
func TestPoisonInTheSpoolBecomesADeadLetter(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil, withSpool(t.TempDir()))
	w.q.set(errAway)
	for i, c := range []string{"one", "poison", "two"} {
		requireAck(t, w.post(text(i+1, c)))
	}
	w.q.script(func(_ context.Context, r kafka.Record) error {
		if r.Topic == "tidegate.card.callbacks" && strings.Contains(string(r.Value), `"poison"`) {
			return fault.New(fault.Invalid, "publish to "+r.Topic, "the record can never be written")
		}
		return nil
	})
	w.q.set(nil)
	w.waitFor(2)
	require.Equal(t, []string{"one", "two"}, contents(t, w))
	dead := w.q.in("tidegate.deadletters")
	require.Len(t, dead, 1)
	d, err := wire.Decode[wire.DeadLetter](dead[0].Value, dead[0].Headers)
	require.NoError(t, err)
	require.Equal(t, openid, d.OpenID)
	require.Equal(t, "card", d.Account)
	require.Equal(t, "tidegate.card.callbacks", d.Topic)
	require.Contains(t, d.Reason, "can never be written")
	c, err := wire.Decode[wire.Callback](d.Value, d.Headers)
	require.NoError(t, err)
	require.Equal(t, "poison", c.Content)
}

func TestOneTopicsTroubleIsNotTheOthers(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil, withSpool(t.TempDir()))
	w.q.script(func(_ context.Context, r kafka.Record) error {
		if r.Topic == "tidegate.receipts" {
			return fault.New(fault.Unavailable, "publish to "+r.Topic, "the topic does not exist")
		}
		return nil
	})
	requireAck(t, w.post(document("event", "<Event><![CDATA[TEMPLATESENDJOBFINISH]]></Event><MsgID>5</MsgID><Status><![CDATA[success]]></Status>")))
	requireAck(t, w.post(text(1, "x")))
	require.Len(t, w.q.callbacks(t), 1, "callbacks go straight to their topic")
	w.q.script(nil)
	require.Eventually(t, func() bool { return len(w.q.in("tidegate.receipts")) == 1 }, patience, 5*time.Millisecond)
}

func TestASpoolOutlivesTheProcess(t *testing.T) {
	dir := t.TempDir()
	t.Run("before", func(t *testing.T) {
		w := newWorld(t, wechat.ModeSafe, nil, withSpool(dir))
		w.q.set(errAway)
		requireAck(t, w.post(text(1, "first")))
		requireAck(t, w.post(text(2, "second")))
	})
	w := newWorld(t, wechat.ModeSafe, nil, withSpool(dir))
	requireAck(t, w.post(text(3, "third")))
	w.waitFor(3)
	require.Equal(t, []string{"first", "second", "third"}, contents(t, w))
}

// Its users go to the next door: they must not overtake themselves there.
func TestACleanStopHandsTheSpoolOver(t *testing.T) {
	dir := t.TempDir()
	var w *world
	t.Run("a door", func(t *testing.T) {
		w = newWorld(t, wechat.ModeSafe, nil, withSpool(dir))
		w.q.set(errAway)
		requireAck(t, w.post(text(1, "first")))
		requireAck(t, w.post(text(2, "second")))
		require.Empty(t, w.q.callbacks(t))
		w.q.set(nil) // the next replay is due in a tenth of a second or later
	})
	require.Equal(t, []string{"first", "second"}, contents(t, w))
}

func TestASpoolThatCannotBeUsedKeepsTheDoorShut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	cfg := proxy.DefaultConfig()
	cfg.HTTP.Addr = "127.0.0.1:0"
	cfg.Spool.Dir = file
	_, err := proxy.New(cfg, one(account(wechat.ModeSafe)), proxy.Deps{Topics: wire.Topics{Prefix: "tidegate"}, Publisher: &queue{}, Log: nopLog})
	require.ErrorContains(t, err, "give a directory that this user can write")
	for want, change := range map[string]func(*proxy.SpoolConfig){
		"proxy.spool.max_bytes 1: use at least":              func(s *proxy.SpoolConfig) { s.MaxBytes = 1 },
		"proxy.spool.publish_timeout 3s: use more than 0":    func(s *proxy.SpoolConfig) { s.PublishTimeout = 3 * time.Second },
		"less than proxy.budget (3s), so that time is left ": func(s *proxy.SpoolConfig) { s.PublishTimeout = -1 },
	} {
		c := proxy.DefaultConfig()
		c.Spool.Dir = "/var/lib/tidegate"
		require.NoError(t, c.Validate())
		change(&c.Spool)
		require.ErrorContains(t, c.Validate(), want)
	}
	w := newWorld(t, wechat.ModeSafe, nil)
	require.ErrorContains(t, w.p.CanSpool(), "no spool is configured")
}

func TestDrainEmptiesTheSpoolOfADeadNode(t *testing.T) {
	dir := t.TempDir()
	t.Run("the node that died", func(t *testing.T) {
		w := newWorld(t, wechat.ModeSafe, nil, withSpool(dir))
		w.q.set(errAway)
		for i := range 20 {
			requireAck(t, w.post(text(i+1, fmt.Sprint(i))))
		}
	})
	q := &queue{}
	tries := atomic.Int64{}
	q.script(func(context.Context, kafka.Record) error {
		if tries.Add(1) <= 2 {
			return errAway // a producer needs a moment to connect
		}
		return nil
	})
	d, err := proxy.Drain(t.Context(), dir, q, wire.Topics{Prefix: "tidegate"}, nopLog)
	require.NoError(t, err)
	require.Equal(t, proxy.Drained{Replayed: 20}, d)
	cs := q.callbacks(t)
	require.Len(t, cs, 20)
	for i, c := range cs {
		require.Equal(t, fmt.Sprint(i), c.Content)
	}
	d, err = proxy.Drain(t.Context(), dir, q, wire.Topics{Prefix: "tidegate"}, nopLog)
	require.NoError(t, err)
	require.Zero(t, d)
}
