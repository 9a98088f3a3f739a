package config

import (
	"reflect"
	"time"

	"gopkg.in/yaml.v3"
)

// Redacted prints a configuration as YAML with every secret replaced, for
// `--print-config` and support tickets.
func Redacted(v any) (string, error) {
	b, err := yaml.Marshal(plain(reflect.ValueOf(v)))
	return string(b), err
}

// plain turns structs into ordered maps by their koanf tags.
func plain(v reflect.Value) any {
	if t, ok := v.Interface().(time.Time); ok {
		if t.IsZero() {
			return ""
		}
		return t.Format(time.RFC3339)
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return plain(v.Elem())
	case reflect.Struct:
		return plainStruct(v)
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plain(v.Index(i))
		}
		return list
	}
	if d, ok := v.Interface().(time.Duration); ok {
		return d.String()
	}
	return v.Interface()
}

func plainStruct(v reflect.Value) any {
	m := map[string]any{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, squash := keyOf(f)
		if !f.IsExported() || name == "-" {
			continue
		}
		switch {
		case squash:
			inner, _ := plain(v.Field(i)).(map[string]any)
			for k, x := range inner {
				m[k] = x
			}
		case f.Tag.Get("secret") == "true" && !v.Field(i).IsZero():
			m[name] = "(secret)"
		default:
			m[name] = plain(v.Field(i))
		}
	}
	return m
}
