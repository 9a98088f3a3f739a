package receipts

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/idgen"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

const (
	resendBody     = 64 << 10
	resendIDs      = 200
	confirmPurpose = "confirmation of a re-send"
	resendOp       = "re-send messages"
	// resendMargin is how much longer than one request a claim lives: no request
	// outlives its claim, and a re-send whose node died can soon be taken up.
	resendMargin = time.Minute
)

// resendRequest is the body of POST /v1/messages:resend: a selection to be
// counted, or the confirmation of one.
type resendRequest struct {
	Selection *selection `json:"selection"`
	Confirm   string     `json:"confirm"`
}

// selection names the pushes to send again; everything given must hold.
type selection struct {
	IDs        []string `json:"ids"`
	Account    string   `json:"account"`
	App        string   `json:"app"`
	OpenID     string   `json:"openid"`
	Reference  string   `json:"reference"`
	TemplateID string   `json:"template_id"`
	States     []string `json:"states"` // required: it says what went wrong
	ErrCode    int      `json:"errcode"`
	From       string   `json:"from"`
	To         string   `json:"to"`
	// Again includes messages that were re-sent before.
	Again bool `json:"again"`
}

// confirmation is what a counted selection is bound to.
type confirmation struct {
	Request string       `json:"r"`
	App     string       `json:"a"`
	Filter  store.Filter `json:"f"`
	Counted int          `json:"n"`
}

// resend answers both steps.
func (r *Room) resend(w http.ResponseWriter, req *http.Request, app api.App) error {
	var body resendRequest
	if err := api.Decode(w, req, resendBody, &body); err != nil {
		return err
	}
	switch {
	case (body.Selection == nil) == (body.Confirm == ""):
		return fault.New(fault.Invalid, resendOp, "send either a selection, to count it, or the confirm of one").WithField("selection")
	case body.Confirm != "":
		return r.execute(w, req, app, body.Confirm)
	}
	return r.count(w, req, app, *body.Selection)
}

// count is the first step: nothing is sent, and the answer says how many
// messages the confirmation will send.
func (r *Room) count(w http.ResponseWriter, req *http.Request, app api.App, s selection) error {
	f, err := s.filter(r.d.Now())
	if err != nil {
		return err
	}
	if err := visible(&f, app, s.Account); err != nil {
		return err
	}
	ctx, cancel := bounded(req.Context())
	defer cancel()
	n, err := r.store.Count(ctx, f, r.cfg.Resend.Max+1)
	if err != nil {
		return err
	}
	if n > r.cfg.Resend.Max {
		return fault.New(fault.Invalid, resendOp, "more than %d messages are selected: narrow the selection, for instance by time", r.cfg.Resend.Max).WithField("selection")
	}
	out := struct {
		Count   int    `json:"count"`
		Confirm string `json:"confirm,omitempty"`
		Until   string `json:"confirm_until,omitempty"`
	}{Count: n}
	if n > 0 {
		c := confirmation{Request: rand.Text(), App: app.Name, Filter: f, Counted: n}
		if out.Confirm, err = r.sealer.Seal(confirmPurpose, c, r.cfg.Resend.ConfirmWithin); err != nil {
			return err
		}
		out.Until = clock(r.d.Now().Add(r.cfg.Resend.ConfirmWithin).UnixMilli())
	}
	api.WriteJSON(w, http.StatusOK, out)
	return nil
}

// filter checks a selection. The end of its time is fixed now: what fails
// later was not counted.
func (s selection) filter(now time.Time) (store.Filter, error) {
	f := store.Filter{IDs: s.IDs, App: s.App, OpenID: s.OpenID, Reference: s.Reference, Template: s.TemplateID, ErrCode: s.ErrCode,
		Kinds: []wire.Kind{wire.KindPush}, NotResent: !s.Again}
	if len(s.IDs) > resendIDs {
		return f, fault.New(fault.Invalid, resendOp, "%d ids: at most %d are taken at once", len(s.IDs), resendIDs).WithField("selection.ids")
	}
	for _, id := range s.IDs {
		if _, err := idgen.Parse(id); err != nil {
			return f, fault.New(fault.Invalid, resendOp, "%q: %w", id, err).WithField("selection.ids")
		}
	}
	failed := stateNames(func(i wire.StateInfo) bool { return i.Failure })
	for _, name := range s.States {
		if !slices.Contains(failed, name) {
			return f, fault.New(fault.Invalid, resendOp, "state %q cannot be re-sent: use some of %v", name, failed).WithField("selection.states")
		}
		f.States = append(f.States, wire.State(name))
	}
	if len(f.States) == 0 {
		return f, fault.New(fault.Invalid, resendOp, "say which states to re-send: some of %v", failed).WithField("selection.states")
	}
	var err error
	if f.From, err = moment(s.From, "selection.from"); err != nil {
		return f, err
	}
	if f.To, err = moment(s.To, "selection.to"); err != nil {
		return f, err
	}
	if limit := now.Add(time.Millisecond).UTC(); f.To.IsZero() || f.To.After(limit) {
		f.To = limit
	}
	return f, nil
}

// execute is the second step. The same confirmation may be sent any number of
// times: it sends each message once, and goes on where an earlier request was
// cut off.
func (r *Room) execute(w http.ResponseWriter, req *http.Request, app api.App, text string) error {
	var c confirmation
	if err := r.sealer.Open(confirmPurpose, text, &c); err != nil {
		return withField(err, "confirm")
	}
	if c.App != app.Name {
		return fault.New(fault.Denied, resendOp, "the confirmation was given to another app").WithField("confirm")
	}
	if err := r.stillMay(app, c.Filter); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(req.Context(), r.cfg.Resend.Timeout)
	defer cancel()
	claim, err := r.store.BeginResend(ctx, store.Resend{Request: c.Request, App: app.Name, KeyID: app.KeyID, Filter: c.Filter, Counted: c.Counted},
		r.cfg.Resend.Timeout+resendMargin)
	if err != nil {
		return err
	}
	done := resent{Request: c.Request, Counted: c.Counted, Sent: claim.Sent, Finished: claim.Finished}
	if !claim.Finished {
		if err := r.carryOut(ctx, c, claim, &done); err != nil {
			return err
		}
		r.d.Log.Info("messages were re-sent", zap.String("app", app.Name), zap.String("key", app.KeyID),
			zap.String("request", c.Request), zap.Int("sent", done.Sent), zap.Bool("finished", done.Finished))
	}
	if !done.Finished {
		done.Do = "Send the same confirm again; it goes on where it stopped."
	}
	api.WriteJSON(w, http.StatusAccepted, done)
	return nil
}

// stillMay checks the key again: it may have fewer rights than the one that
// counted.
func (r *Room) stillMay(app api.App, f store.Filter) error {
	for _, a := range f.Accounts {
		if !app.May(a) {
			return fault.New(fault.Denied, resendOp, "the key is not for the account %s", a)
		}
	}
	if len(f.Accounts) == 0 && !slices.Contains(app.Accounts, api.AllAccounts) || f.App != app.Name && !app.Has(api.AllApps) {
		return fault.New(fault.Denied, resendOp, "the key may see less than what was counted: count with it again")
	}
	return nil
}

// resent is the answer to a confirmation.
type resent struct {
	Request  string `json:"request"`
	Counted  int    `json:"counted"`
	Sent     int    `json:"sent"`
	Skipped  int    `json:"skipped,omitempty"`
	Why      string `json:"skipped_because,omitempty"`
	Finished bool   `json:"finished"`
	Do       string `json:"do,omitempty"`
}
