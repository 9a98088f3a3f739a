package receipts

import (
	"context"
	"net/http"
	"time"

	"tidegate/pkg/api"
	"tidegate/pkg/control"
	"tidegate/pkg/fault"
	"tidegate/pkg/telemetry"
	"tidegate/receipts/store"
)

const (
	// auditResend is the kind of the audit entries about re-sends.
	auditResend = "resend"
	// resendLook is how often a request looks whether its re-send has ended.
	resendLook = 20 * time.Millisecond
	resendList = 100
	opsApp     = "operations"
)

// ResendView is how a re-send stands.
type ResendView struct {
	Request    string         `json:"request"`
	App        string         `json:"app"`
	By         string         `json:"by"`
	Reason     string         `json:"reason,omitempty"`
	State      string         `json:"state"` // running, finished or cancelled
	Counted    int            `json:"counted"`
	Sent       int            `json:"sent"`
	Skipped    int            `json:"skipped,omitempty"`
	SkippedBy  map[string]int `json:"skipped_by,omitempty"`
	Why        string         `json:"skipped_because,omitempty"`
	Rate       int            `json:"rate"`
	Finished   bool           `json:"finished"`
	BegunAt    string         `json:"begun_at"`
	FinishedAt string         `json:"finished_at,omitempty"`
	Do         string         `json:"do,omitempty"`
}

// ResendsView is a list of them, the newest first.
type ResendsView struct {
	Resends []ResendView `json:"resends"`
}

var whySkipped = map[string]string{
	skipBlocked: "the user blocks the account, has left it or refuses the template", skipAccount: "the account is not configured any more",
	skipContent: "the content of the push is not stored or cannot be read", "resent_already": "another re-send was faster",
}

func viewOfResend(j store.ResendJob) ResendView {
	v := ResendView{Request: j.Request, App: j.App, By: j.By, Reason: j.Reason, State: j.State, Counted: j.Counted, Sent: j.Sent, SkippedBy: j.Skipped, Rate: j.Rate,
		Finished: j.State != store.ResendRunning, BegunAt: clock(j.BegunAt), FinishedAt: clock(j.FinishedAt)}
	for _, reason := range []string{skipBlocked, skipAccount, skipContent, "resent_already"} {
		if n := j.Skipped[reason]; n > 0 {
			v.Skipped, v.Why = v.Skipped+n, whySkipped[reason]
		}
	}
	if !v.Finished {
		v.Do = "It goes on by itself; GET /v1/resends/" + j.Request + " tells how it stands."
	}
	return v
}

// resendConfirm is the second step. The same confirmation may be sent any number
// of times, on any node: it starts one re-send, which every answer is about. A
// short one has ended when the answer comes.
func (r *Room) resendConfirm(ctx context.Context, app api.App, body resendRequest, by string) (*ResendView, error) {
	if err := body.check(); err != nil {
		return nil, err
	}
	var c confirmation
	if err := r.sealer.Open(confirmPurpose, body.Confirm, &c); err != nil {
		return nil, withField(err, "confirm")
	}
	if c.App != app.Name {
		return nil, fault.New(fault.Denied, resendOp, "the confirmation was given to another app").WithField("confirm")
	}
	if err := r.stillMay(app, c.Filter); err != nil {
		return nil, err
	}
	rate := body.Rate
	if rate == 0 {
		rate = r.cfg.Resend.Rate
	}
	if rate < 1 || rate > r.cfg.Resend.MaxRate {
		return nil, fault.New(fault.Invalid, resendOp, "%d: use 1 to %d a second", rate, r.cfg.Resend.MaxRate).WithField("rate")
	}
	if err := r.startResend(ctx, c, rate, by, body.Reason); err != nil {
		return nil, err
	}
	return r.awaitResend(ctx, c.Request)
}

// startResend writes into the audit and makes the row, unless it is there.
func (r *Room) startResend(ctx context.Context, c confirmation, rate int, by, reason string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if _, err := r.store.ResendOf(ctx, c.Request); fault.KindOf(err) != fault.NotFound || err == nil {
		return err
	}
	if !c.Capped {
		n, err := r.store.Count(ctx, c.Filter, c.Counted+1)
		if err != nil {
			return err
		}
		if n > c.Counted {
			return fault.New(fault.Conflict, resendOp, "more messages are selected now than the %d that were counted: count again", c.Counted)
		}
	}
	if reason == "" {
		reason = "confirmed through the API"
	}
	f := c.Filter
	if f.OpenID != "" {
		f.OpenID = r.d.Hasher.OpenID(f.OpenID)
	}
	value := map[string]any{"do": "start", "request": c.Request, "counted": c.Counted, "rate": rate, "states": f.States, "accounts": f.Accounts, "app": f.App,
		"template": f.Template, "user": f.OpenID, "from": f.From, "to": f.To, "ids": len(f.IDs)}
	if _, err := r.note(ctx, control.Change{Kind: auditResend, Subject: c.App, By: by, Reason: reason}, value); err != nil {
		return err
	}
	_, err := r.store.StartResend(ctx, store.ResendJob{Request: c.Request, App: c.App, By: by, Reason: reason, Filter: c.Filter, Counted: c.Counted,
		CountedAt: c.At, Again: c.Again, Rate: rate})
	if err == nil {
		r.wakeResends()
	}
	return err
}

func (r *Room) wakeResends() {
	select {
	case r.resendWake <- struct{}{}:
	default:
	}
}

// awaitResend waits for the end of a short one.
func (r *Room) awaitResend(ctx context.Context, request string) (*ResendView, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Resend.Timeout)
	defer cancel()
	look := time.NewTicker(resendLook)
	defer look.Stop()
	var last *ResendView
	for {
		j, err := r.store.ResendOf(ctx, request)
		switch {
		case err == nil:
			v := viewOfResend(j)
			if last = &v; v.Finished {
				return last, nil
			}
		case last == nil || ctx.Err() == nil:
			return nil, err
		}
		select {
		case <-ctx.Done():
			return last, nil
		case <-look.C:
		}
	}
}

// resendOf finds a re-send that the app may see: its own, or any with the scope
// for all apps.
func (r *Room) resendOf(ctx context.Context, app api.App, request string) (store.ResendJob, error) {
	j, err := r.store.ResendOf(ctx, request)
	if err == nil && j.App != app.Name && !app.Has(api.AllApps) {
		err = fault.New(fault.NotFound, "find re-send", "there is no re-send %.40q", request)
	}
	return j, err
}

func (r *Room) cancelResend(ctx context.Context, app api.App, request, by, reason string) (*ResendView, error) {
	j, err := r.resendOf(ctx, app, request)
	if err != nil {
		return nil, err
	}
	if j.State == store.ResendRunning {
		if reason == "" {
			reason = "cancelled through the API"
		}
		if _, err := r.note(ctx, control.Change{Kind: auditResend, Subject: j.App, By: by, Reason: reason}, map[string]any{"do": "cancel", "request": request}); err != nil {
			return nil, err
		}
		if _, err := r.store.CancelResend(ctx, request); err != nil {
			return nil, err
		}
		if j, err = r.store.ResendOf(ctx, request); err != nil {
			return nil, err
		}
	}
	v := viewOfResend(j)
	return &v, nil
}

func (r *Room) listResends(ctx context.Context, app string) (*ResendsView, error) {
	js, err := r.store.Resends(ctx, app, resendList)
	if err != nil {
		return nil, err
	}
	v := &ResendsView{Resends: make([]ResendView, len(js))}
	for i, j := range js {
		v.Resends[i] = viewOfResend(j)
	}
	return v, nil
}

// apiResends answers GET /v1/resends, apiResend GET /v1/resends/{request} and
// apiCancel POST /v1/resends/{request}/cancel.
func (r *Room) apiResends(w http.ResponseWriter, req *http.Request, app api.App) error {
	if _, err := api.ParseParams(req); err != nil {
		return err
	}
	ctx, cancel := bounded(req.Context())
	defer cancel()
	name := app.Name
	if app.Has(api.AllApps) {
		name = ""
	}
	v, err := r.listResends(ctx, name)
	if err == nil {
		api.WriteJSON(w, http.StatusOK, v)
	}
	return err
}

func (r *Room) apiResend(w http.ResponseWriter, req *http.Request, app api.App) error {
	if _, err := api.ParseParams(req); err != nil {
		return err
	}
	ctx, cancel := bounded(req.Context())
	defer cancel()
	j, err := r.resendOf(ctx, app, req.PathValue("request"))
	if err == nil {
		api.WriteJSON(w, http.StatusOK, viewOfResend(j))
	}
	return err
}

func (r *Room) apiCancel(w http.ResponseWriter, req *http.Request, app api.App) error {
	if _, err := api.ParseParams(req); err != nil {
		return err
	}
	ctx, cancel := bounded(req.Context())
	defer cancel()
	v, err := r.cancelResend(ctx, app, req.PathValue("request"), app.Name+":"+app.KeyID, "")
	if err == nil {
		api.WriteJSON(w, http.StatusOK, v)
	}
	return err
}

// operator is who acts through the operations listener: for every app.
func operator() api.App {
	return api.App{Name: opsApp, Scopes: []string{api.AllApps}, Accounts: []string{api.AllAccounts}}
}

// opsResends are the endpoints that only look; steerResends those that act.
func (r *Room) opsResends() map[string]http.Handler {
	return map[string]http.Handler{
		"GET /ops/v1/resends": r.forOps(func(_ http.ResponseWriter, req *http.Request) (any, error) {
			ctx, cancel := bounded(req.Context())
			defer cancel()
			return r.listResends(ctx, "")
		}),
		"GET /ops/v1/resends/{request}": r.forOps(func(_ http.ResponseWriter, req *http.Request) (any, error) {
			ctx, cancel := bounded(req.Context())
			defer cancel()
			j, err := r.store.ResendOf(ctx, req.PathValue("request"))
			return viewOfResend(j), err
		}),
	}
}

func (r *Room) steerResends() map[string]http.Handler {
	return map[string]http.Handler{
		"POST /ops/v1/resends": r.forOps(func(w http.ResponseWriter, req *http.Request) (any, error) {
			var body resendRequest
			if err := api.Decode(w, req, resendBody, &body); err != nil {
				return nil, err
			}
			if body.Confirm == "" {
				return r.resendCount(req.Context(), operator(), body)
			}
			if body.Reason == "" {
				return nil, fault.New(fault.Invalid, resendOp, "say why: it is kept in the audit").WithField("reason")
			}
			return r.resendConfirm(req.Context(), operator(), body, telemetry.OpsKeyName(req.Context()))
		}),
		"POST /ops/v1/resends/{request}/cancel": r.forOps(func(w http.ResponseWriter, req *http.Request) (any, error) {
			var body struct {
				Reason string `json:"reason"`
			}
			if err := api.Decode(w, req, steerBody, &body); err != nil {
				return nil, err
			}
			if body.Reason == "" {
				return nil, fault.New(fault.Invalid, resendOp, "say why: it is kept in the audit").WithField("reason")
			}
			ctx, cancel := bounded(req.Context())
			defer cancel()
			return r.cancelResend(ctx, operator(), req.PathValue("request"), telemetry.OpsKeyName(req.Context()), body.Reason)
		}),
	}
}
