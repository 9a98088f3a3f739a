package wire_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidegate/pkg/wire"
)

func callbackHeaders() []wire.Header {
	return []wire.Header{{Key: wire.HeaderVersion, Value: []byte("1")}, {Key: wire.HeaderKind, Value: []byte(wire.KindCallback)}}
}

// agrees demands that a value means the same to Decode as to encoding/json.
func agrees(t require.TestingT, value []byte) {
	var want wire.Callback
	bad := json.Unmarshal(value, &want)
	got, err := wire.Decode[wire.Callback](value, callbackHeaders())
	if bad != nil {
		require.ErrorIs(t, err, wire.ErrNotJSON, "%q", value)
		return
	}
	require.NoError(t, err, "%q", value)
	require.Equal(t, &want, got, "%q", value)
}

// randomCallback fills every field that the struct has, those of the future too.
func randomCallback(t *rapid.T) *wire.Callback {
	text := rapid.OneOf(rapid.Just(""), rapid.String(), rapid.StringMatching(`["\\<>&/\x00-\x1f\x7f]{0,20}`), rapid.Just("a\u2028b 你好 😀"))
	var c wire.Callback
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(text.Draw(t, name))
		case reflect.Int64:
			f.SetInt(rapid.Int64Range(-999_999_999_999_999_999, 999_999_999_999_999_999).Draw(t, name))
		case reflect.Bool:
			f.SetBool(rapid.Bool().Draw(t, name))
		case reflect.Map:
			f.Set(reflect.ValueOf(rapid.MapOfN(rapid.StringMatching(`[a-zA-Z.]{0,8}`), text, 0, 5).Draw(t, name)))
		case reflect.Slice:
			f.SetBytes(rapid.SliceOf(rapid.Byte()).Draw(t, name))
		default:
			t.Fatalf("%s has a kind that this test does not fill: %s", name, f.Kind())
		}
	}
	return &c
}

// Every letter that we write is read the short way. A field that is added to the
// struct and forgotten in the reader is found here.
func TestOurCallbacksAreReadTheShortWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, value, _, err := wire.Encode(randomCallback(t))
		require.NoError(t, err)
		_, ok := wire.ReadCallback(value)
		require.True(t, ok, "%q", value)
		agrees(t, value)
	})
}

// What is damaged, cut or written by somebody else means what encoding/json says.
func TestAnyValueMeansWhatEncodingJSONSays(t *testing.T) {
	pieces := rapid.SampledFrom([]string{
		`"`, `\`, `{`, `}`, `:`, `,`, ` `, "\n", `null`, `true`, `tru`, `1`, `-`, `0`, `01`, `1.5`, `1e3`, `-0`, `\u00e9`, `\ud83d`, `\ude00`, `\u12`, `\x`, "\x80", "\xff", "\x01",
		`"id"`, `"ID"`, `"fields"`, `"body"`, `"unchecked"`, `"create_time"`, `"more":[1,{"a":2}]`, `{"a":"b"}`, `"AAA="`, `"A*"`, `99999999999999999999`,
	})
	rapid.Check(t, func(t *rapid.T) {
		_, value, _, err := wire.Encode(randomCallback(t))
		require.NoError(t, err)
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			at := rapid.IntRange(0, len(value)).Draw(t, "at")
			end := min(len(value), at+rapid.IntRange(0, 6).Draw(t, "cut"))
			value = append(append(bytes.Clone(value[:at]), pieces.Draw(t, "piece")...), value[end:]...)
		}
		agrees(t, value)
	})
	for _, value := range []string{
		``, ` `, `{}`, ` { } `, `{}x`, `[]`, `null`, `{"id":null}`, `{"id":1}`, `{"id":"a","id":"b"}`, `{"Id":"a"}`, `{"fields":{"a":"1"},"fields":{"b":"2"}}`, `{"fields":null}`,
		`{"create_time":1.0}`, `{"create_time":"1"}`, `{"create_time":-5}`, `{"create_time":9223372036854775807}`, `{"create_time":9223372036854775808}`, `{"unchecked":1}`, `{"unchecked":truex}`,
		`{"body":"AA=="}`, `{"body":"AA"}`, `{"body":""}`, `{"body":"A\u0041=="}`, `{"content":"\ud83d\ude00"}`, `{"content":"\ud83d"}`, `{"content":"\/"}`, `{"future":{"a":[1]},"id":"x"}`, `{"id":"x",}`, `{"i\u0064":"x"}`,
	} {
		agrees(t, []byte(value))
	}
}

func FuzzReadCallback(f *testing.F) {
	for _, l := range samples() {
		if _, value, _, err := wire.Encode(l); err == nil {
			f.Add(value)
		}
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if len(value) < wire.MaxValue {
			agrees(t, value)
		}
	})
}

func BenchmarkDecodeCallback(b *testing.B) {
	c := samples()["callback"].(*wire.Callback)
	c.Body = bytes.Repeat([]byte("<xml>where is my parcel? </xml>"), 20)
	c.Content = strings.Repeat("where is my parcel? ", 17)
	_, value, headers, err := wire.Encode(c)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.Decode[wire.Callback](value, headers); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkJSONCallback(b *testing.B) {
	c := samples()["callback"].(*wire.Callback)
	c.Body = bytes.Repeat([]byte("<xml>where is my parcel? </xml>"), 20)
	c.Content = strings.Repeat("where is my parcel? ", 17)
	_, value, _, err := wire.Encode(c)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		var c wire.Callback
		if err := json.Unmarshal(value, &c); err != nil {
			b.Fatal(err)
		}
	}
}
