package sender

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/sender/token"
)

// Numbers of the token endpoint. A system that keeps its token as long as
// expires_in says asks a few times a day.
const (
	tokenBurst = 10
	tokenEvery = 6 * time.Second // for each key and account on each node
	// tokenCallers bounds what is remembered of callers.
	tokenCallers = 10_000
)

// tokensAPI gives access tokens to other systems of the same owner, so that
// there is one that fetches them: several would end each other's (T43).
type tokensAPI struct {
	keeper *token.Keeper
	log    *zap.Logger
	reads  *prometheus.CounterVec
	now    func() time.Time

	mu      sync.Mutex
	callers map[string]*caution
}

// caution is a bucket of questions.
type caution struct {
	left float64
	at   time.Time
}

// tokenAnswer has WeChat's names, so that a client only changes its address.
type tokenAnswer struct {
	Token     string `json:"access_token"`
	ExpiresIn int64  `json:"expires_in"` // seconds from now
}

func newTokensAPI(k *token.Keeper, log *zap.Logger, reg prometheus.Registerer, now func() time.Time) (*tokensAPI, error) {
	a := &tokensAPI{keeper: k, log: log.Named("tokens"), now: now, callers: map[string]*caution{}, reads: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "tidegate", Subsystem: "sender", Name: "token_reads_total", Help: "Access tokens asked for by other systems.",
	}, []string{"account", "result"})}
	return a, reg.Register(a.reads)
}

// ServeHTTP answers GET /v1/accounts/{id}/token. Every answer is a line in the
// log, with who and without the token.
func (a *tokensAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	app, _ := api.AppOf(r.Context())
	account := r.PathValue("id")
	t, err := a.get(r, app, account)
	if fault.KindOf(err) == fault.NotFound || !app.May(account) {
		account = "" // not ours: no label and no text from outside
	}
	log := a.log.With(zap.String("app", app.Name), zap.String("key", app.KeyID), zap.String("account", account))
	if err != nil {
		a.reads.WithLabelValues(account, fault.KindOf(err).String()).Inc()
		log.Warn("an access token was not given", zap.String("why", fault.KindOf(err).String()))
		api.WriteProblem(w, err)
		return
	}
	left := int64(t.ExpiresAt.Sub(a.now()) / time.Second)
	a.reads.WithLabelValues(account, "ok").Inc()
	log.Info("an access token was given", zap.Int64("expires_in", left), zap.Int64("fence", t.Fence))
	w.Header().Set("Pragma", "no-cache") // WriteJSON says no-store
	api.WriteJSON(w, http.StatusOK, tokenAnswer{t.Value, left})
}

func (a *tokensAPI) get(r *http.Request, app api.App, account string) (token.Token, error) {
	const op = "give token"
	if !app.May(account) {
		return token.Token{}, fault.New(fault.Denied, op, "the key %s of app %s is not for this account", app.KeyID, app.Name)
	}
	if !a.keeper.Has(account) { // first: nothing is counted or kept under a name from outside
		return token.Token{}, fault.New(fault.NotFound, op, "there is no account of this name")
	}
	if _, err := api.ParseParams(r); err != nil {
		return token.Token{}, err
	}
	if wait := a.wait(app.KeyID + " " + account); wait > 0 {
		return token.Token{}, fault.New(fault.Limited, op, "keep the token for as long as expires_in says; this key may ask %d times at once and then every %s", tokenBurst, tokenEvery).WithRetryAfter(wait)
	}
	t, err := a.keeper.Latest(r.Context(), account)
	switch fault.KindOf(err) {
	case fault.NotFound:
		return t, fault.New(fault.NotFound, op, "there is no account of this name")
	case fault.Stopped:
		return t, fault.New(fault.Stopped, op, "WeChat refuses to give a token for this account")
	}
	return t, err
}

// wait takes a question, or says how long until there is one.
func (a *tokensAPI) wait(caller string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	c := a.callers[caller]
	if c == nil {
		if len(a.callers) >= tokenCallers {
			a.sweep(now)
		}
		c = &caution{left: tokenBurst, at: now}
		a.callers[caller] = c
	}
	c.left = min(tokenBurst, c.left+max(0, now.Sub(c.at).Seconds())/tokenEvery.Seconds())
	c.at = now
	if c.left < 1 {
		return time.Duration((1 - c.left) * float64(tokenEvery))
	}
	c.left--
	return 0
}

// sweep forgets callers whose bucket is full again; called with the lock. Callers
// have keys, so there are never many.
func (a *tokensAPI) sweep(now time.Time) {
	for name, c := range a.callers {
		if now.Sub(c.at) >= tokenBurst*tokenEvery {
			delete(a.callers, name)
		}
	}
}
