package intake

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/idgen"
	"tidegate/pkg/outhttp"
	"tidegate/pkg/run"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
)

// Keys lets requests in that bring a valid key with a scope and puts the app
// into their context; *api.Keys is one.
type Keys interface {
	Authorize(scope string, next http.Handler) http.Handler
}

// Outbox makes a letter durable in the queue. After an error of kind
// fault.Ambiguous it may be there all the same.
type Outbox interface {
	Post(ctx context.Context, topic string, l wire.Letter) error
}

// IDs makes ids for pushes that bring no idempotency key.
type IDs interface {
	New(ctx context.Context, u idgen.UID) (string, error)
}

// Deps is what the intake works with. Every field but Reg, Now and those that say so is required.
type Deps struct {
	DB     *sqldb.DB
	Keys   Keys
	Outbox Outbox
	IDs    IDs
	Topics wire.Topics
	// Templates may be nil: then WeChat decides.
	Templates Templates
	// Limits may be nil: then nobody is limited.
	Limits Limits
	Log    *zap.Logger
	Reg    prometheus.Registerer
	Now    func() time.Time
}

// Intake is the push API. It is safe for concurrent use.
type Intake struct {
	cfg     Config
	d       Deps
	keys    *keyStore
	met     *metrics
	places  chan struct{}
	batches chan struct{}
	hooks   *outhttp.Client // only looks at addresses; it calls none

	mu     sync.RWMutex
	appIDs map[string]string // account → appid
}

// New brings the tables up to date and prepares the API.
func New(ctx context.Context, cfg Config, d Deps) (*Intake, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	keys, err := openKeys(ctx, d.DB)
	if err != nil {
		return nil, err
	}
	met, err := newMetrics(telemetry.Registerer(d.Reg))
	if err != nil {
		return nil, fmt.Errorf("new intake: %w", err)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	hooks, err := outhttp.New(outhttp.Options{Allow: cfg.CallbackAllow})
	if err != nil {
		return nil, fmt.Errorf("new intake: callback_allow: %w", err)
	}
	d.Log = d.Log.Named("intake")
	return &Intake{cfg: cfg, d: d, keys: keys, met: met, hooks: hooks, places: make(chan struct{}, cfg.MaxInFlight), batches: make(chan struct{}, min(maxBatches, cfg.MaxInFlight))}, nil
}

// SetAccounts replaces the accounts: name → appid.
func (in *Intake) SetAccounts(appIDs map[string]string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.appIDs = appIDs
}

// Name implements run.Service.
func (in *Intake) Name() string { return "push intake" }

// purgeEvery is how often old idempotency keys are forgotten.
const purgeEvery = 10 * time.Minute

// Run forgets old idempotency keys until ctx ends.
func (in *Intake) Run(ctx context.Context) error {
	run.Every(ctx, purgeEvery, func(ctx context.Context) {
		if err := in.keys.purge(ctx, in.d.Now().Add(-KeepKeys)); err != nil && ctx.Err() == nil {
			in.d.Log.Warn("old idempotency keys stay for now", zap.Error(err))
		}
	})
	return nil
}

// Handler serves POST /v1/pushes.
func (in *Intake) Handler() http.Handler {
	return in.bounded(in.places, in.d.Keys.Authorize(api.PushesWrite, http.HandlerFunc(in.serve)))
}

// bounded refuses what finds no place before anything is read or asked.
func (in *Intake) bounded(places chan struct{}, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			next.ServeHTTP(w, r)
		default:
			err := fault.New(fault.Unavailable, "accept push", "%d requests are being worked already", cap(places)).WithRetryAfter(time.Second)
			in.met.seen(err, 0)
			in.refuse(w, err)
		}
	})
}

func (in *Intake) serve(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	id, err := in.take(w, r)
	in.met.seen(err, time.Since(start))
	if err != nil {
		in.refuse(w, err)
		return
	}
	accept(w, id)
}

// take does the work of one request and gives the id of the accepted push.
func (in *Intake) take(w http.ResponseWriter, r *http.Request) (string, error) {
	app, ok := api.AppOf(r.Context())
	if !ok {
		return "", fault.New(fault.Internal, "accept push", "the request carries no app")
	}
	req, err := in.read(w, r)
	if err != nil {
		return "", err
	}
	p, err := in.planFor(req, app, in.d.Now(), traceParent(r))
	if err != nil {
		return "", err
	}
	if unchecked, err := in.fits(r.Context(), req); err != nil {
		return in.before(r.Context(), p, err)
	} else if unchecked {
		w.Header().Set(headerTemplate, "unchecked")
	}
	// A caller that goes away must not leave a push half accepted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), in.cfg.PublishTimeout)
	defer cancel()
	p.tell = func(q api.Quota) { api.WriteQuota(w.Header(), q) }
	if req.IdempotencyKey != "" {
		return in.acceptKeyed(ctx, p)
	}
	return in.acceptOnce(ctx, p)
}

// plan is a checked request on its way to the queue.
type plan struct {
	req   *Request
	app   api.App
	user  idgen.UID
	at    time.Time
	span  span
	trace string
	tell  func(api.Quota) // where the caller stands; may be nil
}

// planFor checks a request.
func (in *Intake) planFor(req *Request, app api.App, now time.Time, trace string) (plan, error) {
	s, err := req.check(now)
	if err != nil {
		return plan{}, err
	}
	if err := in.checkCallback(req.CallbackURL); err != nil {
		return plan{}, err
	}
	appID, err := in.account(app, req.Account)
	if err != nil {
		return plan{}, err
	}
	if err := mayUse(app, req); err != nil {
		return plan{}, err
	}
	return plan{req: req, app: app, user: idgen.User(appID, req.OpenID), at: now, span: s, trace: trace}, nil
}

func (in *Intake) account(app api.App, account string) (appID string, err error) {
	if !app.May(account) {
		return "", fault.New(fault.Denied, "account", "this key may not send from %.40q", account).WithField("account")
	}
	in.mu.RLock()
	defer in.mu.RUnlock()
	appID, ok := in.appIDs[account]
	if !ok {
		return "", invalid("account", "there is no account %.40q here", account)
	}
	return appID, nil
}

// acceptOnce takes a push without a key: each request is a new message.
func (in *Intake) acceptOnce(ctx context.Context, p plan) (string, error) {
	if err := in.charge(ctx, p); err != nil {
		return "", err
	}
	id, err := in.d.IDs.New(ctx, p.user)
	if err != nil {
		return "", fault.Wrap(fault.Unavailable, "make an id", err)
	}
	return id, in.publish(ctx, p, id, "", p.at)
}

// acceptKeyed takes a push with a key. The row comes before the record: if we
// die in between, the repeat finds the row unpublished and publishes the same
// letter with the same id.
func (in *Intake) acceptKeyed(ctx context.Context, p plan) (string, error) {
	body, err := p.req.bodyHash()
	if err != nil {
		return "", err
	}
	h := keyHash(p)
	row := keyRow{App: p.app.Name, KeyHash: h.String(), BodyHash: body, ID: idgen.Derive(p.user, h), AcceptedAt: p.at}
	stored, existed, err := in.keys.remember(ctx, row)
	if err != nil {
		return "", err
	}
	if existed && stored.BodyHash != body {
		return "", errOtherPush
	}
	if stored.Published {
		in.met.repeats.Inc()
		return stored.ID, nil
	}
	if err := in.charge(ctx, p); err != nil {
		return "", err
	}
	if err := in.publish(ctx, p, stored.ID, h.String(), stored.AcceptedAt); err != nil {
		return "", err
	}
	if err := in.keys.published(ctx, stored); err != nil {
		// The push is durable, so the answer is 202. A repeat publishes again
		// and the sender recognises the id.
		in.d.Log.Warn("idempotency key could not be marked as published", zap.String("id", stored.ID), zap.Error(err))
	}
	return stored.ID, nil
}

// keyHash is the identity of a push with a key.
func keyHash(p plan) idgen.Hash { return idgen.HashOf("push", p.app.Name, p.req.IdempotencyKey) }

var errOtherPush = fault.New(fault.Conflict, "idempotency_key", "it was used for another push: use a new key for a new message").WithField("idempotency_key")

func (in *Intake) publish(ctx context.Context, p plan, id, hash string, at time.Time) error {
	l := p.req.letter(p.app.Name, id, hash, p.trace, at, p.span)
	err := in.d.Outbox.Post(ctx, in.d.Topics.Pushes(l.Account, l.Lane), l)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, wire.ErrTooLarge):
		return invalid("data", "the message is too large")
	case fault.KindOf(err) == fault.Ambiguous:
		in.d.Log.Warn("it is not known whether a push was queued", zap.String("id", id), zap.Error(err))
		return fault.New(fault.Ambiguous, "queue push", "the queue did not confirm in time; send it again with the same Idempotency-Key, without one it may arrive twice").WithRetryAfter(2 * time.Second)
	}
	in.d.Log.Warn("push not queued", zap.String("id", id), zap.Error(err))
	return fault.New(fault.Unavailable, "queue push", "the queue is away; nothing was accepted").WithRetryAfter(5 * time.Second)
}

var traceForm = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// traceParent passes a caller's W3C trace on, if it has the right form.
func traceParent(r *http.Request) string {
	if t := r.Header.Get("Traceparent"); traceForm.MatchString(t) {
		return t
	}
	return ""
}
