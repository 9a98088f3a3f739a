package api_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
)

type order struct {
	OpenID string            `json:"openid"`
	Count  int               `json:"count"`
	Data   map[string]string `json:"data"`
	Inner  *struct {
		List []struct {
			Name string `json:"name"`
		} `json:"list"`
	} `json:"inner"`
	Hidden string `json:"-"`
	Raw    any    `json:"raw"`
}

func TestDecodeNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ body, field, text string }{
		{`{"openid":"a","x":1}`, "x", "unknown field x"},
		{`{"openid":"a","openid":"b"}`, "openid", "comes twice"},
		{`{"OpenID":"a"}`, "OpenID", `write it as "openid"`},
		{`{"Hidden":"a"}`, "Hidden", "unknown field"},
		{`{"-":"a"}`, "-", "unknown field"},
		{`{"data":{"a":"1","a":"2"}}`, "data.a", "comes twice"},
		{`{"data":{"a":1}}`, "data", "a string is expected"},
		{`{"inner":{"list":[{"name":"x"},{"nam":"y"}]}}`, "inner.list[1].nam", "unknown field"},
		{`{"count":"1"}`, "count", "a whole number in range is expected"},
		{`{"count":1e400}`, "count", "whole number"},
		{`{"count":9223372036854775808}`, "count", "whole number"},
		{`{"openid":"a\u0000"}`, "openid", "NUL"},
		{`{"openid":"\ud800"}`, "openid", "half a character"},
		{`{"openid":"\ud800\u0041"}`, "openid", "half a character"},
		{`{"openid":"\udc00\ud800"}`, "openid", "half a character"},
		{`{"raw":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "", "nested deeper"},
		{`{"raw":{"q":1,"q":2}}`, "raw.q", "comes twice"},
		{`{"openid":"a"} {"openid":"b"}`, "", "more behind"},
		{`{"openid":"a"}x`, "", "more behind"},
		{`{"openid":"a"`, "", "ends in the middle"},
		{`{"openid" "a"}`, "", "not well-formed"},
		{`{"count":1,}`, "", "not well-formed"},
		{`{1:2}`, "", "not well-formed"},
		{`[]`, "", "the body is a JSON array: send an object"},
		{`"x"`, "", "the body is a JSON string: send an object"},
		{"", "", "empty"},
		{" \n", "", "empty"},
		{"{\"openid\":\"\xff\"}", "", "not UTF-8"},
		{strings.Repeat("[", 100000), "", "nested deeper"},
	} {
		var o order
		err := api.DecodeBytes([]byte(c.body), &o)
		require.ErrorContains(t, err, c.text, c.body)
		require.Equal(t, fault.Invalid, fault.KindOf(err))
		if c.field != "" {
			require.Equal(t, c.field, fault.FieldOf(err), c.body)
		}
	}
}

func TestDecodeTakesWhatIsRight(t *testing.T) {
	var o order
	err := api.DecodeBytes([]byte(` {"openid":"\ud83d\ude00 \\ud800","count":3,"data":{"First":"1","first":"2"},"inner":{"list":[{"name":"n"}]},"raw":[1,{"a":null}]} `), &o)
	require.NoError(t, err)
	require.Equal(t, "😀 \\ud800", o.OpenID)
	require.Equal(t, map[string]string{"First": "1", "first": "2"}, o.Data, "keys of a map may differ by case")
	require.Equal(t, "n", o.Inner.List[0].Name)
}

func TestDecodeLimitsTheBody(t *testing.T) {
	send := func(body, contentType, encoding string) error {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		if encoding != "" {
			r.Header.Set("Content-Encoding", encoding)
		}
		var o order
		return api.Decode(httptest.NewRecorder(), r, 64, &o)
	}
	require.NoError(t, send(`{"openid":"a"}`, "application/json; charset=UTF-8", "identity"))
	require.ErrorIs(t, send(`{"openid":"`+strings.Repeat("a", 64)+`"}`, "application/json", ""), api.ErrTooLarge)
	require.ErrorIs(t, send(`{}`, "text/plain", ""), api.ErrMediaType)
	require.ErrorIs(t, send(`{}`, "", ""), api.ErrMediaType)
	require.ErrorIs(t, send(`{}`, "application/json; charset=gbk", ""), api.ErrMediaType)
	require.ErrorIs(t, send(`{}`, "application/json", "gzip"), api.ErrMediaType)
}

// What the strict decoder takes, the plain one takes to the same value and
// writes back without loss.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"openid":"a","data":{"k":"v"},"raw":[1]}`, `{"openid":"\ud83d\ude00"}`, `{"inner":{"list":[{"name":""}]}}`, `{"a":`, `[[[[`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var o, again order
		if err := api.DecodeBytes(body, &o); err != nil {
			require.Equal(t, fault.Invalid, fault.KindOf(err))
			return
		}
		text, err := json.Marshal(o)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &again))
		require.Equal(t, o, again)
		require.False(t, bytes.Contains(body, []byte{0}))
	})
}
