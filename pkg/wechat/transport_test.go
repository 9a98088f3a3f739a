package wechat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tidegate/pkg/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sendText(ctx context.Context, c *Client) *APIError {
	err := c.CustomSend(ctx, canaryToken, CustomMessage{ToUser: sampleOpenID, Text: &CustomText{Content: "hi"}})
	var e *APIError
	if !errors.As(err, &e) {
		return nil
	}
	return e
}

// requireNoCanary looks for the token and the secret in everything that an
// error and its causes print, in the forms that an address gives them (S51).
func requireNoCanary(t testing.TB, err error) {
	t.Helper()
	for e := err; e != nil; e = errors.Unwrap(e) {
		for _, format := range []string{"%v", "%+v", "%s", "%q"} {
			text := fmt.Sprintf(format, e)
			for _, canary := range []string{"CANARY", "canarysecret", "access_token=", "secret="} {
				require.NotContains(t, text, canary)
			}
		}
	}
}

// Requests of which something may have arrived are ambiguous, and no other
// host is asked: that would be the second message.
func TestAmbiguousOutcomes(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	hijack := func(w http.ResponseWriter, answer string) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, answer)
		_ = conn.Close()
	}
	for name, handler := range map[string]http.HandlerFunc{
		"closed after the request": func(w http.ResponseWriter, _ *http.Request) { hijack(w, "") },
		"half an answer": func(w http.ResponseWriter, _ *http.Request) {
			hijack(w, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"errcode\"")
		},
		"no HTTP": func(w http.ResponseWriter, _ *http.Request) {
			hijack(w, "access_token=CANARY is what you sent\r\n\r\n")
		},
		"never answers": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-hang:
			}
		},
		"HTML 502": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(502)
			_, _ = io.WriteString(w, sample(t, "non-json-502.html"))
		},
		"HTML 200":     func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"empty 200":    func(http.ResponseWriter, *http.Request) {},
		"null":         func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "null") },
		"a list":       func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") },
		"a word":       func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `"success"`) },
		"odd errcode":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"errcode":1e400}`) },
		"5xx with ok":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); _, _ = io.WriteString(w, `{}`) },
		"system error": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, sample(t, "error--1.json")) },
		"a megabyte": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "{"+strings.Repeat(" ", maxAnswer)+"}")
		},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := newFakeHandler(t, handler), newFakeHost(t, 200, `{}`)
			c := newTestClient(t, Options{BaseURLs: []string{first.URL, second.URL}, Timeout: 300 * time.Millisecond})
			e := sendText(context.Background(), c)
			require.NotNil(t, e)
			require.True(t, e.Ambiguous)
			require.False(t, e.NotSent)
			require.Equal(t, fault.Ambiguous, fault.KindOf(e))
			require.Len(t, first.seen(), 1)
			require.Empty(t, second.seen())
			requireNoCanary(t, e)
			_, err := c.QuotaGet(context.Background(), canaryToken, APICustomSend)
			require.Equal(t, fault.Unavailable, fault.KindOf(err), "asking for a number twice does no harm")
		})
	}
}

// What something in front of WeChat refused was not handed on.
func TestRefusedOnTheWay(t *testing.T) {
	for _, status := range []int{302, 403, 404, 407, 429} {
		elsewhere := newFakeHost(t, 200, `{}`)
		host := newFakeHandler(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(status)
		})
		e := sendText(context.Background(), newTestClient(t, Options{BaseURLs: []string{host.URL}}))
		require.NotNil(t, e)
		require.False(t, e.Ambiguous, status)
		require.Equal(t, fault.Unavailable, fault.KindOf(e))
		require.Empty(t, elsewhere.seen(), "the token must not follow a redirect")
		requireNoCanary(t, e)
	}
}

// refusedURL is an address at which nobody listens.
func refusedURL(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return "http://" + l.Addr().String()
}

func TestNotSent(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	noName := roundTripper(func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "api.example", IsNotFound: true}}
	})
	for name, c := range map[string]struct {
		transport http.RoundTripper
		base      string
		text      string
	}{
		"refused":     {nil, refusedURL(t), "connection refused"},
		"certificate": {nil, secure.URL, "certificate"},
		"name":        {noName, "https://api.example", "does not resolve"},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := NewClient(c.transport, Options{BaseURLs: []string{c.base}})
			require.NoError(t, err)
			defer client.CloseIdle()
			e := sendText(context.Background(), client)
			require.NotNil(t, e)
			require.True(t, e.NotSent)
			require.False(t, e.Ambiguous)
			require.Equal(t, fault.Unavailable, fault.KindOf(e))
			require.Contains(t, e.Error(), c.text)
			requireNoCanary(t, e)
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		host := newFakeHost(t, 200, `{}`)
		e := sendText(ctx, newTestClient(t, Options{BaseURLs: []string{host.URL}}))
		require.NotNil(t, e)
		require.True(t, e.NotSent)
		require.ErrorIs(t, e, context.Canceled)
		require.Empty(t, host.seen())
		requireNoCanary(t, e)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A host that cannot be reached is passed over, tried last for a while and
// then comes first again.
func TestFailover(t *testing.T) {
	away := refusedURL(t)
	second := newFakeHost(t, 200, `{"errcode":0}`)
	tried := map[string]int{}
	base := NewTransport(nil, defaultConnect)
	counting := roundTripper(func(r *http.Request) (*http.Response, error) {
		tried["http://"+r.URL.Host]++
		return base.RoundTrip(r)
	})
	defer base.CloseIdleConnections()
	c, err := NewClient(counting, Options{BaseURLs: []string{away, second.URL}})
	require.NoError(t, err)
	now := time.Unix(1893456001, 0)
	c.lines.(*fixed).now = func() time.Time { return now }

	for range 3 {
		require.Nil(t, sendText(context.Background(), c))
	}
	require.Equal(t, map[string]int{away: 1, second.URL: 3}, tried)
	now = now.Add(avoidFor + time.Second)
	require.Nil(t, sendText(context.Background(), c))
	require.Equal(t, map[string]int{away: 2, second.URL: 4}, tried)
	require.Len(t, second.seen(), 4)
}

// A secret that the other side repeats does not reach our error either.
func TestRedactedEcho(t *testing.T) {
	echo := roundTripper(func(r *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("proxy says: cannot fetch %s for secret %s", r.URL, canarySecret)
	})
	c, err := NewClient(echo, Options{})
	require.NoError(t, err)
	_, err = c.Token(context.Background(), ourAppID, canarySecret)
	require.Error(t, err)
	require.NotContains(t, err.Error(), canarySecret)
	_, err = c.UserGet(context.Background(), canaryToken, "")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "CANARY")
}

func TestUnusableTokens(t *testing.T) {
	for _, body := range []string{`{}`, `{"access_token":"","expires_in":7200}`, `{"access_token":"t","expires_in":0}`,
		`{"access_token":"t"}`, `{"access_token":"a\nb","expires_in":7200}`, `{"access_token":"t","expires_in":99999999999}`,
		`{"access_token":"` + strings.Repeat("a", maxToken+1) + `","expires_in":7200}`} {
		host := newFakeHost(t, 200, body)
		_, err := newTestClient(t, Options{BaseURLs: []string{host.URL}}).StableToken(context.Background(), ourAppID, canarySecret, false)
		require.Equal(t, fault.Unavailable, fault.KindOf(err), body)
	}
}

func TestRefusedBeforeTheCall(t *testing.T) {
	host := newFakeHost(t, 200, `{}`)
	c, ctx := newTestClient(t, Options{BaseURLs: []string{host.URL}}), context.Background()
	text := &CustomText{Content: "a"}
	_, noData := c.TemplateSend(ctx, "t", TemplateMessage{ToUser: "o1", TemplateID: "T"})
	_, noTemplate := c.BizSend(ctx, "t", SubscriptionMessage{ToUser: "o1", Data: Values(nil)})
	for field, err := range map[string]error{
		"touser":       c.CustomSend(ctx, "t", CustomMessage{ToUser: "a b", Text: text}),
		"msgtype":      c.CustomSend(ctx, "t", CustomMessage{ToUser: "o1", Text: text, Image: &Media{MediaID: "m"}}),
		"data":         noData,
		"template_id":  noTemplate,
		"access_token": c.Typing(ctx, "", "o1", true),
	} {
		require.Equal(t, fault.Invalid, fault.KindOf(err), field)
		require.Equal(t, field, fault.FieldOf(err))
	}
	require.Empty(t, host.seen())
}

func TestOptions(t *testing.T) {
	for _, base := range []string{"", "api.weixin.qq.com", "ftp://a", "https://user:pass@a", "https://a/path", "https://a?x=1", "https://a#b", "https://"} {
		_, err := NewClient(nil, Options{BaseURLs: []string{base}})
		require.Error(t, err, base)
		require.NotContains(t, err.Error(), "pass")
	}
	require.Error(t, Options{Timeout: -1}.Validate())
	require.NoError(t, Options{BaseURLs: DefaultBaseURLs()}.Validate())
	require.NoError(t, Options{BaseURLs: []string{"http://127.0.0.1:8080/"}}.Validate())
}

// JSON goes out without a single \u escape, and says the same.
func TestJSONWithoutEscapes(t *testing.T) {
	pieces := rapid.SampledFrom([]string{"&", "<", ">", "\u2028", "\u2029", `\u2028`, `\`, `"`, "\n", "\t", "\x00", "\x1f", "\xff", "😀", "余", "a"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(pieces).Draw(t, "pieces"), "")
		b, err := encodeJSON(CustomText{Content: text})
		if err != nil {
			t.Fatal(err)
		}
		var back CustomText
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatalf("%q is no JSON: %v", b, err)
		}
		want := strings.Map(func(r rune) rune {
			if r < 0x20 && !strings.ContainsRune("\n\t\r\b\f", r) {
				return -1
			}
			return r
		}, toValid(text))
		if back.Content != want {
			t.Fatalf("got %q, want %q, from %q", back.Content, want, b)
		}
		if strings.Contains(strings.ReplaceAll(string(b), `\\`, ""), `\u`) {
			t.Fatalf("escape left in %q", b)
		}
	})
}

// toValid replaces each bad byte, as Go's encoder does.
func toValid(s string) string { return string([]rune(s)) }
