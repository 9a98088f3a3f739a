package intake

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
)

// accepted is the body of a 202.
type accepted struct {
	ID    string `json:"id"`
	State string `json:"state"`
}

// accept says that the push is durable and where its state can be read.
func accept(w http.ResponseWriter, id string) {
	w.Header().Set("Location", "/v1/messages/"+id)
	write(w, http.StatusAccepted, "application/json", accepted{ID: id, State: "queued"})
}

// problem is an answer by RFC 9457 with the field at fault.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Field  string `json:"field,omitempty"`
}

func (in *Intake) refuse(w http.ResponseWriter, err error) {
	status := statusOf(err)
	p := problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Field: fault.FieldOf(err)}
	var f *fault.Error
	if errors.As(err, &f) && f.Err != nil {
		p.Detail = f.Err.Error()
	}
	if status == http.StatusInternalServerError {
		in.d.Log.Error("push not accepted", zap.Error(err))
		p.Detail = "nothing was accepted; the operator's log tells more"
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tidegate"`)
	}
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		wait := max(1, int(math.Ceil(fault.RetryAfter(err).Seconds())))
		w.Header().Set("Retry-After", strconv.Itoa(wait))
	}
	write(w, status, "application/problem+json", p)
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, errTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errMedia):
		return http.StatusUnsupportedMediaType
	}
	switch fault.KindOf(err) {
	case fault.Invalid:
		return http.StatusBadRequest
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Conflict:
		return http.StatusConflict
	case fault.Denied:
		if fault.FieldOf(err) == "" {
			return http.StatusUnauthorized
		}
		return http.StatusForbidden
	case fault.Limited:
		return http.StatusTooManyRequests
	case fault.Unavailable, fault.Ambiguous:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func write(w http.ResponseWriter, status int, contentType string, body any) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(body) // the client has gone: nobody is left to tell
}
