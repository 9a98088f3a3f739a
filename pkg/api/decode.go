package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"

	"tidegate/pkg/fault"
)

const decodeOp = "read request"

// MaxDepth is how deep the JSON of a request may be nested.
const MaxDepth = 16

// Decode reads a request's body, of at most limit bytes, as one JSON value
// into dst, a pointer to a struct. Everything that two readers could
// understand differently is refused with the name of the field: unknown keys,
// keys that come twice or in other case, text that is not UTF-8, lone
// surrogates and NUL, a second value behind the first. Errors are of kind
// fault.Invalid, with ErrTooLarge or ErrMediaType in the chain where HTTP has
// a status for it.
func Decode(w http.ResponseWriter, r *http.Request, limit int64, dst any) error {
	body, err := ReadBody(w, r, limit)
	if err != nil {
		return err
	}
	return DecodeBytes(body, dst)
}

// ReadBody reads a JSON body of at most limit bytes, and refuses other kinds.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if err := checkHeaders(r); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return nil, fault.New(fault.Invalid, decodeOp, "%w: at most %d bytes are taken", ErrTooLarge, limit)
		}
		return nil, fault.New(fault.Invalid, decodeOp, "the body ended early: %w", err)
	}
	return body, nil
}

func checkHeaders(r *http.Request) error {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return fault.New(fault.Invalid, decodeOp, "%w: Content-Encoding %q is not taken", ErrMediaType, cut(e, 32))
	}
	mt, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mt != "application/json" {
		return fault.New(fault.Invalid, decodeOp, "%w: send Content-Type: application/json", ErrMediaType)
	}
	if c, ok := params["charset"]; ok && !strings.EqualFold(c, "utf-8") {
		return fault.New(fault.Invalid, decodeOp, "%w: the charset must be UTF-8", ErrMediaType)
	}
	return nil
}

// DecodeBytes is Decode for a body that was read already.
func DecodeBytes(body []byte, dst any) error {
	if !utf8.Valid(body) {
		return fault.New(fault.Invalid, decodeOp, "the body is not UTF-8")
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return fault.New(fault.Invalid, decodeOp, "the body is empty: send a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	c := checker{d: d, body: body}
	if err := c.value(reflect.TypeOf(dst).Elem(), "", 0); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, decodeOp, "there is more behind the JSON value: send exactly one")
	}
	if err := json.Unmarshal(body, dst); err != nil {
		return fromJSON(err)
	}
	return nil
}

// fromJSON says in our words what encoding/json found.
func fromJSON(err error) error {
	var te *json.UnmarshalTypeError
	var se *json.SyntaxError
	switch {
	case errors.As(err, &te) && te.Field == "":
		return fault.New(fault.Invalid, decodeOp, "the body is a JSON %s: send %s", te.Value, kindName(te.Type))
	case errors.As(err, &te):
		return fault.New(fault.Invalid, decodeOp, "field %s: a JSON %s does not fit here, %s is expected", te.Field, te.Value, kindName(te.Type)).WithField(te.Field)
	case errors.As(err, &se):
		return fault.New(fault.Invalid, decodeOp, "the body is not well-formed JSON at byte %d", se.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fault.New(fault.Invalid, decodeOp, "the JSON ends in the middle")
	}
	return fault.New(fault.Invalid, decodeOp, "%w", err)
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number in range"
	case reflect.Pointer:
		return kindName(t.Elem())
	}
	return "something else"
}
