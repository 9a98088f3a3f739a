package receipts

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/control"
	"tidegate/pkg/fault"
	"tidegate/pkg/telemetry"
	"tidegate/receipts/store"
	"tidegate/receipts/webhook"
)

const (
	webhookOp = "webhooks"
	steerBody = 16 << 10
	// auditWebhook is the kind of the audit entries about webhooks.
	auditWebhook = "webhook"
)

// openWebhooks makes the outbox part of what the store writes, and prepares
// re-sends.
func (r *Room) openWebhooks(ctx context.Context, s *store.SQL) (err error) {
	r.resendWake = make(chan struct{}, 1)
	r.hooks, err = webhook.New(ctx, r.cfg.Webhooks, webhook.Deps{DB: r.d.DB, Log: r.d.Log.Named("webhooks"), Registry: r.d.Registry, Alarms: r.d.Alarms, Now: r.d.Now})
	if err == nil && len(r.cfg.Webhooks.Apps) > 0 {
		s.OnChange(r.hooks.Changed)
	}
	return err
}

// WebhookSteer is the body of POST /ops/v1/webhooks/{endpoint}/enable and
// …/redeliver; enable has a reason only.
type WebhookSteer struct {
	Reason string `json:"reason"`
	// Since and Until bound when the events were made, RFC 3339.
	Since     string `json:"since,omitempty"`
	Until     string `json:"until,omitempty"`
	Message   string `json:"message,omitempty"`
	Event     string `json:"event,omitempty"`
	Delivered bool   `json:"delivered,omitempty"`
}

// WebhookSteered is the answer.
type WebhookSteered struct {
	Endpoint string `json:"endpoint"`
	Events   int    `json:"events"` // that go again
	Version  int64  `json:"audit_version"`
}

// Steer are the room's endpoints that change how the deployment runs.
func (r *Room) Steer() map[string]http.Handler {
	out := map[string]http.Handler{
		"POST /ops/v1/webhooks/{endpoint}/enable": r.forOps(func(w http.ResponseWriter, req *http.Request) (any, error) {
			return r.steerWebhook(w, req, "enable", func(ctx context.Context, endpoint string, _ WebhookSteer) (int, error) {
				return 0, r.hooks.Enable(ctx, endpoint)
			})
		}),
		"POST /ops/v1/webhooks/{endpoint}/redeliver": r.forOps(func(w http.ResponseWriter, req *http.Request) (any, error) {
			return r.steerWebhook(w, req, "redeliver", r.redeliver)
		}),
	}
	maps.Copy(out, r.steerResends())
	return out
}

func (r *Room) webhookView() http.Handler {
	return r.forOps(func(_ http.ResponseWriter, req *http.Request) (any, error) {
		if _, err := api.ParseParams(req); err != nil {
			return nil, err
		}
		ctx, cancel := bounded(req.Context())
		defer cancel()
		return r.hooks.View(ctx)
	})
}

func (r *Room) steerWebhook(w http.ResponseWriter, req *http.Request, what string, do func(context.Context, string, WebhookSteer) (int, error)) (*WebhookSteered, error) {
	if _, err := api.ParseParams(req); err != nil {
		return nil, err
	}
	var q WebhookSteer
	if err := api.Decode(w, req, steerBody, &q); err != nil {
		return nil, err
	}
	out := &WebhookSteered{Endpoint: req.PathValue("endpoint")}
	if err := r.hooks.Known(out.Endpoint); err != nil {
		return nil, err
	}
	var err error
	out.Version, err = r.note(req.Context(), control.Change{Kind: auditWebhook, Subject: subjectOf(out.Endpoint), By: telemetry.OpsKeyName(req.Context()), Reason: q.Reason},
		map[string]any{"do": what, "endpoint": out.Endpoint, "since": q.Since, "until": q.Until, "message": q.Message, "event": q.Event, "delivered": q.Delivered})
	if err != nil {
		return nil, err
	}
	out.Events, err = do(req.Context(), out.Endpoint, q)
	return out, err
}

func (r *Room) redeliver(ctx context.Context, endpoint string, q WebhookSteer) (int, error) {
	a := webhook.Again{Endpoint: endpoint, Message: q.Message, Event: q.Event, Delivered: q.Delivered}
	var err error
	if a.From, err = moment(q.Since, "since"); err != nil {
		return 0, err
	}
	if a.To, err = moment(q.Until, "until"); err != nil {
		return 0, err
	}
	return r.hooks.Redeliver(ctx, a)
}

// note writes into the audit before anything is done: a change that nobody can
// be found for must not be possible, an entry without a change is harmless.
func (r *Room) note(ctx context.Context, c control.Change, value map[string]any) (int64, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return 0, fault.Wrap(fault.Internal, "write audit", err)
	}
	c.Value = text
	if r.d.Audit == nil {
		r.d.Log.Info("a change by hand, kept in the log only", zap.String("kind", c.Kind), zap.String("subject", c.Subject), zap.String("by", c.By), zap.String("reason", c.Reason))
		return 0, nil
	}
	e, err := r.d.Audit.Apply(ctx, c)
	if err == nil {
		r.d.Log.Info("a change by hand", zap.String("kind", c.Kind), zap.String("subject", c.Subject), zap.String("by", c.By), zap.String("reason", c.Reason), zap.Int64("audit_version", e.Version))
	}
	return e.Version, err
}

// subjectOf makes a name that the audit takes: @ and brackets stand in hosts.
func subjectOf(endpoint string) string {
	out := []byte(endpoint)
	for i, c := range out {
		if c == '@' || c == '[' || c == ']' {
			out[i] = ':'
		}
	}
	return string(out)
}

// forOps answers with what do gives. What is no mistake of the caller's is
// logged.
func (r *Room) forOps(do func(http.ResponseWriter, *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		v, err := do(w, req)
		if err == nil {
			api.WriteJSON(w, http.StatusOK, v)
			return
		}
		switch fault.KindOf(err) {
		case fault.Internal, fault.Unavailable, fault.Ambiguous:
			if req.Context().Err() == nil {
				r.d.Log.Warn("a request of operations failed", zap.String("path", req.Pattern), zap.Error(err))
			}
		}
		api.WriteProblem(w, err)
	})
}

// keepWebhooks is the webhooks' share of the housekeeping.
func (r *Room) keepWebhooks(ctx context.Context) error {
	return r.hooks.Keep(ctx, max(r.cfg.Retention, 24*time.Hour))
}
