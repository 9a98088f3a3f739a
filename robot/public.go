package robot

import (
	"context"
	"errors"
	"net/http"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/wire"
	"tidegate/robot/binding"
	"tidegate/robot/engine"
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

// Ops is the robot's share of the operations listener.
func (r *Robot) Ops() map[string]http.Handler {
	ops := map[string]http.Handler{}
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
	"what the sender holds, its intents and credits: they end within days",
	"marks in Redis that name no person's content: they end within ten minutes",
	"the binding itself, which is the back end's: unbind the follower",
}

func (r *Robot) eraseData(w http.ResponseWriter, req *http.Request) error {
	e, err := r.Erase(req.Context(), req.PathValue("account"), req.PathValue("openid"))
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, e)
	return nil
}

// Erase removes everything that robots keep of a follower: his last actions, his
// dialogue, the counts of his limits and what is known of his binding. All robots
// share it, so one that erases is enough. It does the whole or gives an error; it
// may be repeated.
func (r *Robot) Erase(ctx context.Context, account, openid string) (Erasure, error) {
	e := Erasure{Erased: []string{}, Kept: keptElsewhere}
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
	if r.history != nil {
		_, err := r.history.Erase(ctx, account, openid)
		done("last actions", err)
	}
	if r.dialogues != nil {
		done("dialogue", r.dialogues.Erase(ctx, account, openid))
	}
	if rules, ok := (*r.rules.Load()).(interface{ Limited() []string }); ok && r.allowances != nil {
		done("counts of limits", r.allowances.Erase(ctx, account, openid, rules.Limited()...))
	}
	if r.bindings != nil {
		done("what is known of the binding", r.bindings.Forget(ctx, account, openid))
	}
	if len(errs) > 0 {
		return e, fault.New(fault.Unavailable, "erase a follower's data", "%w", errors.Join(errs...))
	}
	return e, nil
}
