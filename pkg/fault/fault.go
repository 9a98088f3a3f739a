// Package fault is the error type that crosses a boundary between rooms, or
// between a room and the wire. It carries a Kind, from which retry and HTTP
// answers are decided; nobody decides anything from an error's text.
//
// Errors that stay inside one package need no Kind: plain wrapped errors do.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what a caller may do about an error. The zero Kind is Internal:
// an error nobody classified is our own bug until shown otherwise.
type Kind uint8

// The kinds, from "our bug" to "stop everything of this account".
const (
	Internal    Kind = iota // a bug or an unclassified error: log it, answer 500, retry with care
	Invalid                 // the input is wrong and will stay wrong: tell the caller what to change
	NotFound                // the thing asked for does not exist
	Conflict                // it contradicts something that is already stored
	Denied                  // the caller may not do this
	Limited                 // too much at once: try again after RetryAfter
	Unavailable             // a dependency is away and nothing was done: retrying is safe
	Ambiguous               // it may or may not have happened: retry only with an idempotency key
	Final                   // refused for good: do not retry this message
	Stopped                 // the account's configuration is wrong: stop its traffic and raise an alarm
)

var names = [...]string{"internal", "invalid", "not_found", "conflict", "denied", "limited", "unavailable", "ambiguous", "final", "stopped"}

// String gives the kind's name as it appears in metrics and problem answers.
func (k Kind) String() string {
	if int(k) < len(names) {
		return names[k]
	}
	return "internal"
}

// Error is an operation's failure with its kind. Field names the offending
// input where there is one; RetryAfter is a hint and may be zero.
type Error struct {
	Kind  Kind
	Op    string
	Field string
	Retry time.Duration
	Err   error
}

// Error prints "op: cause" in the way that Go errors are read.
func (e *Error) Error() string {
	switch {
	case e.Op == "":
		return e.Err.Error()
	case e.Err == nil:
		return e.Op + ": " + e.Kind.String()
	}
	return e.Op + ": " + e.Err.Error()
}

// Unwrap lets errors.Is and errors.As see the cause.
func (e *Error) Unwrap() error { return e.Err }

// WithField names the input that is at fault.
func (e *Error) WithField(name string) *Error { e.Field = name; return e }

// WithRetryAfter tells how long a caller should wait.
func (e *Error) WithRetryAfter(d time.Duration) *Error { e.Retry = d; return e }

// New makes an error of a kind from a format; %w works as in fmt.Errorf.
func New(k Kind, op, format string, args ...any) *Error {
	return &Error{Kind: k, Op: op, Err: fmt.Errorf(format, args...)}
}

// Wrap gives err a kind and an operation. A nil err stays nil, so that
// "return fault.Wrap(…, err)" is safe at the end of a function.
func Wrap(k Kind, op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: k, Op: op, Err: err}
}

// KindOf finds the kind of the outermost fault in err's chain; an error
// without one is Internal.
func KindOf(err error) Kind {
	var f *Error
	if errors.As(err, &f) {
		return f.Kind
	}
	return Internal
}

// FieldOf finds the field that the outermost fault names, or "".
func FieldOf(err error) string {
	var f *Error
	if errors.As(err, &f) {
		return f.Field
	}
	return ""
}

// RetryAfter finds the waiting hint of the outermost fault, or zero.
func RetryAfter(err error) time.Duration {
	var f *Error
	if errors.As(err, &f) {
		return f.Retry
	}
	return 0
}
