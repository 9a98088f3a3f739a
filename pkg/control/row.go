package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tidegate/pkg/fault"
)

// Row is one setting that is in force.
type Row struct {
	Kind, Subject string
	Value         json.RawMessage
	Version       int64 // of the change that wrote it
	By            string
	At            time.Time
	Reason        string
	ExpiresAt     time.Time // zero: it stays until somebody takes it back
}

// Expired tells that a row's time is over: it is as if it were not there.
func (r Row) Expired(now time.Time) bool { return !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt) }

// Change is one change of a setting.
type Change struct {
	Kind, Subject string
	Value         json.RawMessage // nil takes the setting back
	By            string          // the name of the key that was used
	Reason        string
	ExpiresAt     time.Time // zero: never
	// IfVersion, if not nil, is the version that the setting must have; 0 means
	// that there must be none.
	IfVersion *int64
}

// ErrChanged says that the setting is not what the caller took it for.
var ErrChanged = errors.New("somebody else has changed it meanwhile")

// What a change may hold at most; a view holds all rows in memory.
const (
	maxRows    = 10_000
	maxSubject = 200
	maxValue   = 16 << 10
	maxReason  = 500
	maxBy      = 100
	maxAhead   = 366 * 24 * time.Hour
)

var (
	kindForm    = regexp.MustCompile(`^[a-z][a-z_]{0,30}$`)
	subjectForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._:*-]*$`)
)

// check refuses what must not be in a row or in the audit.
func (c Change) check(now time.Time) error {
	const op = "change setting"
	bad := func(field, format string, args ...any) error {
		return fault.New(fault.Invalid, op, field+": %w", fmt.Errorf(format, args...)).WithField(field)
	}
	switch {
	case !kindForm.MatchString(c.Kind):
		return bad("kind", "%.40q is none", c.Kind)
	case len(c.Subject) > maxSubject || !subjectForm.MatchString(c.Subject):
		return bad("subject", "%.60q: use up to %d of letters, digits, dots and -", c.Subject, maxSubject)
	case len(c.Value) > maxValue:
		return bad("value", "it has %d bytes: use at most %d", len(c.Value), maxValue)
	case c.Value != nil && !json.Valid(c.Value):
		return bad("value", "it is no JSON")
	case c.By == "" || len(c.By) > maxBy:
		return bad("by", "say who in 1 to %d bytes", maxBy)
	case strings.TrimSpace(c.Reason) == "":
		return bad("reason", "say why: whoever looks at this at night has nothing else")
	case len(c.Reason) > maxReason || !printable(c.Reason) || !printable(c.By):
		return bad("reason", "use at most %d bytes of text in one line", maxReason)
	case c.Value == nil && !c.ExpiresAt.IsZero():
		return bad("expires_in", "what is taken back cannot expire")
	case !c.ExpiresAt.IsZero() && (!c.ExpiresAt.After(now) || c.ExpiresAt.After(now.Add(maxAhead))):
		return bad("expires_in", "it must lie within a year from now")
	case c.IfVersion != nil && *c.IfVersion < 0:
		return bad("version", "%d is none", *c.IfVersion)
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' })
}
