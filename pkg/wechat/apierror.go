package wechat

import (
	"fmt"

	"tidegate/pkg/fault"
)

// APIError is the failure of a call to WeChat. Its text names the call, the
// errcode and the HTTP status and is safe to log; Msg is WeChat's prose, which
// may quote what we sent, and is for the receipt of the one message only.
type APIError struct {
	API        API
	Code       int    // errcode; 0 if the answer had none
	Msg        string // errmsg, verbatim; do not log, never match on it
	HTTPStatus int    // 0 if no answer came
	// Ambiguous: the request was written and no answer that we can read came
	// back, or the platform broke while working on a send. It may have had its
	// effect. Repeating a send is safe only with the same idempotency key, and
	// not at all for customer-service messages, which have none; repeating any
	// other call is.
	Ambiguous bool
	// NotSent: the request never left, for example because the name did not
	// resolve or no connection came about. Repeating is safe, also elsewhere.
	NotSent bool
	// Err is the cause where there was no errcode. Its text holds no address
	// and so no token.
	Err error
}

func (e *APIError) Error() string {
	switch {
	case e.Code != 0:
		return fmt.Sprintf("call %s: errcode %d (%s)", e.API, e.Code, e.Action())
	case e.NotSent:
		return fmt.Sprintf("call %s: not sent: %v", e.API, e.Err)
	case e.HTTPStatus != 0:
		return fmt.Sprintf("call %s: HTTP %d: %v", e.API, e.HTTPStatus, e.Err)
	}
	return fmt.Sprintf("call %s: no answer: %v", e.API, e.Err)
}

// Unwrap lets errors.Is find a cause such as context.Canceled.
func (e *APIError) Unwrap() error { return e.Err }

// Action says what to do about it.
func (e *APIError) Action() Action {
	if e.Code == 0 {
		return ActionRetry
	}
	return ActionOf(e.Code, e.API)
}

// Kind is the fault.Kind of the failure.
func (e *APIError) Kind() fault.Kind {
	switch {
	case e.Code != 0:
		return kindOf(e.Action(), e.API)
	case e.Ambiguous && e.API.Sends():
		return fault.Ambiguous
	}
	return fault.Unavailable
}

// As lets fault.KindOf and fault.RetryAfter see the failure.
func (e *APIError) As(target any) bool {
	f, ok := target.(**fault.Error)
	if !ok {
		return false
	}
	*f = &fault.Error{Kind: e.Kind(), Op: "call " + string(e.API), Err: e}
	if e.Code != 0 && e.Action() == ActionSlow {
		(*f).Retry = slowDown
	}
	return true
}
