package app

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/control"
	"tidegate/pkg/fault"
	"tidegate/pkg/telemetry"
	"tidegate/sender/hold"
)

const ordersOp = "orders"

// holds is what a sender tells about held letters; nil in a process without one.
type holds interface {
	CountHeld(ctx context.Context, o control.Order) (int64, error)
	Held(ctx context.Context) ([]hold.Group, error)
}

// ordersHandler is the operations API of pauses, or of cancels. Its errors are
// answered and logged as those of limits.
type ordersHandler struct {
	limitsHandler
	kind string
	held *holds // filled in when the process has built its sender
}

// orderRequest is the body of PUT /ops/v1/pauses/{name} and cancels/{name}.
type orderRequest struct {
	control.Order
	Reason string `json:"reason"`
	// ExpiresIn is a duration such as 2h; without it a pause stays until it is
	// lifted, and a cancel for 30 days.
	ExpiresIn string `json:"expires_in"`
}

// orderAnswer is what a change was answered with.
type orderAnswer struct {
	Name    string         `json:"name"`
	Version int64          `json:"version,omitempty"` // 0: a dry run
	DryRun  bool           `json:"dry_run,omitempty"`
	Order   *control.Order `json:"order,omitempty"` // nil: it was taken back
	// Held is how many held letters the order covers now. What is in the queue
	// is not counted: nobody can look into it without reading it.
	Held        *int64 `json:"held,omitempty"`
	HeldUnknown string `json:"held_unknown,omitempty"`
	Until       string `json:"expires_at,omitempty"`
	Hash        string `json:"audit_hash,omitempty"`
}

func (h ordersHandler) list(w http.ResponseWriter, r *http.Request) {
	if _, err := api.ParseParams(r); err != nil {
		api.WriteProblem(w, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, h.panel.OrdersOverview(r.Context(), h.kind))
}

func (h ordersHandler) give(w http.ResponseWriter, r *http.Request) {
	a, err := h.set(w, r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, a)
}

func (h ordersHandler) set(w http.ResponseWriter, r *http.Request) (*orderAnswer, error) {
	c := control.OrderChange{Kind: h.kind, Name: r.PathValue("name"), By: telemetry.OpsKeyName(r.Context())}
	p, err := api.ParseParams(r, "dry_run")
	if err != nil {
		return nil, err
	}
	dry := p.Get("dry_run")
	if dry != "" && dry != "true" && dry != "false" {
		return nil, fault.New(fault.Invalid, ordersOp, "dry_run is %.40q: use true or false", dry).WithField("dry_run")
	}
	if c.IfVersion, err = ifMatch(r); err != nil {
		return nil, err
	}
	var q orderRequest
	if err := api.Decode(w, r, maxLimitBody, &q); err != nil {
		return nil, err
	}
	if q.ExpiresIn != "" {
		if c.ExpiresIn, err = time.ParseDuration(q.ExpiresIn); err != nil || c.ExpiresIn < time.Second {
			return nil, fault.New(fault.Invalid, ordersOp, "expires_in is %.40q: use a duration of at least a second, for example 2h", q.ExpiresIn).WithField("expires_in")
		}
	}
	c.To, c.Reason = &q.Order, q.Reason
	if err := q.Validate(); err != nil {
		return nil, err
	}
	if err := h.knows(r.Context(), q.Account); err != nil {
		return nil, err
	}
	a := &orderAnswer{Name: c.Name, Order: c.To, DryRun: dry == "true"}
	h.count(r.Context(), a)
	if a.DryRun {
		return a, nil
	}
	e, err := h.panel.SetOrder(r.Context(), c)
	if err != nil {
		return nil, err
	}
	a.Version, a.Hash = e.Version, e.Hash
	if !e.ExpiresAt.IsZero() {
		a.Until = e.ExpiresAt.UTC().Format(time.RFC3339)
	}
	w.Header().Set("ETag", etag(e.Version))
	return a, nil
}

// count says how many held letters are covered. That it cannot be told stops no
// order.
func (h ordersHandler) count(ctx context.Context, a *orderAnswer) {
	if *h.held == nil {
		a.HeldUnknown = "this process has no sender: ask one to have held letters counted"
		return
	}
	n, err := (*h.held).CountHeld(ctx, *a.Order)
	if err != nil {
		h.log.Info("held letters could not be counted", zap.Error(err))
		a.HeldUnknown = "the database did not answer in time"
		return
	}
	a.Held = &n
}

// knows refuses an order for an account that nobody has: it would stop nothing,
// and whoever gave it would believe that it does.
func (h ordersHandler) knows(ctx context.Context, account string) error {
	if account == "" {
		return nil
	}
	o := h.panel.Overview(ctx)
	var names []string
	for _, l := range o.Limits {
		if l.File == nil {
			continue
		}
		name, sends := strings.CutPrefix(l.Subject, "sender.")
		name, _, _ = strings.Cut(name, ".")
		if !sends {
			name, sends = strings.CutPrefix(l.Subject, "robot.account.")
		}
		if sends && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if slices.Contains(names, account) || o.NodesUnknown != "" {
		return nil
	}
	slices.Sort(names)
	if len(names) > 20 {
		names = append(names[:20:20], "…")
	}
	return fault.New(fault.Invalid, ordersOp, "account: no live node has the account %.60q; there are: %s", account, strings.Join(names, ", ")).WithField("account")
}

func (h ordersHandler) takeBack(w http.ResponseWriter, r *http.Request) {
	c := control.OrderChange{Kind: h.kind, Name: r.PathValue("name"), By: telemetry.OpsKeyName(r.Context())}
	p, err := api.ParseParams(r, "reason")
	if err == nil {
		c.Reason = p.Get("reason")
		c.IfVersion, err = ifMatch(r)
	}
	var e control.Entry
	if err == nil {
		e, err = h.panel.SetOrder(r.Context(), c)
	}
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, orderAnswer{Name: c.Name, Version: e.Version, Hash: e.Hash})
}

// heldView is the answer of GET /ops/v1/held.
type heldView struct {
	Groups []hold.Group `json:"groups"`
}

func (h ordersHandler) showHeld(w http.ResponseWriter, r *http.Request) {
	_, err := api.ParseParams(r)
	if err == nil && *h.held == nil {
		err = fault.New(fault.NotFound, ordersOp, "this process has no sender: ask a sender role")
	}
	var v heldView
	if err == nil {
		v.Groups, err = (*h.held).Held(r.Context())
	}
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, v)
}

// ordersInto adds the endpoints of pauses and cancels to a part.
func (s *steering) ordersInto(p *part, l limitsHandler) {
	for path, kind := range map[string]string{"pauses": control.KindPause, "cancels": control.KindCancel} {
		h := ordersHandler{l, kind, s.held}
		p.ops["GET /ops/v1/"+path] = http.HandlerFunc(h.list)
		p.steer["PUT /ops/v1/"+path+"/{name}"] = http.HandlerFunc(h.give)
		p.steer["DELETE /ops/v1/"+path+"/{name}"] = http.HandlerFunc(h.takeBack)
	}
	p.ops["GET /ops/v1/held"] = http.HandlerFunc(ordersHandler{l, "", s.held}.showHeld)
}
