package webhook_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tidegate/client"
	"tidegate/pkg/alarm"
	"tidegate/pkg/idgen"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
	"tidegate/receipts/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	newSecret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
)

// clock is the real one, moved by hand.
type clock struct {
	mu   sync.Mutex
	skew time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.skew)
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew += d
}

// told is a sink of alarms.
type told struct {
	mu   sync.Mutex
	list []alarm.Transition
}

func (a *told) Tell(t alarm.Transition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, t)
}

func (a *told) firing(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	on := false
	for _, t := range a.list {
		if t.Name == name {
			on = t.Firing
		}
	}
	return on
}

// receiver is a business system: it verifies, remembers, and answers as it is
// told to.
type receiver struct {
	*httptest.Server
	t       *testing.T
	mu      sync.Mutex
	secrets []string
	now     func() time.Time
	answer  func(e *client.WebhookEvent, nth int) int
	calls   []*client.WebhookEvent
	signed  []string
}

func newReceiver(t *testing.T, now func() time.Time, secrets ...string) *receiver {
	r := &receiver{t: t, secrets: secrets, now: now}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) serve(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	// The clock may step by hours while a request is on its way: that old ones are
	// refused has a test of its own.
	seconds, _ := strconv.ParseInt(req.Header.Get("Webhook-Timestamp"), 10, 64)
	signed := time.Unix(seconds, 0)
	if signed.After(r.now()) {
		r.t.Errorf("signed at %s, in the future", signed)
	}
	e, err := client.VerifyWebhook(r.secrets, req.Header, body, signed)
	if err != nil {
		r.t.Errorf("a webhook does not verify: %v", err)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	r.mu.Lock()
	r.calls, r.signed = append(r.calls, e), append(r.signed, req.Header.Get("Webhook-Signature"))
	n, answer := len(r.calls), r.answer
	r.mu.Unlock()
	if answer != nil {
		w.WriteHeader(answer(e, n))
	}
}

func (r *receiver) say(f func(e *client.WebhookEvent, nth int) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

func always(status int) func(*client.WebhookEvent, int) int {
	return func(*client.WebhookEvent, int) int { return status }
}

func (r *receiver) got() []*client.WebhookEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

func (r *receiver) signatures() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.signed)
}

// await waits for n calls.
func (r *receiver) await(n int) []*client.WebhookEvent {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return len(r.got()) >= n }, 30*time.Second, 2*time.Millisecond, "%d calls do not come", n)
	return r.got()
}

// types lists what was told of a message, in the order of the calls.
func types(es []*client.WebhookEvent, id string) []string {
	var out []string
	for _, e := range es {
		if e.Data.ID == id {
			out = append(out, strings.TrimPrefix(e.Type, "message."))
		}
	}
	return out
}

// world is a store with a hub on one database.
type world struct {
	*testing.T
	db     *sqldb.DB
	store  *store.SQL
	cfg    webhook.Config
	clock  *clock
	alarms *told
	logs   *observer.ObservedLogs
	log    *zap.Logger
	reg    *prometheus.Registry
}

// each runs a test on every database at hand.
func each(t *testing.T, test func(w *world)) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		core, logs := observer.New(zap.DebugLevel)
		w := &world{T: t, db: db, clock: &clock{}, alarms: &told{}, logs: logs, log: zap.New(core), cfg: webhook.DefaultConfig()}
		w.cfg.Allow = []string{"127.0.0.1"}
		var err error
		w.store, err = store.Open(t.Context(), db, w.clock.now)
		require.NoError(t, err)
		test(w)
	})
}

func (w *world) app(name, url string, change ...func(*webhook.AppConfig)) {
	a := webhook.AppConfig{Name: name, URL: url, Secret: secret}
	for _, c := range change {
		c(&a)
	}
	w.cfg.Apps = append(w.cfg.Apps, a)
}

// hub makes a node that records.
func (w *world) hub() *webhook.Hub {
	w.Helper()
	w.reg = prometheus.NewRegistry()
	h, err := webhook.New(w.Context(), w.cfg, webhook.Deps{DB: w.db, Log: w.log, Registry: w.reg,
		Alarms: alarm.NewBoard(w.log, nil, w.clock.now, w.alarms), Now: w.clock.now, Poll: 5 * time.Millisecond})
	require.NoError(w, err)
	w.store.OnChange(h.Changed)
	return h
}

// run makes a node that sends, until stop.
func (w *world) run(h *webhook.Hub) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w, <-done)
	})
	w.Cleanup(stop)
	return stop
}

func follower(n int) string { return "oFollower-" + string(rune('a'+n%26)) + strings.Repeat("x", n/26) }

func (w *world) push(n int, change ...func(*wire.Push)) *wire.Push {
	h := idgen.HashOf("webhook test", follower(n))
	p := &wire.Push{ID: idgen.Derive(idgen.User("wx1", follower(n)), h), IdentityHash: h.String(), Account: "bank", App: "card", Lane: wire.LaneRealtime,
		PushKind: wire.PushTemplate, OpenID: follower(n), TemplateID: "tpl-1", Reference: "bill", AcceptedAt: w.clock.now().UnixMilli()}
	for _, c := range change {
		c(p)
	}
	return p
}

func (w *world) queued(p *wire.Push) store.News {
	_, letter, _, err := wire.Encode(p)
	require.NoError(w, err)
	n, err := store.FromPush(p, letter, w.clock.now())
	require.NoError(w, err)
	return n
}

func (w *world) outcome(p *wire.Push, st wire.State, change ...func(*wire.Receipt)) store.News {
	r := &wire.Receipt{Source: wire.FromSender, MessageKind: wire.KindPush, ID: p.ID, IdentityHash: p.IdentityHash, Account: p.Account, OpenID: p.OpenID,
		App: p.App, Lane: p.Lane, TemplateID: p.TemplateID, Reference: p.Reference, State: st, Attempt: 1, At: w.clock.now().UnixMilli()}
	for _, c := range change {
		c(r)
	}
	n, err := store.FromReceipt(r, w.clock.now())
	require.NoError(w, err)
	return n
}

func (w *world) apply(ns ...store.News) {
	w.Helper()
	_, err := w.store.Apply(w.Context(), ns)
	require.NoError(w, err)
}

// view finds how an endpoint stands.
func (w *world) view(h *webhook.Hub, name string) webhook.EndpointView {
	w.Helper()
	v, err := h.View(w.Context())
	require.NoError(w, err)
	for _, e := range v.Endpoints {
		if e.Endpoint == name {
			return e
		}
	}
	w.Fatalf("no endpoint %s", name)
	return webhook.EndpointView{}
}

// drained waits until nothing is pending for an endpoint.
func (w *world) drained(h *webhook.Hub, name string) {
	w.Helper()
	require.Eventually(w, func() bool { return w.view(h, name).Pending == 0 }, 30*time.Second, 2*time.Millisecond)
}

func (w *world) count(q string, args ...any) int {
	w.Helper()
	var n int
	require.NoError(w, w.db.QueryRow(w.Context(), q, args...).Scan(&n))
	return n
}
