package wechatsim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxControlBody bounds requests to the control surface.
const maxControlBody = 1 << 20

// Handler serves WeChat's API and, under /sim/v1/, the control surface. Web
// pages of other origins cannot use the control surface.
func (s *Sim) Handler() http.Handler {
	control := http.NewServeMux()
	post := func(path string, f func(context.Context, *http.Request) (any, error)) {
		control.HandleFunc("POST /sim/v1/"+path, answerControl(f))
	}
	get := func(path string, f func(context.Context, *http.Request) (any, error)) {
		control.HandleFunc("GET /sim/v1/"+path, answerControl(f))
	}
	get("accounts", s.listAccounts)
	get("followers", s.listFollowers)
	post("followers", s.postFollowers)
	post("say", s.postSay)
	post("menu", s.postMenu)
	post("scan", s.postScan)
	post("subscribe", s.postSubscribe)
	post("unsubscribe", s.postUnsubscribe)
	post("location", s.postLocation)
	post("raw", s.postRaw)
	post("refuse", s.postRefuse)
	post("subscribe_msg", s.postSubscribeMsg)
	post("callback", s.postCallback)
	post("load", s.postLoad)
	post("expect", s.postExpect)
	post("clock", s.postClock)
	get("clock", s.getClock)
	post("faults", s.postFaults)
	get("faults", s.getFaults)
	get("verdict", s.getVerdict)
	control.HandleFunc("GET /sim/v1/journal", s.getJournal)
	guarded := http.NewCrossOriginProtection().Handler(control)

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/sim/") {
			guarded.ServeHTTP(w, r)
			return
		}
		s.serveAPI(w, r)
	})
}

// statusOf maps an error of the control surface to a status.
func statusOf(err error) int {
	switch {
	case errors.Is(err, errUnknownAccount), errors.Is(err, errUnknownFollower):
		return http.StatusNotFound
	case errors.Is(err, errFull), errors.Is(err, errClosed):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

func answerControl(f func(context.Context, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxControlBody)
		body, err := f(r.Context(), r)
		status := http.StatusOK
		if err != nil {
			status, body = statusOf(err), map[string]string{"error": err.Error()}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(encodeJSON(body))
	}
}

// read decodes a request strictly: an unknown field is a mistake to be told.
func read[T any](r *http.Request) (T, error) {
	var v T
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		return v, fmt.Errorf("read request: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return v, errors.New("read request: one JSON object is expected")
	}
	return v, nil
}

// span is a duration written as text, for instance "48h".
type span time.Duration

// UnmarshalJSON reads "1h30m".
func (d *span) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return errors.New(`a duration is text such as "20s"`)
	}
	v, err := time.ParseDuration(text)
	*d = span(v)
	return err
}

type accountView struct {
	AppID       string `json:"app_id"`
	GhID        string `json:"gh_id"`
	Mode        string `json:"mode"`
	CallbackURL string `json:"callback_url"`
	Followers   int    `json:"followers"`
}

func (s *Sim) listAccounts(context.Context, *http.Request) (any, error) {
	var list []accountView
	for _, a := range s.accounts {
		target, _ := a.target()
		list = append(list, accountView{a.cfg.AppID, a.cfg.GhID, a.cfg.Mode, target, len(a.some(0))})
	}
	return map[string]any{"accounts": list}, nil
}

type clockRequest struct {
	Advance span `json:"advance"`
}

func (s *Sim) postClock(ctx context.Context, r *http.Request) (any, error) {
	q, err := read[clockRequest](r)
	if err != nil {
		return nil, err
	}
	if err := s.Advance(time.Duration(q.Advance)); err != nil {
		return nil, err
	}
	return s.getClock(ctx, r)
}

func (s *Sim) getClock(context.Context, *http.Request) (any, error) {
	return map[string]any{"now": s.clock.Now().Format(time.RFC3339Nano)}, nil
}

type faultsRequest struct {
	Faults []Fault `json:"faults"`
}

func (s *Sim) postFaults(ctx context.Context, r *http.Request) (any, error) {
	q, err := read[faultsRequest](r)
	if err == nil {
		err = s.SetFaults(q.Faults...)
	}
	if err != nil {
		return nil, err
	}
	return s.getFaults(ctx, r)
}

func (s *Sim) getFaults(context.Context, *http.Request) (any, error) {
	return faultsRequest{s.Faults()}, nil
}

func (s *Sim) getVerdict(_ context.Context, r *http.Request) (any, error) {
	grace := time.Duration(0)
	if text := r.URL.Query().Get("grace"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf(`grace %q: write a duration such as "5s"`, text)
		}
		grace = d
	}
	return s.Verdict(grace), nil
}
