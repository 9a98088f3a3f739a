package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// What a refusal is about, for errors.Is:
//
//	if errors.Is(err, client.ErrOverLimit) { … }
var (
	ErrUnauthenticated = errors.New("no valid key")
	ErrDenied          = errors.New("the key lacks a right")
	ErrInvalid         = errors.New("the request is wrong")
	ErrNotFound        = errors.New("there is no such message")
	ErrConflict        = errors.New("the idempotency key was used for another push")
	ErrUnfit           = errors.New("the message does not fit its template")
	ErrOverLimit       = errors.New("a limit is used up")
	ErrUnavailable     = errors.New("the gate cannot take it now")
	// ErrAmbiguous: it may have been accepted; the same call with the same key is safe.
	ErrAmbiguous = errors.New("it is not known whether it was accepted")
)

// sentinel is data: what an errcode is about.
func sentinel(errcode string) error {
	switch errcode {
	case "unauthenticated":
		return ErrUnauthenticated
	case "denied":
		return ErrDenied
	case "invalid", "too_large", "unsupported_media_type":
		return ErrInvalid
	case "not_found":
		return ErrNotFound
	case "conflict":
		return ErrConflict
	case "unfit":
		return ErrUnfit
	case "over_limit", "limited":
		return ErrOverLimit
	case "unavailable":
		return ErrUnavailable
	case "ambiguous":
		return ErrAmbiguous
	}
	return nil
}

// Problem is a refusal by the API (RFC 9457).
type Problem struct {
	Status     int           `json:"status"`
	Errcode    string        `json:"errcode"` // stable, for programs
	Detail     string        `json:"detail"`  // what is wrong, for people
	Do         string        `json:"do"`      // what to do about it
	Field      string        `json:"field"`   // the field at fault, or ""
	Pointer    string        `json:"pointer"` // the same as a JSON pointer into the push
	RetryAfter time.Duration `json:"-"`       // how long to wait, 0 if nothing was said
	// Scope and the rest are there if a limit is used up (ErrOverLimit): whose it is
	// (developer, app or user), and where the caller stands in it.
	Scope  string `json:"scope"`
	Limit  int64  `json:"limit"`
	Period string `json:"period"`
	Used   int64  `json:"used"`
}

// Is makes errors.Is work with the errors above.
func (p *Problem) Is(target error) bool { return target != nil && sentinel(p.Errcode) == target }

// Error says what is wrong and what to do.
func (p *Problem) Error() string {
	s := fmt.Sprintf("tidegate answers %d", p.Status)
	if p.Errcode != "" {
		s += " " + p.Errcode
	}
	if p.Field != "" {
		s += " (" + p.Field + ")"
	}
	if p.Detail != "" {
		s += ": " + p.Detail
	}
	if p.Do != "" {
		s += " " + p.Do
	}
	return s
}

// Temporary reports whether the same request may succeed later.
func (p *Problem) Temporary() bool {
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return p.Errcode == "over_limit" && p.RetryAfter > 0
}

// UnmarshalJSON also reads how long to wait: pushes of a batch have no header.
func (p *Problem) UnmarshalJSON(b []byte) error {
	type plain Problem
	var v struct {
		plain
		RetryAfterMS int64 `json:"retry_after_ms"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*p = Problem(v.plain)
	if v.RetryAfterMS > 0 && v.RetryAfterMS < int64(time.Hour/time.Millisecond)*24*366 {
		p.RetryAfter = time.Duration(v.RetryAfterMS) * time.Millisecond
	}
	return nil
}

// problem reads a refusal; what stands between us and the gate may have
// written something else.
func problem(res *http.Response, body []byte) *Problem {
	var p Problem
	if json.Unmarshal(body, &p) != nil {
		p = Problem{Detail: http.StatusText(res.StatusCode)}
	}
	p.Status = res.StatusCode
	if n, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && n > 0 && p.RetryAfter == 0 {
		p.RetryAfter = time.Duration(n) * time.Second
	}
	return &p
}
