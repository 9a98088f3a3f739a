package app

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/control"
	"tidegate/pkg/fault"
	"tidegate/pkg/schedule"
	"tidegate/pkg/telemetry"
)

const (
	jobsOp     = "jobs"
	maxJobBody = 4 << 10
	// auditJob is the kind of the audit entries about runs by hand.
	auditJob = "job"
)

// jobRequest is the body of POST /ops/v1/jobs/{name}/run.
type jobRequest struct {
	Reason string `json:"reason"`
	// Slot is the time that the run is to stand for, RFC 3339; without it the
	// moment of the request.
	Slot string `json:"slot"`
}

// jobAnswer is what it was answered with: the run has been made to wait for the
// leader.
type jobAnswer struct {
	Name    string `json:"name"`
	Run     int64  `json:"run"`
	Version int64  `json:"audit_version"`
	Hash    string `json:"audit_hash"`
}

func (h jobsHandler) all(w http.ResponseWriter, r *http.Request) {
	if _, err := api.ParseParams(r); err != nil {
		api.WriteProblem(w, err)
		return
	}
	if h.jobs == nil {
		api.WriteJSON(w, http.StatusOK, schedule.View{Node: h.node, Off: noJobs, Jobs: []schedule.JobView{}})
		return
	}
	v, err := h.jobs.View(r.Context())
	h.answer(w, r, v, err)
}

func (h jobsHandler) one(w http.ResponseWriter, r *http.Request) {
	v, err := h.history(r)
	h.answer(w, r, v, err)
}

func (h jobsHandler) history(r *http.Request) (v schedule.HistoryView, err error) {
	p, err := api.ParseParams(r, "before", "limit")
	if err != nil {
		return v, err
	}
	limit, err := wholeNumber(p, "limit", 20, schedule.MaxRecords)
	if err != nil {
		return v, err
	}
	before, err := wholeNumber(p, "before", 0, 1<<62)
	if err != nil {
		return v, err
	}
	if h.jobs == nil {
		return v, fault.New(fault.NotFound, jobsOp, "%s", noJobs)
	}
	return h.jobs.History(r.Context(), r.PathValue("name"), before, int(limit))
}

func wholeNumber(p api.Params, name string, otherwise, most int64) (int64, error) {
	text := p.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, fault.New(fault.Invalid, jobsOp, "%s is %.40q: use a whole number from 1 to %d", name, text, most).WithField(name)
	}
	return n, nil
}

func (h jobsHandler) run(w http.ResponseWriter, r *http.Request) {
	a, err := h.ask(w, r)
	h.answer(w, r, a, err)
}

// ask writes into the audit first: a run that nobody can be found for must not be
// possible, a request without a run is harmless.
func (h jobsHandler) ask(w http.ResponseWriter, r *http.Request) (out jobAnswer, err error) {
	if _, err := api.ParseParams(r); err != nil {
		return out, err
	}
	var q jobRequest
	if err := api.Decode(w, r, maxJobBody, &q); err != nil {
		return out, err
	}
	if h.jobs == nil {
		return out, fault.New(fault.NotFound, jobsOp, "%s", noJobs)
	}
	a := schedule.Ask{Job: r.PathValue("name"), By: telemetry.OpsKeyName(r.Context()), Reason: q.Reason}
	if q.Slot != "" {
		if a.Slot, err = time.Parse(time.RFC3339, q.Slot); err != nil || a.Slot.Year() < 2000 {
			return out, fault.New(fault.Invalid, jobsOp, "slot is %.40q: write for instance 2026-03-01T06:30:00+08:00", q.Slot).WithField("slot")
		}
	}
	if err := h.jobs.CheckAsk(a); err != nil {
		return out, err
	}
	value, err := json.Marshal(map[string]string{"run": "asked", "slot": q.Slot})
	if err != nil {
		return out, fault.Wrap(fault.Internal, jobsOp, err)
	}
	e, err := h.audit.Apply(r.Context(), control.Change{Kind: auditJob, Subject: a.Job, Value: value, By: a.By, Reason: a.Reason})
	if err != nil {
		return out, err
	}
	h.log.Info("a job is run by hand", zap.String("job", a.Job), zap.String("by", a.By), zap.String("reason", a.Reason), zap.Int64("audit_version", e.Version), zap.String("audit_hash", e.Hash))
	id, err := h.jobs.Ask(r.Context(), a)
	return jobAnswer{Name: a.Job, Run: id, Version: e.Version, Hash: e.Hash}, err
}

// answer writes what was asked for, or why not. What is no mistake of the
// caller's is logged.
func (h jobsHandler) answer(w http.ResponseWriter, r *http.Request, v any, err error) {
	if err == nil {
		api.WriteJSON(w, http.StatusOK, v)
		return
	}
	switch fault.KindOf(err) {
	case fault.Internal, fault.Unavailable, fault.Ambiguous:
		if r.Context().Err() == nil {
			h.log.Warn("a request about scheduled jobs failed", zap.String("path", r.URL.Path), zap.Error(err))
		}
	}
	api.WriteProblem(w, err)
}
