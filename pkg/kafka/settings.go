package kafka

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// SettingsOf names everything that sarama is told, by the path of its fields
// (Producer.Flush.Frequency), so that two clients can be compared: a benchmark
// against one that does less is only fair where both are told the same. Of what
// has no value to print (functions, certificates) it says whether it is set.
func SettingsOf(conf *sarama.Config) map[string]string {
	out := map[string]string{}
	flatten(out, "", reflect.ValueOf(*conf))
	delete(out, "MetricRegistry") // each client has one of its own
	return out
}

func flatten(out map[string]string, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				out[path+f.Name] = fmt.Sprint(v.Field(i))
				continue
			}
			name := path + f.Name
			if f.Type.Kind() == reflect.Struct {
				name += "."
			}
			flatten(out, name, v.Field(i))
		}
	case reflect.Func, reflect.Pointer, reflect.Interface, reflect.Map, reflect.Chan:
		out[path] = map[bool]string{true: "not set", false: "set"}[v.IsNil()]
	case reflect.Slice:
		out[path] = ""
		for i := range v.Len() {
			out[path] += fmt.Sprintf("%T ", v.Index(i).Interface())
		}
	default:
		if d, ok := v.Interface().(time.Duration); ok {
			out[path] = d.String()
			return
		}
		out[path] = fmt.Sprint(v.Interface())
		if v.Kind() == reflect.String && strings.Contains(path, "SASL") { // a login is no setting to show
			out[path] = map[bool]string{true: "not set", false: "set"}[v.IsZero()]
		}
	}
}

// GroupSettings and ProducerSettings are what NewGroup and NewProducer tell
// sarama.
func GroupSettings(cfg Config, opt GroupOptions) (map[string]string, error) {
	conf, err := cfg.base()
	if err != nil {
		return nil, err
	}
	setGroup(conf, opt.withDefaults())
	return SettingsOf(conf), nil
}

// ProducerSettings is GroupSettings for a producer.
func ProducerSettings(cfg Config, opt ProducerOptions) (map[string]string, error) {
	conf, err := cfg.base()
	if err != nil {
		return nil, err
	}
	setProducer(conf, cfg.withDefaults(), opt.withDefaults())
	return SettingsOf(conf), nil
}

// Differences names the settings in which two clients differ.
func Differences(a, b map[string]string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if a[name] != b[name] {
			out = append(out, fmt.Sprintf("%s: %q and %q", name, a[name], b[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if _, ok := a[name]; !ok {
			out = append(out, fmt.Sprintf("%s: only one has it, %q", name, b[name]))
		}
	}
	return out
}
