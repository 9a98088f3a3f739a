package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Call is a request to a back end, complete but for the address and the
// credentials, which belong to the back end's configuration and never come
// from a rule.
type Call struct {
	Backend string
	Method  string
	Path    string // escaped, begins with "/", may carry "?query"
	Body    []byte // JSON, or nil
	Timeout time.Duration
	// How the answer goes through the back end's guard: Class is shared, personal
	// or "", Cache keeps a personal one, Resource names what it is about, Changes
	// what the call changes.
	Class, Resource string
	Cache           bool
	Changes         []string
}

// call is the compiled form of a rule's call.
type call struct {
	backend, method string
	path            *tmpl
	query           []pair
	body            *value
	letter          bool // send the whole callback as JSON
	timeout         time.Duration
	guard           *guarded // nil: the rule says nothing about it
}

type pair struct {
	name string
	t    *tmpl
}

// value is a JSON value whose texts are templates. Since it is encoded as a
// tree, no text from outside can change the shape of the body.
type value struct {
	fields []field
	items  []*value
	t      *tmpl
	number bool // the template's output is a JSON number
	fixed  any  // bool, number or null of the rules file
	shape  shape
}

type shape uint8

const (
	isFixed shape = iota
	isTemplate
	isObject
	isList
)

type field struct {
	name string
	v    *value
}

func (c *call) prepare(d *data) (*Call, error) {
	path, err := c.path.render(d)
	if err != nil {
		return nil, fmt.Errorf("path: %w", err)
	}
	if err := checkPath(path); err != nil {
		return nil, err
	}
	out := &Call{Backend: c.backend, Method: c.method, Path: path, Timeout: c.timeout}
	if err := c.guard.fill(out, d); err != nil {
		return nil, err
	}
	if len(c.query) > 0 {
		q := url.Values{}
		for _, p := range c.query {
			s, err := p.t.render(d)
			if err != nil {
				return nil, fmt.Errorf("query %s: %w", p.name, err)
			}
			q.Add(p.name, s)
		}
		out.Path += "?" + q.Encode()
	}
	out.Body, err = c.payload(d)
	return out, err
}

func (c *call) payload(d *data) ([]byte, error) {
	switch {
	case c.letter:
		return json.Marshal(letter(d))
	case c.body == nil:
		return nil, nil
	}
	v, err := c.body.fill(d)
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	return json.Marshal(v)
}

// letter is the body of a call that gives none: the callback in the names of
// pkg/wire, so that a back end needs to know one form only.
func letter(d *data) any {
	return map[string]any{
		"id": d.ID, "account": d.Account, "openid": d.OpenID, "msg_type": d.MsgType, "event": d.Event,
		"event_key": d.EventKey, "scene": d.Scene, "msg_id": d.MsgID, "create_time": d.CreateTime,
		"received_at": d.ReceivedAt, "content": d.Content, "fields": d.Fields,
	}
}

func (v *value) fill(d *data) (any, error) {
	switch v.shape {
	case isObject:
		m := make(map[string]any, len(v.fields))
		for _, f := range v.fields {
			filled, err := f.v.fill(d)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
			m[f.name] = filled
		}
		return m, nil
	case isList:
		l := make([]any, 0, len(v.items))
		for i, item := range v.items {
			filled, err := item.fill(d)
			if err != nil {
				return nil, fmt.Errorf("%d: %w", i+1, err)
			}
			l = append(l, filled)
		}
		return l, nil
	case isTemplate:
		return v.text(d)
	}
	return v.fixed, nil
}

func (v *value) text(d *data) (any, error) {
	s, err := v.t.render(d)
	if err != nil || !v.number {
		return s, err
	}
	n := json.Number(strings.TrimSpace(s))
	if b, err := json.Marshal(n); err != nil || n == "" || string(b) != string(n) {
		return nil, errors.New("!number did not come out as a number")
	}
	return n, nil
}

// checkPath refuses what would leave the path that the rule meant: user text
// such as ".." is escaped, but dots need no escape and some servers resolve
// them.
func checkPath(p string) error {
	if !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") {
		return errors.New("path: it must begin with one /")
	}
	if strings.ContainsAny(p, "?#\\ ") || len(p) > MaxText {
		return fmt.Errorf("path: it must be at most %d bytes without ?, #, \\ and spaces; use query for parameters", MaxText)
	}
	if strings.Contains(p, "//") {
		return errors.New("path: a value in it is empty")
	}
	for _, segment := range strings.Split(p, "/") {
		s, err := url.PathUnescape(segment)
		if err != nil {
			return errors.New("path: a % is not followed by two hexadecimal digits")
		}
		if s == "." || s == ".." || strings.ContainsAny(s, "/\\\x00") {
			return errors.New("path: a value would change the path")
		}
	}
	return nil
}

func validMethod(m string) bool {
	switch m {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}
