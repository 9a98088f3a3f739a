package receipts

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"time"

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
)

// resendRequest is the body of POST /v1/messages:resend: a selection to be
// counted, or the confirmation of one.
type resendRequest struct {
	Selection *selection `json:"selection"`
	// DryRun, beside a selection, tells what would be sent and what not, and why.
	DryRun  bool   `json:"dry_run"`
	Confirm string `json:"confirm"`
	// Rate, beside a confirmation, is how many are sent a second.
	Rate int `json:"rate"`
	// Reason, beside a confirmation, is kept in the audit.
	Reason string `json:"reason"`
}

// selection names the pushes to send again; everything given must hold.
type selection struct {
	IDs        []string `json:"ids"`
	Account    string   `json:"account"`
	App        string   `json:"app"`
	OpenID     string   `json:"openid"`
	Reference  string   `json:"reference"`
	TemplateID string   `json:"template_id"`
	Lane       string   `json:"lane"`
	States     []string `json:"states"` // required: it says what went wrong
	ErrCode    int      `json:"errcode"`
	From       string   `json:"from"`
	To         string   `json:"to"`
	// Again includes messages that were re-sent before.
	Again bool `json:"again"`
	// Limit is the most that are sent, the newest first; 0 is all.
	Limit int `json:"limit"`
}

// confirmation is what a counted selection is bound to.
type confirmation struct {
	Request string       `json:"r"`
	App     string       `json:"a"`
	Filter  store.Filter `json:"f"`
	Counted int          `json:"n"`
	Capped  bool         `json:"c,omitempty"` // by the limit: there may be more
	At      int64        `json:"t"`
	Again   bool         `json:"g,omitempty"`
}

// resend answers both steps.
func (r *Room) resend(w http.ResponseWriter, req *http.Request, app api.App) error {
	var body resendRequest
	if err := api.Decode(w, req, resendBody, &body); err != nil {
		return err
	}
	if body.Confirm == "" {
		out, err := r.resendCount(req.Context(), app, body)
		if err == nil {
			api.WriteJSON(w, http.StatusOK, out)
		}
		return err
	}
	out, err := r.resendConfirm(req.Context(), app, body, app.Name+":"+app.KeyID)
	if err == nil {
		api.WriteJSON(w, http.StatusAccepted, out)
	}
	return err
}

// check refuses a body that is neither step.
func (b resendRequest) check() error {
	bad := func(field, text string) error { return fault.New(fault.Invalid, resendOp, "%s", text).WithField(field) }
	switch {
	case (b.Selection == nil) == (b.Confirm == ""):
		return bad("selection", "send either a selection, to count it, or the confirm of one")
	case b.Confirm == "" && b.Rate != 0:
		return bad("rate", "it belongs beside confirm")
	case b.Confirm != "" && b.DryRun:
		return bad("dry_run", "it belongs beside a selection")
	}
	return nil
}

// Counted is the answer to a selection.
type Counted struct {
	Count   int    `json:"count"`
	Confirm string `json:"confirm,omitempty"`
	Until   string `json:"confirm_until,omitempty"`
	// WouldSend and WouldSkip are there after a dry run.
	WouldSend *int           `json:"would_send,omitempty"`
	WouldSkip map[string]int `json:"would_skip,omitempty"`
}

// resendCount is the first step: nothing is sent, and the answer says how many
// messages the confirmation will send at most.
func (r *Room) resendCount(ctx context.Context, app api.App, body resendRequest) (*Counted, error) {
	if err := body.check(); err != nil {
		return nil, err
	}
	s := *body.Selection
	f, err := s.filter(r.d.Now())
	if err != nil {
		return nil, err
	}
	if err := visible(&f, app, s.Account); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Resend.Timeout)
	defer cancel()
	most := r.cfg.Resend.Max
	if s.Limit > 0 && s.Limit <= most {
		most = s.Limit
	}
	n, err := r.store.Count(ctx, f, most+1)
	if err != nil {
		return nil, err
	}
	capped := n > most && s.Limit > 0 && s.Limit <= r.cfg.Resend.Max
	if n > most && !capped {
		return nil, fault.New(fault.Invalid, resendOp, "more than %d messages are selected: narrow the selection, for instance by time, or give it a limit", most).WithField("selection")
	}
	n = min(n, most)
	out := &Counted{Count: n}
	if body.DryRun {
		if err := r.dryRun(ctx, f, n, out); err != nil {
			return nil, err
		}
	}
	if n == 0 {
		return out, nil
	}
	now := r.d.Now()
	c := confirmation{Request: rand.Text(), App: app.Name, Filter: f, Counted: n, Capped: capped, At: now.UnixMilli(), Again: s.Again}
	out.Confirm, err = r.sealer.Seal(confirmPurpose, c, r.cfg.Resend.ConfirmWithin)
	out.Until = clock(now.Add(r.cfg.Resend.ConfirmWithin).UnixMilli())
	return out, err
}

// dryRun looks at every message as the re-send would, and marks nothing.
func (r *Room) dryRun(ctx context.Context, f store.Filter, n int, out *Counted) error {
	j, would := &store.ResendJob{Request: "dry run", Skipped: map[string]int{}}, 0
	for n > 0 {
		ms, err := r.store.List(ctx, f, j.Mark, min(n, resendPage))
		if err != nil {
			return err
		}
		if len(ms) == 0 {
			break
		}
		marks, err := r.resendMarks(ctx, j, ms)
		if err != nil {
			return err
		}
		mark := ms[len(ms)-1].Mark()
		j.Mark, would, n = &mark, would+len(marks), n-len(ms)
	}
	out.WouldSend, out.WouldSkip = &would, j.Skipped
	return nil
}

// filter checks a selection. The end of its time is fixed now: what fails
// later was not counted.
func (s selection) filter(now time.Time) (store.Filter, error) {
	f := store.Filter{IDs: s.IDs, App: s.App, OpenID: s.OpenID, Reference: s.Reference, Template: s.TemplateID, Lane: s.Lane, ErrCode: s.ErrCode,
		Kinds: []wire.Kind{wire.KindPush}, NotResent: !s.Again}
	if len(s.IDs) > resendIDs {
		return f, fault.New(fault.Invalid, resendOp, "%d ids: at most %d are taken at once", len(s.IDs), resendIDs).WithField("selection.ids")
	}
	if s.Limit < 0 {
		return f, fault.New(fault.Invalid, resendOp, "%d: use 1 or more, or leave it out", s.Limit).WithField("selection.limit")
	}
	if s.Lane != "" && s.Lane != wire.LaneRealtime && s.Lane != wire.LaneBulk {
		return f, fault.New(fault.Invalid, resendOp, "%.40q: use realtime or bulk", s.Lane).WithField("selection.lane")
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
