package webhook_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/client"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
	"tidegate/receipts/webhook"
)

// S48: signed so that a receiver can verify, with both secrets while they are
// exchanged; every state is told, in order, also those of one batch.
func TestS48AppsAreToldSignedAndInOrder(t *testing.T) {
	each(t, func(w *world) {
		r := newReceiver(t, w.clock.now, newSecret)
		w.app("card", r.URL, func(a *webhook.AppConfig) { a.Secret, a.PrevSecret = newSecret, secret })
		h := w.hub()
		w.run(h)
		p, other := w.push(1), w.push(2, func(p *wire.Push) { p.App = "till" })
		w.apply(w.queued(p), w.outcome(p, wire.Sending), w.outcome(p, wire.Accepted, func(r *wire.Receipt) { r.MsgID = "77" }), w.outcome(other, wire.Dead))
		w.apply(w.outcome(p, wire.Delivered), w.outcome(p, wire.Accepted)) // the late one tells nothing
		es := r.await(2)
		w.drained(h, "card")
		require.Len(t, r.got(), 2, "neither queued nor sending, and nothing of another app")
		require.Equal(t, []string{"accepted", "delivered"}, types(es, p.ID))
		require.Equal(t, "bill", es[0].Data.Reference)
		require.Equal(t, "77", es[0].Data.MsgID)
		require.Equal(t, p.OpenID, es[1].Data.OpenID)
		require.True(t, es[1].Data.Terminal)
		require.Greater(t, es[1].Data.Rank, es[0].Data.Rank)
		require.NotEqual(t, es[0].ID, es[1].ID)
		require.Len(t, strings.Fields(r.signatures()[0]), 2, "both secrets sign")
		r.mu.Lock()
		r.secrets = []string{secret}
		r.mu.Unlock()
		w.apply(w.outcome(w.push(3), wire.Rejected, func(r *wire.Receipt) { r.Reason, r.ErrCode = "template", 40037 }))
		require.Equal(t, 40037, r.await(3)[2].Data.ErrCode)
	})
}

// The event is there exactly when the row is: a transaction that fails leaves
// neither, and news that is joined again makes no second event.
func TestEventsAreWrittenWithTheRow(t *testing.T) {
	each(t, func(w *world) {
		w.app("card", "http://127.0.0.1:1/")
		h := w.hub()
		p := w.push(1)
		news := []store.News{w.queued(p), w.outcome(p, wire.Accepted)}
		w.apply(news...)
		w.apply(news...)
		require.Equal(t, 1, w.count("SELECT COUNT(*) FROM webhook_events"))
		_, err := w.db.Exec(t.Context(), "DROP TABLE webhook_events")
		require.NoError(t, err)
		_, err = w.store.Apply(t.Context(), []store.News{w.outcome(p, wire.Delivered)})
		require.Error(t, err, "no event, no row")
		ms, err := w.store.Get(t.Context(), p.ID)
		require.NoError(t, err)
		require.Equal(t, wire.Accepted, ms[0].State)
		_ = h
	})
}

// A failure is repeated under the same id with growing pauses; the next event of
// the message waits, other messages do not.
func TestRetriesKeepIDAndOrder(t *testing.T) {
	each(t, func(w *world) {
		bad, good := w.push(1), w.push(2)
		r := newReceiver(t, w.clock.now, secret)
		r.say(func(e *client.WebhookEvent, _ int) int {
			if e.Data.ID == bad.ID {
				return http.StatusInternalServerError
			}
			return http.StatusNoContent
		})
		w.app("card", r.URL)
		h := w.hub()
		w.run(h)
		w.apply(w.outcome(bad, wire.Accepted), w.outcome(bad, wire.Delivered), w.outcome(good, wire.Accepted), w.outcome(good, wire.Delivered))
		require.Eventually(t, func() bool { return len(types(r.got(), good.ID)) == 2 && len(types(r.got(), bad.ID)) == 1 }, 30*time.Second, 2*time.Millisecond)
		noted := func(attempts int) {
			require.Eventually(t, func() bool {
				return w.count("SELECT COUNT(*) FROM webhook_events WHERE message = $1 AND attempts = $2 AND claim = ''", bad.ID, attempts) == 1
			}, 30*time.Second, 2*time.Millisecond)
		}
		noted(1)
		for i, pause := range []time.Duration{6 * time.Second, 12 * time.Second, 24 * time.Second} { // the longest that 5, 10, 20 s may become
			least := w.count("SELECT COUNT(*) FROM webhook_events WHERE message = $1 AND attempts > 0 AND due_at >= $2", bad.ID, w.clock.now().Add(pause/2).UnixMilli())
			require.Equal(t, 1, least, "and not before half of it")
			w.clock.step(pause)
			noted(i + 2)
		}
		require.Len(t, types(r.got(), bad.ID), 4)
		require.NotContains(t, types(r.got(), bad.ID), "delivered", "it waits for its turn")
		r.say(always(http.StatusOK))
		w.clock.step(time.Hour)
		require.Eventually(t, func() bool { return strings.HasSuffix(strings.Join(types(r.got(), bad.ID), " "), "accepted delivered") }, 30*time.Second, 2*time.Millisecond)
		ids := map[string]bool{}
		for _, e := range r.got() {
			if e.Data.ID == bad.ID && e.Type == "message.accepted" {
				ids[e.ID] = true
			}
		}
		require.Len(t, ids, 1, "every attempt has the same id")
	})
}

// Two nodes share the outbox: nothing is told twice while both are well, and what
// a dead one had claimed is told by the other.
func TestTwoNodesAndADeadOne(t *testing.T) {
	each(t, func(w *world) {
		r := newReceiver(t, w.clock.now, secret)
		w.app("card", r.URL)
		a, b := w.hub(), w.hub()
		w.run(a)
		w.run(b)
		const n = 40
		for i := range n {
			w.apply(w.outcome(w.push(i), wire.Accepted), w.outcome(w.push(i), wire.Delivered))
		}
		es := r.await(2 * n)
		w.drained(a, "card")
		seen := map[string]int{}
		for _, e := range r.got() {
			seen[e.ID]++
		}
		require.Len(t, seen, 2*n)
		require.Len(t, r.got(), 2*n)
		for i := range n {
			require.Equal(t, []string{"accepted", "delivered"}, types(es, w.push(i).ID))
		}
		// What a node takes along into its death: claimed and never settled.
		w.apply(w.outcome(w.push(n), wire.Accepted))
		_, err := w.db.Exec(t.Context(), "UPDATE webhook_events SET state = 'pending', claim = 'dead', claimed_until = $1 WHERE message = $2",
			w.clock.now().Add(30*time.Second).UnixMilli(), w.push(n).ID)
		require.NoError(t, err)
		before := len(types(r.got(), w.push(n).ID))
		w.clock.step(31 * time.Second)
		require.Eventually(t, func() bool { return len(types(r.got(), w.push(n).ID)) > before }, 30*time.Second, 2*time.Millisecond)
		w.drained(b, "card")
	})
}

// One slow app holds up nobody else, and has no more calls at once than it may.
func TestASlowAppHoldsUpNobody(t *testing.T) {
	each(t, func(w *world) {
		slow, quick := newReceiver(t, w.clock.now, secret), newReceiver(t, w.clock.now, secret)
		let := make(chan struct{})
		slow.say(func(*client.WebhookEvent, int) int { <-let; return http.StatusOK })
		w.cfg.Concurrency = 3
		w.app("card", slow.URL)
		w.app("till", quick.URL)
		h := w.hub()
		w.run(h)
		const n = 20
		for i := range n {
			w.apply(w.outcome(w.push(i), wire.Delivered), w.outcome(w.push(100+i, func(p *wire.Push) { p.App = "till" }), wire.Delivered))
		}
		quick.await(n)
		slow.await(3)
		require.Len(t, slow.got(), 3, "the bound of calls at once")
		require.Equal(t, int64(n), w.view(h, "card").Pending)
		close(let)
		slow.await(n)
		w.drained(h, "card")
	})
}

// An endpoint that fails for long is told, then disabled with an alarm; enabled,
// it gets what is not too old; what was given up is delivered by command.
func TestDisabledAfterLongAndEnabledByCommand(t *testing.T) {
	each(t, func(w *world) {
		r := newReceiver(t, w.clock.now, secret)
		r.say(always(http.StatusBadGateway))
		w.app("card", r.URL)
		h := w.hub()
		w.run(h)
		old := w.push(1)
		w.apply(w.outcome(old, wire.Delivered))
		r.await(1)
		require.Eventually(t, func() bool { return w.view(h, "card").Failures == 1 }, 10*time.Second, 2*time.Millisecond)
		w.clock.step(20 * time.Minute)
		require.NoError(t, h.Keep(t.Context(), 90*24*time.Hour))
		require.True(t, w.alarms.firing("webhook_failing"))
		w.clock.step(12 * time.Hour)
		require.Eventually(t, func() bool { return w.view(h, "card").State == "disabled" }, 30*time.Second, 2*time.Millisecond)
		require.NoError(t, h.Keep(t.Context(), 90*24*time.Hour))
		require.True(t, w.alarms.firing("webhook_disabled"))
		require.False(t, w.alarms.firing("webhook_failing"))
		require.Eventually(t, func() bool { return w.logs.FilterMessage("a webhook endpoint is disabled").Len() == 1 }, 10*time.Second, time.Millisecond, "said behind the transaction")

		w.clock.step(12 * time.Hour) // the old event is a day old
		w.apply(w.outcome(w.push(2), wire.Delivered))
		require.NoError(t, h.Keep(t.Context(), 90*24*time.Hour))
		calls := len(r.got())
		require.Equal(t, int64(1), w.view(h, "card").Pending)
		require.Equal(t, int64(1), w.view(h, "card").Failed)

		r.say(always(http.StatusOK))
		require.NoError(t, h.Enable(t.Context(), "card"))
		require.Equal(t, w.push(2).ID, r.await(calls + 1)[calls].Data.ID)
		w.drained(h, "card")
		require.NoError(t, h.Keep(t.Context(), 90*24*time.Hour))
		require.False(t, w.alarms.firing("webhook_disabled"))

		n, err := h.Redeliver(t.Context(), webhook.Again{Endpoint: "card", Message: old.ID})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		again := r.await(calls + 2)[calls+1]
		require.Equal(t, r.got()[0].ID, again.ID, "the id of before")
		w.drained(h, "card")
		n, err = h.Redeliver(t.Context(), webhook.Again{Endpoint: "card", From: w.clock.now().Add(-48 * time.Hour)})
		require.NoError(t, err)
		require.Zero(t, n, "what was delivered is not sent again unasked")
		n, err = h.Redeliver(t.Context(), webhook.Again{Endpoint: "card", From: w.clock.now().Add(-48 * time.Hour), Delivered: true})
		require.NoError(t, err)
		require.Equal(t, 2, n)
		r.await(calls + 4)
		w.drained(h, "card")
		require.Error(t, h.Enable(t.Context(), "nobody"))

		w.clock.step(8 * 24 * time.Hour)
		require.NoError(t, h.Keep(t.Context(), time.Hour))
		require.Zero(t, w.count("SELECT COUNT(*) FROM webhook_events"), "nothing is kept for ever")
	})
}

// 410 is a wish: no more calls at once.
func TestGoneDisablesAtOnce(t *testing.T) {
	each(t, func(w *world) {
		r := newReceiver(t, w.clock.now, secret)
		r.say(always(http.StatusGone))
		w.app("card", r.URL)
		h := w.hub()
		w.run(h)
		w.apply(w.outcome(w.push(1), wire.Delivered))
		require.Eventually(t, func() bool { return w.view(h, "card").State == "disabled" }, 30*time.Second, 2*time.Millisecond)
		require.Contains(t, w.view(h, "card").DisabledWhy, "410")
		require.Equal(t, int64(1), w.view(h, "card").Pending)
	})
}

// A push names its own address, on a host that its app may; the letter may come
// behind the outcome. Another host is not called.
func TestCallbackURL(t *testing.T) {
	each(t, func(w *world) {
		r, own, foreign := newReceiver(t, w.clock.now, secret), newReceiver(t, w.clock.now, secret), newReceiver(t, w.clock.now, secret)
		host := strings.TrimPrefix(own.URL, "http://")
		w.app("card", r.URL, func(a *webhook.AppConfig) { a.CallbackHosts = []string{host} })
		require.NoError(t, w.cfg.CheckCallback("card", own.URL+"/hook"))
		for _, raw := range []string{foreign.URL, "http://user@" + host + "/", "gopher://" + host, "http://169.254.169.254/", "", "://"} {
			require.Error(t, w.cfg.CheckCallback("card", raw), raw)
		}
		require.Error(t, w.cfg.CheckCallback("nobody", own.URL))
		h := w.hub()
		w.run(h)
		at := func(url string) func(*wire.Push) { return func(p *wire.Push) { p.CallbackURL = url } }
		first, late, bad := w.push(1, at(own.URL+"/a?b=c")), w.push(2, at(own.URL)), w.push(3, at(foreign.URL))
		w.apply(w.queued(first))
		w.apply(w.outcome(first, wire.Accepted))
		w.apply(w.outcome(first, wire.Delivered))
		own.await(2)
		require.Equal(t, []string{"accepted", "delivered"}, types(own.got(), first.ID))
		require.Empty(t, types(r.got(), first.ID))
		w.apply(w.outcome(late, wire.Dead))
		w.apply(w.queued(late))
		require.Equal(t, []string{"dead"}, types(own.await(3), late.ID), "told as soon as the address is known")
		w.apply(w.queued(bad), w.outcome(bad, wire.Dead))
		require.Eventually(t, func() bool { return len(types(r.got(), bad.ID)) == 1 }, 30*time.Second, 2*time.Millisecond, "the app is told instead")
		require.Empty(t, foreign.got())
		w.drained(h, "card@"+host)
	})
}

// S39, S40: an address inside is not called, whatever the setting says, unless
// it is allowed; nothing of the address is in a log or an error.
func TestInsideIsNotCalled(t *testing.T) {
	each(t, func(w *world) {
		r := newReceiver(t, w.clock.now, secret)
		u, err := url.Parse(r.URL)
		require.NoError(t, err)
		w.cfg.Allow = nil
		w.app("card", r.URL)
		require.Error(t, w.cfg.Validate())
		w.cfg.Apps[0].URL = "http://localhost:" + u.Port() + "/token-in-path"
		h := w.hub()
		w.run(h)
		w.apply(w.outcome(w.push(1), wire.Dead))
		require.Eventually(t, func() bool { return w.view(h, "card").Failures > 0 }, 30*time.Second, 2*time.Millisecond)
		require.Empty(t, r.got())
		v := w.view(h, "card")
		require.Contains(t, v.LastError, "not allowed")
		require.NotContains(t, v.LastError+v.Host, "token-in-path")
		for _, l := range w.logs.All() {
			require.NotContains(t, l.Message+fieldsOf(l.ContextMap()), "token-in-path")
		}
	})
}

// S57: an erasure reaches what waits to be told.
func TestS57ErasureReachesTheOutbox(t *testing.T) {
	each(t, func(w *world) {
		w.app("card", "http://127.0.0.1:1/", func(a *webhook.AppConfig) { a.CallbackHosts = []string{"127.0.0.1:1"} })
		h := w.hub()
		p := w.push(1, func(p *wire.Push) { p.CallbackURL = "http://127.0.0.1:1/hook" })
		w.apply(w.queued(p), w.outcome(p, wire.Accepted), w.outcome(p, wire.Delivered), w.outcome(w.push(2), wire.Dead))
		n, err := h.Erase(t.Context(), "shop", p.OpenID)
		require.NoError(t, err)
		require.Zero(t, n, "another account's follower")
		n, err = h.Erase(t.Context(), "bank", p.OpenID)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, 1, w.count("SELECT COUNT(*) FROM webhook_events"))
		require.Zero(t, w.count("SELECT COUNT(*) FROM webhook_events WHERE body LIKE $1", "%"+p.OpenID+"%"))
		require.Zero(t, w.count("SELECT COUNT(*) FROM webhook_targets"))
	})
}

// S50, S53: ten thousand users would add no series, and no openid, reference or
// secret is in a log or a label.
func TestS53NoUserInLabelsOrLogs(t *testing.T) {
	each(t, func(w *world) {
		r := newReceiver(t, w.clock.now, secret)
		r.say(always(http.StatusTeapot))
		w.app("card", r.URL)
		h := w.hub()
		w.run(h)
		series := func() int {
			fs, err := w.reg.Gather()
			require.NoError(t, err)
			n := 0
			for _, f := range fs {
				for _, m := range f.GetMetric() {
					n++
					for _, l := range m.GetLabel() {
						require.Contains(t, []string{"card", "recorded", "failed", "taken"}, l.GetValue())
					}
				}
			}
			return n
		}
		w.apply(w.outcome(w.push(0), wire.Dead))
		r.await(1)
		require.Eventually(t, func() bool { return w.view(h, "card").Failures > 0 }, 10*time.Second, 2*time.Millisecond)
		require.NoError(t, h.Keep(t.Context(), time.Hour))
		before := series()
		for i := range 50 {
			w.apply(w.outcome(w.push(i+1), wire.Dead))
		}
		r.await(3)
		require.NoError(t, h.Keep(t.Context(), time.Hour))
		require.Equal(t, before, series())
		for _, l := range w.logs.All() {
			for _, canary := range []string{"oFollower-", secret[6:], "bill"} {
				require.NotContains(t, l.Message+fieldsOf(l.ContextMap()), canary)
			}
		}
	})
}
