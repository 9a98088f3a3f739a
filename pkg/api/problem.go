package api

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/fault"
)

// Problem is the body of every refusal (RFC 9457). Errcode is stable and made
// for programs; Detail says what is wrong and Do what to do, for people.
type Problem struct {
	Type    string `json:"type"`
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Errcode string `json:"errcode"`
	Detail  string `json:"detail"`
	Field   string `json:"field,omitempty"`
	Pointer string `json:"pointer,omitempty"` // Field as a JSON pointer (RFC 6901) into the body, or into the push of a batch

	// Of a call over a limit (OverLimit).
	Scope        string `json:"scope,omitempty"`
	Limit        int64  `json:"limit,omitempty"`
	Period       string `json:"period,omitempty"`
	Used         int64  `json:"used,omitempty"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`

	Do string `json:"do"`
}

// Refusals that HTTP has a status of its own for; they are in the chain of a
// fault, of kind Invalid unless they say otherwise.
var (
	ErrTooLarge  = errors.New("the body is too large")
	ErrMediaType = errors.New("the body is not plain JSON")
	ErrMethod    = errors.New("the method is not allowed here")
	ErrUnfit     = errors.New("the message does not fit its template")
	// ErrPrecondition is of kind Conflict: If-Match names a version that is no
	// longer there.
	ErrPrecondition = errors.New("it was changed meanwhile")
	// ErrInPart is of kind Ambiguous: the main thing was done and something is left,
	// which the same request completes. The text of the fault is for the caller.
	ErrInPart = errors.New("a part is left to do")
)

// kinds tells status, advice and whether the cause's text may be shown. What
// comes from below (databases, queues) is ours to read, not the caller's.
var kinds = map[fault.Kind]struct {
	status int
	show   bool
	do     string
}{
	fault.Internal:    {http.StatusInternalServerError, false, "This is an error on our side and has been logged. Try again later; if it stays, tell the operator."},
	fault.Invalid:     {http.StatusBadRequest, true, "Change the request as the detail says. Sending it again unchanged will fail again."},
	fault.NotFound:    {http.StatusNotFound, true, "Check the address and the id. A message may take a few seconds to appear."},
	fault.Conflict:    {http.StatusConflict, true, "Look at what is stored already; use another idempotency key for another request."},
	fault.Denied:      {http.StatusForbidden, true, "Use a key that has the right, or ask the operator for it."},
	fault.Limited:     {http.StatusTooManyRequests, true, "Wait as long as Retry-After says, then send the same request again."},
	fault.Unavailable: {http.StatusServiceUnavailable, false, "Nothing was done. Send the same request again after Retry-After."},
	fault.Ambiguous:   {http.StatusServiceUnavailable, false, "It may have been done. Send the same request again with the same idempotency key."},
	fault.Final:       {http.StatusUnprocessableEntity, true, "This was refused for good; do not send it again."},
	fault.Stopped:     {http.StatusConflict, true, "The account is stopped by its configuration; tell the operator."},
}

// ProblemOf makes the answer to an error.
func ProblemOf(err error) Problem {
	kind := fault.KindOf(err)
	k := kinds[kind]
	p := Problem{Type: "about:blank", Status: k.status, Errcode: kind.String(), Do: k.do, Field: fault.FieldOf(err)}
	switch {
	case errors.Is(err, ErrNoKey):
		p.Status, p.Errcode, p.Do = http.StatusUnauthorized, "unauthenticated", "Send a valid key in the Authorization header."
	case errors.Is(err, ErrTooLarge):
		p.Status, p.Errcode = http.StatusRequestEntityTooLarge, "too_large"
	case errors.Is(err, ErrMediaType):
		p.Status, p.Errcode = http.StatusUnsupportedMediaType, "unsupported_media_type"
	case errors.Is(err, ErrUnfit):
		p.Status, p.Errcode = http.StatusUnprocessableEntity, "unfit"
	case errors.Is(err, ErrMethod):
		p.Status, p.Errcode = http.StatusMethodNotAllowed, "method_not_allowed"
	case errors.Is(err, ErrPrecondition):
		p.Status, p.Errcode, p.Do = http.StatusPreconditionFailed, "precondition_failed", "Read it again, and decide anew with the version that it has now."
	}
	var over *OverLimit
	if errors.As(err, &over) {
		over.tell(&p)
	}
	inPart := errors.Is(err, ErrInPart)
	if inPart {
		p.Do = "Send the same request again after Retry-After, with the same idempotency key, until it succeeds."
	}
	p.Pointer = pointer(p.Field)
	p.Title = http.StatusText(p.Status)
	p.Detail = p.Title
	if k.show || inPart {
		p.Detail = cause(err)
	}
	return p
}

// pointer writes "data.thing1" and "items[2].id" as "/data/thing1" and
// "/items/2/id".
func pointer(field string) string {
	if field == "" {
		return ""
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1", ".", "/", "[", "/", "]", "")
	return "/" + escape.Replace(field)
}

// cause is the text inside the outermost fault: the operation's name in front
// of it is for logs.
func cause(err error) string {
	var f *fault.Error
	if errors.As(err, &f) && f.Err != nil {
		return f.Err.Error()
	}
	return err.Error()
}

// WriteProblem answers with the problem that an error is, with Retry-After
// where waiting helps. The caller logs the error where it deserves it.
func WriteProblem(w http.ResponseWriter, err error) {
	p := ProblemOf(err)
	var over *OverLimit
	if errors.As(err, &over) {
		WriteQuota(w.Header(), over.Quota)
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tidegate"`)
	}
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable || over != nil && over.Wait >= 0 {
		wait := max(fault.RetryAfter(err), time.Second)
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	}
	w.Header().Set("Content-Type", "application/problem+json")
	write(w, p.Status, p)
}

// WriteJSON answers with a value. Answers are never kept by caches on the way.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	write(w, status, v)
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the client went away: nobody is left to tell
}

// NotFound answers what no route takes; register it at "/".
func NotFound(w http.ResponseWriter, r *http.Request) {
	WriteProblem(w, fault.New(fault.NotFound, "route request", "there is nothing at %s %q", r.Method, r.URL.Path))
}

// OnlyMethods answers a wrong method on a known path; register it at the path
// without a method.
func OnlyMethods(methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, m := range methods {
			w.Header().Add("Allow", m)
		}
		WriteProblem(w, fault.New(fault.Invalid, "route request", "%w: %s; use %v", ErrMethod, r.Method, methods))
	})
}
