package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/control"
	"tidegate/pkg/fault"
	"tidegate/pkg/telemetry"
)

const (
	limitsOp     = "limits"
	maxLimitBody = 4 << 10
)

// limitsHandler is the operations API of live limits. Reading needs the scope
// read, changing the scope steer (part.steer).
type limitsHandler struct {
	panel *control.Panel
	log   *zap.Logger
}

// limitRequest is the body of PUT /ops/v1/limits/{subject}. A limit is replaced
// as a whole, so that two operators never put halves together.
type limitRequest struct {
	Rate        *float64 `json:"rate"`
	Burst       *int     `json:"burst"`
	Concurrency *int     `json:"concurrency"`
	Reason      string   `json:"reason"`
	// ExpiresIn is a duration such as 2h; without it the limit stays.
	ExpiresIn string `json:"expires_in"`
}

// limitAnswer is what a change was answered with.
type limitAnswer struct {
	Subject string         `json:"subject"`
	Version int64          `json:"version"`
	From    *control.Limit `json:"from,omitempty"` // the override before
	To      *control.Limit `json:"to,omitempty"`   // nil: the file's value
	Until   string         `json:"expires_at,omitempty"`
	Hash    string         `json:"audit_hash"`
}

func (h limitsHandler) all(w http.ResponseWriter, r *http.Request) {
	if _, err := api.ParseParams(r); err != nil {
		api.WriteProblem(w, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, h.panel.Overview(r.Context()))
}

func (h limitsHandler) one(w http.ResponseWriter, r *http.Request) {
	subject := r.PathValue("subject")
	for _, l := range h.panel.Overview(r.Context()).Limits {
		if l.Subject == subject {
			w.Header().Set("ETag", etag(l.Version))
			api.WriteJSON(w, http.StatusOK, l)
			return
		}
	}
	api.WriteProblem(w, fault.New(fault.NotFound, limitsOp, "there is no limit %.80q; GET /ops/v1/limits lists them", subject))
}

func (h limitsHandler) set(w http.ResponseWriter, r *http.Request) {
	c, err := h.change(r)
	if err == nil {
		err = readLimit(w, r, &c)
	}
	h.apply(w, r, c, err)
}

func (h limitsHandler) reset(w http.ResponseWriter, r *http.Request) {
	c, err := h.change(r, "reason")
	c.Reason = r.URL.Query().Get("reason")
	h.apply(w, r, c, err)
}

// change reads what both methods have.
func (h limitsHandler) change(r *http.Request, params ...string) (c control.LimitChange, err error) {
	c.Subject, c.By = r.PathValue("subject"), telemetry.OpsKeyName(r.Context())
	if _, err = api.ParseParams(r, params...); err != nil {
		return c, err
	}
	c.IfVersion, err = ifMatch(r)
	return c, err
}

func readLimit(w http.ResponseWriter, r *http.Request, c *control.LimitChange) error {
	var q limitRequest
	if err := api.Decode(w, r, maxLimitBody, &q); err != nil {
		return err
	}
	for field, missing := range map[string]bool{"rate": q.Rate == nil, "burst": q.Burst == nil, "concurrency": q.Concurrency == nil} {
		if missing {
			return fault.New(fault.Invalid, limitsOp, "field %s is missing: a limit is replaced as a whole, so send rate, burst and concurrency", field).WithField(field)
		}
	}
	if q.ExpiresIn != "" {
		d, err := time.ParseDuration(q.ExpiresIn)
		if err != nil || d < time.Second {
			return fault.New(fault.Invalid, limitsOp, "expires_in is %.40q: use a duration of at least a second, for example 2h", q.ExpiresIn).WithField("expires_in")
		}
		c.ExpiresIn = d
	}
	c.To, c.Reason = &control.Limit{Rate: *q.Rate, Burst: *q.Burst, Concurrency: *q.Concurrency}, q.Reason
	return nil
}

func (h limitsHandler) apply(w http.ResponseWriter, r *http.Request, c control.LimitChange, err error) {
	var e control.Entry
	if err == nil {
		e, err = h.panel.SetLimit(r.Context(), c)
	}
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	a := limitAnswer{Subject: e.Subject, Version: e.Version, From: overrideOf(e.Old), To: overrideOf(e.New), Hash: e.Hash}
	if !e.ExpiresAt.IsZero() {
		a.Until = e.ExpiresAt.UTC().Format(time.RFC3339)
	}
	if e.New != nil {
		w.Header().Set("ETag", etag(e.Version))
	}
	api.WriteJSON(w, http.StatusOK, a)
}

// refuse answers; a version that has moved on is 412. What is no mistake of the
// caller's is logged.
func (h limitsHandler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch fault.KindOf(err) {
	case fault.Internal, fault.Unavailable, fault.Ambiguous:
		if r.Context().Err() == nil {
			h.log.Warn("a request about live settings failed", zap.String("path", r.URL.Path), zap.Error(err))
		}
	}
	if errors.Is(err, control.ErrChanged) {
		err = fmt.Errorf("%w: %w", api.ErrPrecondition, err)
	}
	api.WriteProblem(w, err)
}

func etag(version int64) string { return fmt.Sprintf("%q", strconv.FormatInt(version, 10)) }

var etagForm = regexp.MustCompile(`^"(0|[1-9][0-9]{0,17})"$`)

// ifMatch reads the version that the caller has seen; nil if it does not say.
func ifMatch(r *http.Request) (*int64, error) {
	tags := r.Header.Values("If-Match")
	if len(tags) == 0 {
		return nil, nil
	}
	m := etagForm.FindStringSubmatch(tags[0])
	if m == nil || len(tags) > 1 {
		return nil, fault.New(fault.Invalid, limitsOp, `If-Match: send one version in quotes, as the ETag of GET /ops/v1/limits/{subject} has it; "0" where nothing is set`)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	return &n, err
}

func overrideOf(value json.RawMessage) *control.Limit {
	var l control.Limit
	if value == nil || json.Unmarshal(value, &l) != nil {
		return nil
	}
	return &l
}
