// Package config fills a struct from its defaults, a YAML file, environment
// variables and flags, in this order, each overriding the one before.
//
// It knows no room: the struct and its defaults are the caller's. Whatever is
// not a field of the struct is refused with its name, since a misspelt key
// that is silently ignored is a setting that silently does not work.
//
// A field tagged `secret:"true"`, a string or a map of strings, may hold
// "file:/path" or "env:NAME" instead of the secret itself, and is never printed.
package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
)

// Separator divides levels in names of environment variables: the key
// redis.addrs is TIDEGATE_REDIS__ADDRS.
const Separator = "__"

// Source says where settings come from.
type Source struct {
	// File is the YAML file; empty for none.
	File string
	// EnvPrefix marks our environment variables, for instance "TIDEGATE_".
	EnvPrefix string
	// Environ is the environment as os.Environ gives it.
	Environ []string
	// Ignore lists prefixes of variables that carry EnvPrefix and are not
	// settings.
	Ignore []string
	// Set holds dotted keys from flags.
	Set map[string]string
	// NoSecrets leaves references to secrets as they are, for who needs none of
	// them and may not be allowed to read them.
	NoSecrets bool
	// Moved tells where keys of earlier releases are now: they stay unknown, but
	// the error names the new place.
	Moved map[string]string
}

// Load fills dst, a pointer to a struct that already holds the defaults.
func Load(dst any, s Source) error {
	k := koanf.New(".")
	if s.File != "" {
		if err := k.Load(file.Provider(s.File), yaml.Parser()); err != nil {
			return fmt.Errorf("read configuration %s: %w", s.File, err)
		}
	}
	if err := k.Load(confmap.Provider(s.fromEnv(), "."), nil); err != nil {
		return fmt.Errorf("read environment: %w", err)
	}
	flags := make(map[string]any, len(s.Set))
	for key, v := range s.Set {
		flags[key] = v
	}
	if err := k.Load(confmap.Provider(flags, "."), nil); err != nil {
		return fmt.Errorf("read flags: %w", err)
	}
	if err := decode(k, dst); err != nil {
		return s.explain(err, dst)
	}
	if s.NoSecrets {
		return nil
	}
	return resolveSecrets(reflect.ValueOf(dst).Elem(), "")
}

func (s Source) fromEnv() map[string]any {
	m := map[string]any{}
	for _, kv := range s.Environ {
		name, value, _ := strings.Cut(kv, "=")
		rest, ours := strings.CutPrefix(name, s.EnvPrefix)
		if !ours || s.EnvPrefix == "" || s.ignored(name) {
			continue
		}
		m[strings.ToLower(strings.ReplaceAll(rest, Separator, "."))] = value
	}
	return m
}

func (s Source) ignored(name string) bool {
	for _, p := range s.Ignore {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

func decode(k *koanf.Koanf, dst any) error {
	return k.UnmarshalWithConf("", dst, koanf.UnmarshalConf{Tag: "koanf", DecoderConfig: &mapstructure.DecoderConfig{
		Result:           dst,
		ErrorUnused:      true,
		WeaklyTypedInput: true,
		// A list in the file replaces the default list; it does not overlay it.
		ZeroFields: false,
		Squash:     true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			refuseBareNumberDurations,
			mapstructure.StringToTimeDurationHookFunc(),
			mapstructure.StringToSliceHookFunc(","),
			mapstructure.TextUnmarshallerHookFunc(),
		),
	}})
}

// refuseBareNumberDurations: "timeout: 5" would mean five nanoseconds.
func refuseBareNumberDurations(from, to reflect.Type, v any) (any, error) {
	if to != reflect.TypeOf(time.Duration(0)) {
		return v, nil
	}
	switch from.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
		if reflect.ValueOf(v).IsZero() {
			return time.Duration(0), nil
		}
		return nil, fmt.Errorf("%v has no unit: write a duration such as 5s, 200ms or 1h", v)
	}
	return v, nil
}

// explain adds to an error of the decoder what a person needs: the file, and
// for unknown keys the names that were probably meant.
func (s Source) explain(err error, dst any) error {
	where := "configuration"
	if s.File != "" {
		where = "configuration " + s.File
	}
	text := strings.ReplaceAll(err.Error(), "decoding failed due to the following error(s):\n\n", "")
	if lines := unknownKeys(text, dst, s.Moved); len(lines) > 0 {
		return fmt.Errorf("%s: %s", where, strings.Join(lines, "\n"))
	}
	return fmt.Errorf("%s: %s", where, text)
}

// Keys lists every dotted key of a struct, for help texts and errors.
func Keys(v any) []string {
	var keys []string
	t := reflect.TypeOf(v)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	walkKeys(t, "", &keys)
	sort.Strings(keys)
	return keys
}

func walkKeys(t reflect.Type, prefix string, keys *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, squash := keyOf(f)
		if !f.IsExported() || name == "-" {
			continue
		}
		ft := f.Type
		for ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		switch {
		case squash:
			walkKeys(ft, prefix, keys)
		case ft.Kind() == reflect.Struct && ft != reflect.TypeFor[time.Time]():
			walkKeys(ft, prefix+name+".", keys)
		case ft.Kind() == reflect.Slice && ft.Elem().Kind() == reflect.Struct:
			walkKeys(ft.Elem(), prefix+name+"[].", keys)
		default:
			*keys = append(*keys, prefix+name)
		}
	}
}

func keyOf(f reflect.StructField) (name string, squash bool) {
	name, opts, _ := strings.Cut(f.Tag.Get("koanf"), ",")
	if name == "" {
		name = f.Name
	}
	return name, strings.Contains(opts, "squash") || (f.Anonymous && f.Tag.Get("koanf") == "")
}

// maxSecret bounds the file a secret is read from.
const maxSecret = 64 << 10

// readSecret resolves "file:" and "env:" references. Errors name the
// reference, never the secret.
func readSecret(ref string) (string, error) {
	if path, ok := strings.CutPrefix(ref, "file:"); ok {
		st, err := os.Stat(path)
		if err != nil {
			return "", fmt.Errorf("secret file: %w", err)
		}
		if st.Size() > maxSecret {
			return "", fmt.Errorf("secret file %s is %d bytes; a secret has at most %d", path, st.Size(), maxSecret)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("secret file: %w", err)
		}
		return strings.TrimRight(string(b), "\r\n"), nil
	}
	if name, ok := strings.CutPrefix(ref, "env:"); ok {
		v, ok := os.LookupEnv(name)
		if !ok {
			return "", fmt.Errorf("environment variable %s is not set", name)
		}
		return v, nil
	}
	return ref, nil
}

// ErrNoSecret wraps every failure to resolve a secret.
var ErrNoSecret = errors.New("secret cannot be read")

// resolveSecrets reports every secret that cannot be read, not only the first:
// on a new machine it is seldom only one.
func resolveSecrets(v reflect.Value, path string) error {
	var errs []error
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return resolveSecrets(v.Elem(), path)
	case reflect.Slice:
		for i := range v.Len() {
			errs = append(errs, resolveSecrets(v.Index(i), fmt.Sprintf("%s[%d]", path, i)))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			errs = append(errs, resolveField(v.Type().Field(i), v.Field(i), path))
		}
	}
	return errors.Join(errs...)
}

func resolveField(f reflect.StructField, v reflect.Value, path string) error {
	if !f.IsExported() {
		return nil
	}
	name, squash := keyOf(f)
	if !squash {
		path = strings.TrimPrefix(path+"."+name, ".")
	}
	if f.Tag.Get("secret") != "true" {
		return resolveSecrets(v, path)
	}
	switch v.Kind() {
	case reflect.String:
		s, err := secretOf(path, v.String())
		v.SetString(s)
		return err
	case reflect.Map:
		return resolveMap(v, path)
	}
	return nil
}

// resolveMap resolves the values of a map of strings.
func resolveMap(v reflect.Value, path string) error {
	var errs []error
	for _, k := range v.MapKeys() {
		s, err := secretOf(path+"."+k.String(), v.MapIndex(k).String())
		errs = append(errs, err)
		v.SetMapIndex(k, reflect.ValueOf(s))
	}
	return errors.Join(errs...)
}

// secretOf gives the reference back where it cannot be resolved.
func secretOf(path, ref string) (string, error) {
	s, err := readSecret(ref)
	if err != nil {
		return ref, fmt.Errorf("%s: %w: %w", path, ErrNoSecret, err)
	}
	return s, nil
}
