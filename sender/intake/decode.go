package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"tidegate/pkg/fault"
)

// errTooLarge and errMedia are the refusals that have HTTP statuses of their own.
var (
	errTooLarge = errors.New("the body is too large")
	errMedia    = errors.New("send Content-Type: application/json")
)

// read takes the body strictly: one JSON object, no unknown or doubled field,
// valid UTF-8, nothing behind it.
func (in *Intake) read(w http.ResponseWriter, r *http.Request) (*Request, error) {
	if m, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || m != "application/json" {
		return nil, fault.Wrap(fault.Invalid, "read push", errMedia)
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, in.cfg.MaxBody))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, fault.New(fault.Invalid, "read push", "%w: at most %d bytes", errTooLarge, in.cfg.MaxBody)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "read push", "the body did not arrive in full")
	}
	req, err := parse(b)
	if err != nil {
		return nil, err
	}
	if err := req.key(r.Header.Get("Idempotency-Key")); err != nil {
		return nil, err
	}
	req.defaults()
	return req, nil
}

func parse(b []byte) (*Request, error) {
	if !utf8.Valid(b) {
		return nil, fault.New(fault.Invalid, "read push", "the body is not valid UTF-8")
	}
	if err := noDoubles(b); err != nil {
		return nil, err
	}
	var req Request
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		return nil, explain(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Invalid, "read push", "one JSON object is expected and nothing behind it")
	}
	return &req, nil
}

// explain turns encoding/json's errors into refusals with a field.
func explain(err error) error {
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case fault.FieldOf(err) != "":
		return err
	case errors.As(err, &wrongType):
		field := wrongType.Field
		if field == "" {
			return fault.New(fault.Invalid, "read push", "a JSON object is expected, not a %s", wrongType.Value)
		}
		return invalid(cut(field), "a %s is not possible here: it must be a %s", wrongType.Value, wrongType.Type.Kind())
	case errors.As(err, &syntax):
		return fault.New(fault.Invalid, "read push", "no JSON at byte %d: %w", syntax.Offset, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.New(fault.Invalid, "read push", "the JSON ends too early")
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		name = strings.Trim(name, `"`)
		return invalid(cut(name), "there is no such field; see the documentation of POST /v1/pushes")
	}
	return fault.Wrap(fault.Invalid, "read push", err)
}

// noDoubles refuses an object with one name twice, and names that differ from
// ours only in case: encoding/json would take the last, and another reader
// the first.
func noDoubles(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	var stack []map[string]bool // nil for arrays
	name := false               // the next string is a name
	for {
		t, err := d.Token()
		if err != nil {
			return nil // broken JSON is reported by the real decoding
		}
		switch v := t.(type) {
		case json.Delim:
			switch v {
			case '{':
				stack, name = append(stack, map[string]bool{}), true
				continue
			case '[':
				stack, name = append(stack, nil), false
				continue
			}
			stack = stack[:len(stack)-1]
		case string:
			if top := len(stack) - 1; name && top >= 0 && stack[top] != nil {
				key := v
				if top == 0 {
					key = strings.ToLower(v)
					if key != v {
						return invalid(cut(v), "there is no such field; names are written in lower case")
					}
				}
				if stack[top][key] {
					return invalid(cut(v), "this field is there twice")
				}
				stack[top][key], name = true, false
				continue
			}
		}
		if len(stack) == 0 {
			return nil
		}
		name = stack[len(stack)-1] != nil
	}
}
