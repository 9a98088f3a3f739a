package wire_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidegate/pkg/wire"
)

// TestLettersAreWrittenAsEncodingJSONWould fills every field by reflection:
// one that is added to the struct and forgotten in the writer is found, and so
// is any text that is escaped in another way.
func TestLettersAreWrittenAsEncodingJSONWould(t *testing.T) {
	bytes := rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 20), func(b []byte) string { return string(b) })
	text := rapid.OneOf(rapid.Just(""), rapid.String(), rapid.StringMatching(`["\\<>&/\x00-\x1f\x7f]{0,20}`), bytes, rapid.Just("a\u2028b\u2029c"))
	rapid.Check(t, func(t *rapid.T) {
		for _, l := range []wire.Letter{&wire.Callback{}, &wire.Reply{}, &wire.Receipt{}} {
			fillAny(t, string(l.Kind()), reflect.ValueOf(l).Elem(), text)
			sameAsJSON(t, l)
		}
	})
}

// fillAny gives every field a value, and follows pointers and lists.
func fillAny(t *rapid.T, name string, v reflect.Value, text *rapid.Generator[string]) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fillAny(t, name+"."+v.Type().Field(i).Name, v.Field(i), text)
		}
	case reflect.String:
		v.SetString(text.Draw(t, name))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64()).Draw(t, name))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, name))
	case reflect.Map:
		v.Set(reflect.ValueOf(rapid.MapOfN(text, text, 0, 20).Draw(t, name)))
	case reflect.Pointer:
		if rapid.Bool().Draw(t, name) {
			v.Set(reflect.New(v.Type().Elem()))
			fillAny(t, name, v.Elem(), text)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(rapid.SliceOf(rapid.Byte()).Draw(t, name))
			return
		}
		if n := rapid.IntRange(-1, 3).Draw(t, name); n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fillAny(t, name, v.Index(i), text)
			}
		}
	default:
		t.Fatalf("%s has a kind that this test does not fill: %s", name, v.Kind())
	}
}

// The letters' parts lie in one block: none may write into its neighbour.
func TestAppendingToAPartDoesNotTouchTheNext(t *testing.T) {
	key, _, headers, err := wire.Encode(samples()["callback"])
	require.NoError(t, err)
	for _, h := range headers {
		_ = append(h.Value, "XXXXXXXX"...)
	}
	require.Equal(t, "oX", string(key))
	require.Equal(t, strconv.Itoa(wire.Version), wire.HeaderValue(headers, wire.HeaderVersion))
	require.Equal(t, "callback", wire.HeaderValue(headers, wire.HeaderKind))
	require.Equal(t, "25770000000000000000001", wire.HeaderValue(headers, wire.HeaderID))
}

func BenchmarkEncodeCallback(b *testing.B) {
	c := samples()["callback"].(*wire.Callback)
	c.Body = bytes.Repeat([]byte("<xml>where is my parcel? </xml>"), 20)
	c.Content = string(bytes.Repeat([]byte("where is my parcel? "), 17))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, err := wire.Encode(c); err != nil {
			b.Fatal(err)
		}
	}
}

func sameAsJSON(t require.TestingT, c wire.Letter) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	require.NoError(t, e.Encode(c))
	_, value, _, err := wire.Encode(c)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(value)+"\n")
}
