package plugin_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidegate/pkg/fault"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wire"
	"tidegate/robot/engine"
	"tidegate/robot/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret = "an engine's secret of some length"
	older  = "the secret before, of some length"
)

var now = time.Unix(1_790_000_000, 0)

func callback() *wire.Callback {
	return &wire.Callback{
		ID: "25770000000000000000001", Account: "card", OpenID: "oUser-1", MsgType: "text", MsgID: "77", Content: "hello",
		CreateTime: 1_790_000_000, ReceivedAt: 1_790_000_000_123, Fields: map[string]string{"a.b": "c"}, Body: []byte("<xml>"),
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

func ask() *engine.Ask {
	return &engine.Ask{Engine: "smart", Rule: "ai", Lang: "zh", Inside: true, MayStay: true, Vars: map[string]any{"n": "1"}}
}

// server is an engine; it counts what reaches it.
func server(t *testing.T, h http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var seen atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		body, _ := io.ReadAll(r.Body) // a server sees a client leave only once it has read the request
		r.Body = io.NopCloser(bytes.NewReader(body))
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s, &seen
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func config(url string) plugin.Config {
	return plugin.Config{Name: "smart", URL: url, Secret: secret, Allow: []string{"127.0.0.1"}, Attempts: 1}
}

func client(t *testing.T, c plugin.Config, o plugin.Options) *plugin.Client {
	t.Helper()
	if o.Now == nil {
		o.Now = func() time.Time { return now }
	}
	p, err := plugin.New(c, o)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func TestTheRequestIsSignedAndHasTheLetter(t *testing.T) {
	var head http.Header
	var body []byte
	s, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		head = r.Header.Clone()
		body, _ = io.ReadAll(r.Body)
		says(`{"replies":[{"type":"text","text":"hi"}]}`)(w, r)
	})
	cfg := config(s.URL + "/ask?key=1")
	cfg.Secret, cfg.PrevSecret = "whsec_"+base64.StdEncoding.EncodeToString([]byte(secret)), older
	said, err := client(t, cfg, plugin.Options{}).Ask(t.Context(), callback(), ask())
	require.NoError(t, err)
	require.Equal(t, []wire.Content{{Type: "text", Text: "hi"}}, said.Replies)

	sign := func(key string) string {
		m := hmac.New(sha256.New, []byte(key))
		m.Write([]byte("25770000000000000000001.1790000000." + string(body)))
		return "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
	}
	require.Equal(t, "25770000000000000000001", head.Get("Webhook-Id"))
	require.Equal(t, "1790000000", head.Get("Webhook-Timestamp"))
	require.Equal(t, sign(secret)+" "+sign(older), head.Get("Webhook-Signature"))
	require.Equal(t, callback().TraceParent, head.Get("Traceparent"))
	require.NotContains(t, string(body), "xml", "the original body stays here")

	var got map[string]any
	require.NoError(t, json.Unmarshal(body, &got))
	require.Equal(t, map[string]any{"open": true, "may_stay": true}, got["dialogue"])
	require.Equal(t, map[string]any{"n": "1"}, got["vars"])
	require.Equal(t, "hello", got["callback"].(map[string]any)["content"])
	require.Equal(t, []any{1.0, "callback", "ai", "zh"}, []any{got["version"], got["type"], got["rule"], got["language"]})
}

func TestWhatAnEngineMaySay(t *testing.T) {
	for text, want := range map[string]engine.Said{
		`{"silence":true}`:                  {},
		`{"silence":true,"dialogue":"end"}`: {Dialogue: "end"},
		`{"hand_over":true}`:                {HandOver: true},
		`{"replies":[{"type":"image","media_id":"M"}],"dialogue":"stay","vars":{"step":"2"}}`: {Replies: []wire.Content{{Type: "image", MediaID: "M"}}, Dialogue: "stay", Vars: map[string]string{"step": "2"}},
		`{"replies":[{"type":"menu","menu":{"head":"h","items":[{"id":"a","text":"A"}]}}]}`:   {Replies: []wire.Content{{Type: "msgmenu", Menu: &wire.Menu{Head: "h", Items: []wire.MenuItem{{ID: "a", Text: "A"}}}}}},
		`{"replies":[{"type":"news","news":{"title":"t","url":"https://x.example/"}}]}`:       {Replies: []wire.Content{{Type: "news", News: &wire.Article{Title: "t", URL: "https://x.example/"}}}},
		`{"replies":[{"type":"text","text":"a <a href=\"x\">b</a>"}]}`:                        {Replies: []wire.Content{{Type: "text", Text: `a ＜a href="x">b＜/a>`}}},
	} {
		s, _ := server(t, says(text))
		said, err := client(t, config(s.URL), plugin.Options{}).Ask(t.Context(), callback(), ask())
		require.NoError(t, err, text)
		require.Equal(t, want, said, text)
	}
	s, _ := server(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	said, err := client(t, config(s.URL), plugin.Options{}).Ask(t.Context(), callback(), ask())
	require.NoError(t, err)
	require.Equal(t, engine.Said{}, said)
}

func TestWhatIsNotAnAnswer(t *testing.T) {
	six := strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"x"},`, 6), ",")
	for text, want := range map[string]string{
		"": "cannot be used", "hello": "cannot be used", "[]": "cannot be used", "null": "cannot be used", "{}": "it says nothing", `{"replies":[]}`: "it says nothing",
		`{"silence":true}{}`: "cannot be used", `{"silence":true,"silence":false}`: "silence comes twice", `{"Silence":true}`: "Silence", `{"reply":"x"}`: "reply",
		`{"silence":true,"hand_over":true}`: "stands alone", `{"silence":true,"dialogue":"forever"}`: "stay or end",
		`{"replies":[` + six + `]}`: "6 replies", `{"replies":[{"type":"video","media_id":"x"}]}`: "replies[0]",
		`{"replies":[{"type":"text","text":"` + strings.Repeat("x", 2049) + `"}]}`: "WeChat takes 2048", `{"replies":[{"type":"news","news":{"title":"t","url":"javascript:x"}}]}`: "news: url",
		`{"silence":true,"vars":{"a":"` + strings.Repeat("x", 513) + `"}}`: "vars", `{"silence":true,"vars":{"a":1}}`: "vars",
		"{\"silence\":true,\"vars\":{\"a\":\"\xff\"}}": "cannot be used",
	} {
		s, _ := server(t, says(text))
		_, err := client(t, config(s.URL), plugin.Options{}).Ask(t.Context(), callback(), ask())
		require.ErrorContains(t, err, want, text)
		require.Equal(t, fault.Final, fault.KindOf(err), text)
	}
}

func TestRefusalsHaveKindsAndPassingOnesAreTriedAgain(t *testing.T) {
	for status, want := range map[int]struct {
		kind  fault.Kind
		tries int64
	}{
		401: {fault.Denied, 1}, 403: {fault.Denied, 1}, 404: {fault.Final, 1}, 500: {fault.Final, 1}, 201: {fault.Final, 1},
		429: {fault.Limited, 2}, 503: {fault.Unavailable, 2},
	} {
		s, seen := server(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		cfg := config(s.URL)
		cfg.Attempts = 2
		_, err := client(t, cfg, plugin.Options{}).Ask(t.Context(), callback(), ask())
		require.Equal(t, want.kind, fault.KindOf(err), status)
		require.Equal(t, want.tries, seen.Load(), status)
	}
	var n atomic.Int64
	s, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		says(`{"silence":true}`)(w, r)
	})
	cfg := config(s.URL)
	cfg.Attempts = 2
	_, err := client(t, cfg, plugin.Options{}).Ask(t.Context(), callback(), ask())
	require.NoError(t, err)
}

func TestCapsAndDeadlines(t *testing.T) {
	s, seen := server(t, says(`{"silence":true}`))
	cfg := config(s.URL)
	cfg.Concurrency = 1
	l := ratelimit.New(cfg.Limit())
	release, err := l.Acquire(t.Context(), 0)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client(t, cfg, plugin.Options{Limiter: l}).Ask(ctx, callback(), ask())
	require.Equal(t, fault.Limited, fault.KindOf(err))
	require.Zero(t, seen.Load())
	release()
	_, err = client(t, cfg, plugin.Options{Limiter: l}).Ask(t.Context(), callback(), ask())
	require.NoError(t, err)
}

func TestEnginesThatCannotBeRight(t *testing.T) {
	for field, change := range map[string]func(*plugin.Config){
		"name": func(c *plugin.Config) { c.Name = "A b" }, "url": func(c *plugin.Config) { c.URL = "" }, "secret": func(c *plugin.Config) { c.Secret = "" },
		"prev_secret": func(c *plugin.Config) { c.PrevSecret = "whsec_!" }, "timeout": func(c *plugin.Config) { c.Timeout = time.Hour }, "attempts": func(c *plugin.Config) { c.Attempts = 99 },
		"max_response": func(c *plugin.Config) { c.MaxResponse = 1 }, "rate": func(c *plugin.Config) { c.Rate = -1 }, "burst": func(c *plugin.Config) { c.Burst = -1 },
		"concurrency": func(c *plugin.Config) { c.Concurrency = 5000 }, "allow": func(c *plugin.Config) { c.Allow = []string{"10.0.0.1/8"} }, "ca_file": func(c *plugin.Config) { c.CAFile = "absent.pem" },
	} {
		c := config("http://127.0.0.1:1/")
		change(&c)
		require.ErrorContains(t, c.Validate(), field, field)
		_, err := plugin.New(c, plugin.Options{})
		require.Error(t, err, field)
	}
	require.NoError(t, config("http://127.0.0.1:1/").Validate())
}
