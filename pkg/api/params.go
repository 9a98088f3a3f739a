package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tidegate/pkg/fault"
)

const (
	maxQuery = 8 << 10
	maxParam = 512
)

// Params are the query parameters of a request, checked.
type Params struct{ values url.Values }

// ParseParams reads the query of a request and refuses, by name, what is not
// in names, comes twice, is empty, too long or holds control characters. A
// misspelt filter, or one from a variable that was not set, must not silently
// select everything.
func ParseParams(r *http.Request, names ...string) (Params, error) {
	const op = "read query"
	if len(r.URL.RawQuery) > maxQuery {
		return Params{}, fault.New(fault.Invalid, op, "the query has %d bytes: use at most %d", len(r.URL.RawQuery), maxQuery)
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return Params{}, fault.New(fault.Invalid, op, "the query is not well-formed: %w", err)
	}
	for name, vs := range values {
		switch {
		case !slices.Contains(names, name):
			return Params{}, unknownParam(name, names)
		case len(vs) > 1:
			return Params{}, fault.New(fault.Invalid, op, "parameter %s comes %d times: give it once", name, len(vs)).WithField(name)
		case vs[0] == "":
			return Params{}, fault.New(fault.Invalid, op, "parameter %s is empty: give a value or leave it out", name).WithField(name)
		case len(vs[0]) > maxParam:
			return Params{}, fault.New(fault.Invalid, op, "parameter %s has %d bytes: use at most %d", name, len(vs[0]), maxParam).WithField(name)
		case !printable(vs[0]):
			return Params{}, fault.New(fault.Invalid, op, "parameter %s holds control characters or is not UTF-8", name).WithField(name)
		}
	}
	return Params{values}, nil
}

// Get is a parameter's value, or "".
func (p Params) Get(name string) string { return p.values.Get(name) }

func unknownParam(name string, names []string) error {
	name = cut(name, 64)
	known := "none is taken here"
	if len(names) > 0 {
		known = "use some of " + strings.Join(names, ", ")
	}
	return fault.New(fault.Invalid, "read query", "unknown parameter %q: %s", name, known).WithField(name)
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// cut shortens foreign text for a message without breaking a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return strings.ToValidUTF8(s, "?")
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
