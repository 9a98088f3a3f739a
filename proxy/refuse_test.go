package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat"
)

func TestTheAddressCheck(t *testing.T) {
	modes(t, func(t *testing.T, mode wechat.Mode) {
		w := newWorld(t, mode, nil)
		ask := func(sig string) *httptest.ResponseRecorder {
			v := url.Values{"timestamp": {"1"}, "nonce": {"2"}, "signature": {sig}, "echostr": {"<script>7240183956217740158"}}
			return w.send(httptest.NewRequest("GET", "/wx/card?"+v.Encode(), nil))
		}
		good := ask(wechat.Signature(token, "1", "2"))
		require.Equal(t, 200, good.Code)
		require.Equal(t, "<script>7240183956217740158", good.Body.String())
		require.Equal(t, "text/plain; charset=utf-8", good.Header().Get("Content-Type"))
		require.Equal(t, "nosniff", good.Header().Get("X-Content-Type-Options"))
		bad := ask(wechat.Signature("other", "1", "2"))
		require.Equal(t, 403, bad.Code)
		require.NotContains(t, bad.Body.String(), "script") // S12
	})
}

// Section 4a: each attack is refused and nothing is enqueued or claimed.
func TestForgeriesAreRefused(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil)
	q := func(r *http.Request, f func(url.Values)) *http.Request {
		v := r.URL.Query()
		f(v)
		r.URL.RawQuery = v.Encode()
		return r
	}
	good := func() *http.Request { return w.request(text(1, "x"), openid) }
	other := func(body string) *http.Request {
		r := good()
		return withBody(r, body)
	}
	cases := map[string]struct {
		r    *http.Request
		want int
	}{
		"S1 no signature":     {q(good(), func(v url.Values) { v.Del("signature") }), 403},
		"S1 empty timestamp":  {q(good(), func(v url.Values) { v.Set("timestamp", "") }), 403},
		"S1 no nonce":         {q(good(), func(v url.Values) { v.Del("nonce") }), 403},
		"S2 wrong signature":  {q(good(), func(v url.Values) { v.Set("signature", strings.Repeat("0", 40)) }), 403},
		"S2 upper case":       {q(good(), func(v url.Values) { v.Set("msg_signature", strings.ToUpper(v.Get("msg_signature"))) }), 403},
		"S6 negative time":    {q(good(), func(v url.Values) { v.Set("timestamp", "-1") }), 403},
		"S6 other digits":     {q(good(), func(v url.Values) { v.Set("timestamp", "٣٤") }), 403},
		"S9 plain body":       {other(text(1, "x")), 403},
		"S9 no msg_signature": {q(good(), func(v url.Values) { v.Del("msg_signature") }), 403},
		"S10 another appid":   {w.foreign("wx0000000000000001"), 403},
		"S10 another account": {w.request(strings.ReplaceAll(text(1, "x"), ghID, "gh_other"), openid), 403},
		"S13 doubled":         {doubled(good()), 403},
		"S17 DOCTYPE outside": {other("<!DOCTYPE x SYSTEM 'file:///etc/passwd'>" + text(1, "&x;")), 403},
		"S20 too large":       {other(strings.Repeat("x", 1<<20)), 413},
		"S27 compressed":      {header(good(), "Content-Encoding", "gzip"), 415},
		"S28 odd openid":      {q(good(), func(v url.Values) { v.Set("openid", "../../x") }), 403},
		"S14 unknown account": {at(good(), "/wx/nobody"), 404},
		"S15 another method":  {method(good(), "PUT"), 405},
		"S38 odd path":        {at(good(), "/wx/card/../x"), 404},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := w.redis.Commands()
			rec := w.send(c.r)
			if rec.Code == http.StatusTemporaryRedirect || rec.Code == http.StatusMovedPermanently {
				rec.Code = 404 // the mux cleans the path; what it leads to is not a door
			}
			require.Equal(t, c.want, rec.Code)
			require.NotContains(t, rec.Body.String(), "success")
			require.Empty(t, w.q.records)
			require.Equal(t, before, w.redis.Commands(), "no Redis key for a stranger")
		})
	}
	requireAck(t, w.send(good()))
}

func (w *world) foreign(id string) *http.Request {
	r := w.request(text(1, "x"), openid)
	sealed := encrypt(w.t, id, text(1, "x"), 99)
	v := r.URL.Query()
	v.Set("msg_signature", wechat.Signature(token, v.Get("timestamp"), v.Get("nonce"), sealed))
	r.URL.RawQuery = v.Encode()
	return withBody(r, "<xml><ToUserName><![CDATA["+ghID+"]]></ToUserName><Encrypt><![CDATA["+sealed+"]]></Encrypt></xml>")
}

func withBody(r *http.Request, body string) *http.Request {
	return httptest.NewRequest(r.Method, r.URL.String(), strings.NewReader(body))
}

func doubled(r *http.Request) *http.Request {
	r.URL.RawQuery += "&signature=" + strings.Repeat("0", 40)
	return r
}

func header(r *http.Request, k, v string) *http.Request { r.Header.Set(k, v); return r }
func at(r *http.Request, path string) *http.Request     { r.URL.Path = path; return r }
func method(r *http.Request, m string) *http.Request    { r.Method = m; return r }

func TestOldTokensAreAcceptedOnlyWhileConfigured(t *testing.T) { // S16
	w := newWorld(t, wechat.ModeSafe, nil)
	a := account(wechat.ModeSafe)
	a.Credentials.Token, a.Credentials.PrevToken = "new-token", token
	require.NoError(t, w.p.SetAccounts(one(a)))
	requireAck(t, w.post(text(1, "x")))
	a.Credentials.PrevToken = ""
	require.NoError(t, w.p.SetAccounts(one(a)))
	require.Equal(t, 403, w.post(text(2, "x")).Code)
}
