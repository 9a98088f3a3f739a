package api

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf16"

	"tidegate/pkg/fault"
)

// checker walks the tokens of a JSON text beside the Go type that will take
// it, before anything is decoded: encoding/json itself folds the case of keys
// and lets the last of two win.
type checker struct {
	d    *json.Decoder
	body []byte
}

// value checks one value for type t (nil: anything goes) at a path such as
// "data.first".
func (c *checker) value(t reflect.Type, path string, depth int) error {
	tok, err := c.token(path)
	if err != nil {
		return err
	}
	delim, ok := tok.(json.Delim)
	if !ok {
		return nil
	}
	if depth >= MaxDepth {
		return fault.New(fault.Invalid, decodeOp, "field %s: nested deeper than %d levels", path, MaxDepth).WithField(path)
	}
	t = deref(t)
	if delim == '[' {
		return c.list(t, path, depth)
	}
	return c.object(t, path, depth)
}

func (c *checker) list(t reflect.Type, path string, depth int) error {
	var elem reflect.Type
	if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		elem = t.Elem()
	}
	for i := 0; c.d.More(); i++ {
		if err := c.value(elem, path+"["+strconv.Itoa(i)+"]", depth+1); err != nil {
			return err
		}
	}
	_, err := c.token(path)
	return err
}

func (c *checker) object(t reflect.Type, path string, depth int) error {
	fields := fieldsOf(t)
	seen := map[string]bool{}
	for c.d.More() {
		tok, err := c.token(path)
		if err != nil {
			return err
		}
		name, ok := tok.(string)
		if !ok {
			return fault.New(fault.Invalid, decodeOp, "the body is not well-formed JSON at byte %d", c.d.InputOffset())
		}
		at := join(path, name)
		if seen[name] {
			return fault.New(fault.Invalid, decodeOp, "field %s comes twice: send it once", at).WithField(at)
		}
		seen[name] = true
		elem, err := childType(t, fields, name, at)
		if err != nil {
			return err
		}
		if err := c.value(elem, at, depth+1); err != nil {
			return err
		}
	}
	_, err := c.token(path)
	return err
}

// childType finds the type behind a key, and refuses keys that the struct does
// not have in exactly this spelling.
func childType(t reflect.Type, fields map[string]reflect.Type, name, at string) (reflect.Type, error) {
	if t == nil {
		return nil, nil
	}
	if t.Kind() == reflect.Map {
		return t.Elem(), nil
	}
	if fields == nil {
		return nil, nil
	}
	if ft, ok := fields[name]; ok {
		return ft, nil
	}
	for known := range fields {
		if strings.EqualFold(known, name) {
			return nil, fault.New(fault.Invalid, decodeOp, "field %s: write it as %q", at, known).WithField(at)
		}
	}
	return nil, fault.New(fault.Invalid, decodeOp, "unknown field %s", at).WithField(at)
}

// token reads the next token and refuses strings that would not survive:
// NUL, and halves of surrogate pairs that Go would replace in silence.
func (c *checker) token(path string) (json.Token, error) {
	from := c.d.InputOffset()
	tok, err := c.d.Token()
	if err != nil {
		return nil, fromJSON(err)
	}
	if s, ok := tok.(string); ok {
		if strings.ContainsRune(s, 0) || loneSurrogate(c.body[from:c.d.InputOffset()]) {
			return nil, fault.New(fault.Invalid, decodeOp, "field %s: a text holds NUL or half a character", path).WithField(path)
		}
	}
	return tok, nil
}

// loneSurrogate looks for an escaped surrogate without its partner in the raw
// text of a string.
func loneSurrogate(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 >= len(raw) {
			continue
		}
		i++
		r, ok := escape(raw, i)
		if !ok || !utf16.IsSurrogate(r) {
			continue
		}
		// raw[i] is the u; its partner is expected as \uXXXX behind 4 digits.
		if i+6 >= len(raw) || raw[i+5] != '\\' {
			return true
		}
		next, ok := escape(raw, i+6)
		if !ok || utf16.DecodeRune(r, next) == '\uFFFD' {
			return true
		}
		i += 10
	}
	return false
}

// escape reads "uXXXX" at i.
func escape(raw []byte, i int) (rune, bool) {
	if i+5 > len(raw) || raw[i] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(raw[i+1:i+5]), 16, 32)
	return rune(n), err == nil
}

// fieldsOf maps the JSON names of a struct to their types; nil for anything
// that is no struct or decodes itself.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if t == nil || t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || (f.Anonymous && name == "") {
			continue
		}
		if name == "" {
			name = f.Name
		}
		fields[name] = f.Type
	}
	return fields
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func deref(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func join(path, name string) string {
	name = cut(name, 64)
	if path == "" {
		return name
	}
	return path + "." + name
}
