package robot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
	"tidegate/robot/binding"
	"tidegate/robot/dialogue"
	"tidegate/robot/engine"
	"tidegate/robot/history"
)

// Public is the robot's share of the public API: bindings, and the erasure of what
// is kept of a follower.
func (r *Robot) Public(keys *api.Keys) http.Handler {
	m := http.NewServeMux()
	if r.bindings != nil {
		r.bindings.Mount(m, keys, r.d.Log)
	}
	const data = "/v1/accounts/{account}/users/{openid}/data"
	m.Handle("DELETE "+data, keys.Authorize(api.DataErase, binding.Answer(r.d.Log, r.eraseData)))
	m.Handle(data, api.OnlyMethods(http.MethodDelete))
	m.HandleFunc("/", api.NotFound)
	return m
}

// PersonalOps is the robot's share of the operations listener that concerns one
// follower, for keys with the scope personal.
func (r *Robot) PersonalOps() map[string]http.Handler {
	ops := map[string]http.Handler{"DELETE /ops/v1/users/{account}/{openid}/data": http.HandlerFunc(r.eraseForOps)}
	if r.history != nil {
		ops["GET /ops/v1/users/{account}/{openid}/actions"] = http.HandlerFunc(r.actions)
	}
	return ops
}

// actions answers with what a follower did last, the newest first.
func (r *Robot) actions(w http.ResponseWriter, req *http.Request) {
	account, openid := req.PathValue("account"), req.PathValue("openid")
	all, err := []engine.Action(nil), follower(account, openid)
	if err == nil {
		all, err = r.history.Last(req.Context(), account, openid)
	}
	if err != nil {
		api.WriteProblem(w, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, struct {
		Actions []engine.Action `json:"actions"`
	}{all})
}

// eraseForOps is eraseData for operations: whoever may erase need not have a key of
// the public API, and the robots need not serve one.
func (r *Robot) eraseForOps(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), eraseWithin)
	defer cancel()
	account, openid := req.PathValue("account"), req.PathValue("openid")
	e, err := r.Erase(ctx, account, openid)
	if err != nil {
		api.WriteProblem(w, err)
		return
	}
	r.d.Log.Info("a follower's data was erased", zap.String("account", account), zap.String("user", r.d.Hasher.OpenID(openid)), zap.String("by", telemetry.OpsKeyName(req.Context())))
	api.WriteJSON(w, http.StatusOK, e)
}

// eraseWithin bounds an erasure that operations asks for.
const eraseWithin = 10 * time.Second

func follower(account, openid string) error {
	if !wire.ValidAccount(account) {
		return fault.New(fault.Invalid, "check account", "%.60q is no account's name", account).WithField("account")
	}
	if !wire.ValidOpenID(openid) {
		return fault.New(fault.Invalid, "check openid", "this is no openid").WithField("openid")
	}
	return nil
}

// Erasure says what an erasure did, and what it cannot do.
type Erasure struct {
	Erased []string `json:"erased"` // what was looked for and is gone
	Kept   []string `json:"kept"`   // what this does not reach
}

// keptElsewhere is what Erase does not reach, for the answer.
var keptElsewhere = []string{
	"records of callbacks, replies and receipts in Kafka: they end with topics.retention",
	"rows of messages and callbacks in the receipts database: they end with its retention",
	"what the sender holds, its intents: they end within days",
	"marks in Redis that name no person's content: they end within ten minutes",
	"counts of limits that the present rules do not have: they end within two periods of the limit and ten minutes",
	"the binding itself, which is the back end's: unbind the follower",
}

// kept is keptElsewhere and what depends on the configuration.
func (r *Robot) kept() []string {
	const earlier = "what an earlier configuration kept ends within two days"
	all := append([]string{"back ends' answers about him that rules keep (guard: {class: personal, cache: true}), of a back end or a guard.key that is configured no more, sealed: " + earlier}, keptElsewhere...)
	var longest time.Duration
	for _, g := range r.guards {
		longest = max(longest, g.Guard().PersonalLife())
	}
	if longest > 0 {
		all = append(all, fmt.Sprintf("back ends' answers in the memory of a robot whom Redis does not answer at the moment: they end within %s or when it does", longest))
	}
	if r.bindings == nil || r.cfg.Binding.Key == "" {
		all = append(all, "cached answers about the binding, sealed: none are made now; "+earlier)
	}
	return all
}

func (r *Robot) eraseData(w http.ResponseWriter, req *http.Request) error {
	e, err := r.Erase(req.Context(), req.PathValue("account"), req.PathValue("openid"))
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, e)
	return nil
}

// Erase removes what robots keep of a follower: his last actions and his dialogue,
// also if the configuration makes none any more, the counts of his limits, what
// guards keep of back ends' answers about him and what is known of his binding. Erasure.Kept names the rest. All robots share it, so one
// that erases is enough. It does the whole or gives an error; it may be repeated.
func (r *Robot) Erase(ctx context.Context, account, openid string) (Erasure, error) {
	e := Erasure{Erased: []string{}, Kept: r.kept()}
	if err := follower(account, openid); err != nil {
		return e, err
	}
	var errs []error
	done := func(what string, err error) {
		if err != nil {
			errs = append(errs, err)
			return
		}
		e.Erased = append(e.Erased, what)
	}
	if r.d.Redis != nil {
		var err error
		if r.history != nil { // it counts
			_, err = r.history.Erase(ctx, account, openid)
		} else {
			_, err = history.Erase(ctx, r.d.Redis, account, openid)
		}
		done("last actions", err)
		done("dialogue", dialogue.Erase(ctx, r.d.Redis, account, openid))
	}
	if rules, ok := (*r.rules.Load()).(interface{ Limited() []string }); ok && r.allowances != nil {
		done("counts of limits", r.allowances.Erase(ctx, account, openid, rules.Limited()...))
	}
	if len(r.guards) > 0 {
		done("back ends' personal answers", r.erasePersonal(ctx, person(account, openid)))
	}
	if r.d.Credits != nil {
		_, err := r.d.Credits.Erase(ctx, account, openid)
		done("reply credits", err)
	}
	if r.bindings != nil {
		done("what is known of the binding", r.bindings.Forget(ctx, account, openid))
	}
	if len(errs) > 0 {
		return e, fault.New(fault.Ambiguous, "erase a follower's data", "%w", errors.Join(errs...))
	}
	return e, nil
}
