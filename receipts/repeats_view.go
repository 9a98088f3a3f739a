package receipts

import (
	"maps"
	"net/http"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

const (
	defaultSince = 10 * time.Minute
	maxSince     = 7 * 24 * time.Hour
	defaultTop   = 20
	maxTop       = 100
)

// RepeatsView is the answer of GET /ops/v1/repeats. Users are the keyed hashes
// that logs and alarms have.
type RepeatsView struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Account string `json:"account,omitempty"`
	Repeats int64  `json:"repeats"`
	Users   int64  `json:"users"`
	// Cut says that there were more than could be counted: From is then the
	// time of the oldest that was.
	Cut        bool           `json:"cut,omitempty"`
	TopUsers   []userView     `json:"top_users"`
	TopActions []actionView   `json:"top_actions"`
	Recent     []repeatedView `json:"recent"`
}

type userView struct {
	Account string `json:"account"`
	User    string `json:"user"`
	Repeats int64  `json:"repeats"`
	FirstAt string `json:"first_at"`
	LastAt  string `json:"last_at"`
}

type actionView struct {
	Account string `json:"account"`
	Action  string `json:"action"`
	Repeats int64  `json:"repeats"`
	Users   int64  `json:"users"`
	LastAt  string `json:"last_at"`
}

type repeatedView struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	User    string `json:"user"`
	Action  string `json:"action"`
	Reason  string `json:"reason"`
	At      string `json:"at"`
}

// Ops is the room's share of the operations listener, by pattern.
func (r *Room) Ops() map[string]http.Handler {
	ops := map[string]http.Handler{
		"GET /ops/v1/repeats":    http.HandlerFunc(r.serveRepeats),
		"GET /ops/v1/trace/{id}": http.HandlerFunc(r.serveTrace),
		"GET /ops/v1/webhooks":   r.webhookView(),
	}
	maps.Copy(ops, r.opsResends())
	if r.d.Queues != nil {
		ops["GET /ops/v1/conservation"] = http.HandlerFunc(r.serveConservation)
	}
	return ops
}

func (r *Room) serveRepeats(w http.ResponseWriter, req *http.Request) {
	v, err := r.viewRepeats(req)
	if err == nil {
		api.WriteJSON(w, http.StatusOK, v)
		return
	}
	if k := fault.KindOf(err); k != fault.Invalid && req.Context().Err() == nil {
		r.d.Log.Warn("repeats cannot be shown", zap.Error(err))
	}
	api.WriteProblem(w, err)
}

// viewRepeats reads the rows, which are the same for every process of the
// role.
func (r *Room) viewRepeats(req *http.Request) (*RepeatsView, error) {
	p, err := api.ParseParams(req, "account", "since", "limit")
	if err != nil {
		return nil, err
	}
	now := r.d.Now()
	q, err := r.repeatQuery(p, now)
	if err != nil {
		return nil, err
	}
	ctx, cancel := bounded(req.Context())
	defer cancel()
	found, err := r.store.Repeats(ctx, q)
	if err != nil {
		return nil, err
	}
	v := r.repeatsView(found)
	v.From, v.To, v.Account = clock(q.From.UnixMilli()), clock(now.UnixMilli()), q.Account
	if found.Cut {
		v.From = clock(found.First)
	}
	return v, nil
}

func (r *Room) repeatQuery(p api.Params, now time.Time) (q store.RepeatQuery, err error) {
	since := defaultSince
	if text := p.Get("since"); text != "" {
		since, err = time.ParseDuration(text)
		if err != nil || since < time.Second || since > maxSince {
			return q, fault.New(fault.Invalid, readOp, "since is %q: use a duration from 1s to 168h, for example 10m", text).WithField("since")
		}
	}
	if q.Limit, err = number(p, "limit", defaultTop, 1, maxTop); err != nil {
		return q, err
	}
	q.From, q.Account = now.Add(-since), p.Get("account")
	switch {
	case q.Account == "" || r.hasAccount(q.Account):
		return q, nil
	case !wire.ValidAccount(q.Account):
		return q, fault.New(fault.Invalid, readOp, "%q is no account's name", q.Account).WithField("account")
	}
	return q, fault.New(fault.Invalid, readOp, "the account %s is not configured here: leave it out to see all", q.Account).WithField("account")
}

func (r *Room) repeatsView(found *store.Repeats) *RepeatsView {
	hash := r.d.Hasher.OpenID
	v := &RepeatsView{
		Repeats: found.Total, Users: found.Users, Cut: found.Cut,
		TopUsers: make([]userView, len(found.ByUser)), TopActions: make([]actionView, len(found.ByAction)), Recent: make([]repeatedView, len(found.Newest)),
	}
	for i, u := range found.ByUser {
		v.TopUsers[i] = userView{u.Account, hash(u.OpenID), u.Count, clock(u.First), clock(u.Last)}
	}
	for i, a := range found.ByAction {
		v.TopActions[i] = actionView{a.Account, a.Action, a.Count, a.Users, clock(a.Last)}
	}
	for i, n := range found.Newest {
		v.Recent[i] = repeatedView{n.ID, n.Account, hash(n.OpenID), n.Action, n.Reason, clock(n.At)}
	}
	return v
}
