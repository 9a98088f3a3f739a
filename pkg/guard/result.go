package guard

import (
	"context"
	"errors"
	"strings"
	"time"
)

// How says where a result came from. The set is closed.
type How string

// The ways.
const (
	Pass   How = "pass"   // fetched for this caller alone
	Hit    How = "hit"    // there already
	Lease  How = "lease"  // fetched by this caller for all
	Waited How = "waited" // fetched by somebody else while this caller waited
	Stale  How = "stale"  // older than its life, within StaleGrace
	Local  How = "local"  // from this node alone: Redis is away, or there is none
	Shed   How = "shed"   // refused, to protect the back end; the error says why
)

func ways() []How { return []How{Pass, Hit, Lease, Waited, Stale, Local, Shed} }

// Result is what a caller gets.
type Result struct {
	Value []byte // shared with others: do not change it
	How   How
	Age   time.Duration // since the back end gave it
	// Fence names this value, for InvalidateValue; 0 if it has none.
	Fence int64
}

// Fetch asks the back end. It must end with its context, may run in a goroutine
// of the guard, and may be called although its caller has gone. An error of kind
// Invalid, NotFound, Conflict, Denied or Final is an answer of a healthy back
// end; every other error is a failure of it.
type Fetch func(ctx context.Context) ([]byte, error)

// What a Fetch may return to keep its value from being shared.
var (
	// ErrNoStore comes with a value that is for its caller only.
	ErrNoStore = errors.New("the value must not be shared")
	// ErrTooLarge comes without a value: it is larger than the caller of Fetch may
	// keep. Each caller then fetches for itself.
	ErrTooLarge = errors.New("the value is too large to be shared")
	// ErrNotAsked comes without a value: the caller had no right to ask, or no time
	// left. It says nothing about the back end; the other callers ask themselves.
	ErrNotAsked = errors.New("it was not asked")
)

// MaxKey bounds a key in bytes.
const MaxKey = 4096

// Variant makes the key of one of several values of a resource (a language, a
// page). Invalidating the resource invalidates all its variants.
func Variant(resource, variant string) string {
	return strings.ReplaceAll(resource, "\x00", "\x01") + "\x00" + variant
}

type directKey struct{}

// Direct reports that a Fetch runs for its own caller, in the goroutine that
// called Do. It may then also hand the value on by itself, for instance stream it.
func Direct(ctx context.Context) bool { return ctx.Value(directKey{}) != nil }

func direct(ctx context.Context) context.Context { return context.WithValue(ctx, directKey{}, true) }
