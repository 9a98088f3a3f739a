package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidegate/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "tg_0123456789abcdef_secret"

// gate answers like the API, one script line after the other, and keeps what
// it was asked.
type gate struct {
	mu     sync.Mutex
	asked  []*http.Request
	bodies []string
	script []http.HandlerFunc
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	g.mu.Lock()
	n := len(g.asked)
	g.asked, g.bodies = append(g.asked, r), append(g.bodies, string(b))
	line := g.script[min(n, len(g.script)-1)]
	g.mu.Unlock()
	line(w, r)
}

// requests is what was asked so far, and the bodies.
func (g *gate) requests() ([]*http.Request, []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.asked), slices.Clone(g.bodies)
}

func (g *gate) count() int { asked, _ := g.requests(); return len(asked) }

func answer(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func open(t *testing.T, o client.Options, script ...http.HandlerFunc) (*client.Client, *gate) {
	t.Helper()
	g := &gate{script: script}
	s := httptest.NewServer(g)
	t.Cleanup(s.Close)
	o.HTTP = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	c, err := client.New(s.URL+"/", key, o)
	require.NoError(t, err)
	return c, g
}

const taken = `{"id":"25779007199254740993000","state":"queued"}`

func TestPush(t *testing.T) {
	c, g := open(t, client.Options{}, answer(http.StatusAccepted, taken))
	got, err := c.Push(t.Context(), client.Push{
		Account: "shop", OpenID: "o1", TemplateID: "t1", Data: map[string]string{"thing1": "<账单> & more"},
		URL: "https://example.com/?a=1&b=2", IdempotencyKey: "bill-1", ExpiresAt: time.Date(2026, 12, 24, 10, 0, 0, 0, time.UTC),
	})
	require.NoError(t, err)
	require.Equal(t, client.Accepted{ID: "25779007199254740993000", State: "queued", IdempotencyKey: "bill-1"}, got)
	asked, bodies := g.requests()
	r := asked[0]
	require.Equal(t, "POST /v1/pushes", r.Method+" "+r.URL.Path)
	require.Equal(t, "Bearer "+key, r.Header.Get("Authorization"))
	require.Equal(t, "bill-1", r.Header.Get("Idempotency-Key"))
	var body map[string]any
	require.NoError(t, json.Unmarshal([]byte(bodies[0]), &body))
	require.Equal(t, map[string]any{
		"account": "shop", "openid": "o1", "template_id": "t1", "data": map[string]any{"thing1": "<账单> & more"},
		"url": "https://example.com/?a=1&b=2", "expires_at": "2026-12-24T10:00:00Z",
	}, body)
}

func TestRepeatsKeepTheKey(t *testing.T) {
	c, g := open(t, client.Options{},
		answer(http.StatusServiceUnavailable, `{"status":503,"errcode":"ambiguous"}`, "Retry-After", "1"),
		cut,
		answer(http.StatusBadGateway, "<html>"),
		answer(http.StatusAccepted, taken))
	begun := time.Now()
	got, err := c.Push(t.Context(), client.Push{})
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(begun), time.Second, "Retry-After is obeyed")
	asked, bodies := g.requests()
	require.Len(t, asked, 4)
	for i, r := range asked {
		require.Equal(t, got.IdempotencyKey, r.Header.Get("Idempotency-Key"))
		require.Equal(t, bodies[0], bodies[i])
	}
	second, err := c.Push(t.Context(), client.Push{})
	require.NoError(t, err)
	require.NotEqual(t, got.IdempotencyKey, second.IdempotencyKey)
	require.Greater(t, len(got.IdempotencyKey), 20)
}

func TestRefusalIsNotRepeated(t *testing.T) {
	c, g := open(t, client.Options{}, answer(http.StatusBadRequest, `{"status":400,"errcode":"invalid","detail":"at most 20","do":"Change it.","field":"data.thing1"}`))
	_, err := c.Push(t.Context(), client.Push{})
	var p *client.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, client.Problem{Status: 400, Errcode: "invalid", Detail: "at most 20", Do: "Change it.", Field: "data.thing1"}, *p)
	require.False(t, p.Temporary())
	require.EqualError(t, err, "push: tidegate answers 400 invalid (data.thing1): at most 20 Change it.")
	require.Equal(t, 1, g.count())
}

func TestTriesAreBounded(t *testing.T) {
	c, g := open(t, client.Options{Tries: 3}, cut)
	_, err := c.Push(t.Context(), client.Push{IdempotencyKey: "k"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), key)
	require.Equal(t, 3, g.count())

	c, g = open(t, client.Options{}, answer(http.StatusServiceUnavailable, "", "Retry-After", "3600"))
	_, err = c.Push(t.Context(), client.Push{})
	var p *client.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, time.Hour, p.RetryAfter)
	require.Equal(t, 1, g.count(), "nobody waits an hour inside a call")

	c, _ = open(t, client.Options{}, answer(http.StatusServiceUnavailable, "", "Retry-After", "30"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = c.Push(ctx, client.Push{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestMessage(t *testing.T) {
	c, g := open(t, client.Options{}, answer(http.StatusOK, `{"id":"1","kind":"push","state":"delivered","terminal":true,"msg_id":"9007199254740993",
		"first_at":"2026-11-30T04:00:00.123Z","timeline":[{"at":"2026-11-30T04:00:01.000Z","source":"sender","state":"accepted","attempt":2}],"new_field":1}`),
		answer(http.StatusNotFound, `{"status":404,"errcode":"not_found"}`))
	m, err := c.Message(t.Context(), "1/../2")
	require.NoError(t, err)
	require.Equal(t, "9007199254740993", m.MsgID)
	require.True(t, m.Terminal)
	require.Equal(t, 2, m.Timeline[0].Attempt)
	require.Equal(t, time.Date(2026, 11, 30, 4, 0, 0, 123e6, time.UTC), m.FirstAt)
	asked, _ := g.requests()
	require.Equal(t, "/v1/messages/1%2F..%2F2", asked[0].URL.EscapedPath())
	_, err = c.Message(t.Context(), "3")
	var p *client.Problem
	require.True(t, errors.As(err, &p) && p.Status == http.StatusNotFound)
}

func TestMessagesWalksThePages(t *testing.T) {
	c, g := open(t, client.Options{},
		answer(http.StatusOK, `{"messages":[{"id":"1"},{"id":"2"}],"next":"c1"}`),
		answer(http.StatusOK, `{"messages":[{"id":"3"}],"next":"c2"}`),
		answer(http.StatusOK, `{"messages":[]}`))
	var ids []string
	q := client.Query{App: "crm", States: []string{"rejected", "unknown"}, Kinds: []string{"push"}, ErrCode: 43101, PossibleDuplicate: true,
		From: time.Date(2026, 11, 30, 0, 0, 0, 0, time.FixedZone("", 8*3600)), PageSize: 2}
	for m, err := range c.Messages(t.Context(), q) {
		require.NoError(t, err)
		ids = append(ids, m.ID)
	}
	require.Equal(t, []string{"1", "2", "3"}, ids)
	asked, _ := g.requests()
	first := asked[0].URL.Query()
	require.Equal(t, "2026-11-30T00:00:00+08:00", first.Get("from"))
	require.Equal(t, "rejected,unknown", first.Get("state"))
	require.Equal(t, "true", first.Get("possible_duplicate"))
	require.Equal(t, "2", first.Get("limit"))
	require.Equal(t, "c2", asked[2].URL.Query().Get("cursor"))
	require.Equal(t, "crm", asked[2].URL.Query().Get("app"))

	c, _ = open(t, client.Options{}, answer(http.StatusBadRequest, `{"status":400,"field":"state"}`))
	walked := 0
	for m, err := range c.Messages(t.Context(), client.Query{}) {
		require.Error(t, err)
		require.Empty(t, m.ID)
		walked++
	}
	require.Equal(t, 1, walked)
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	for _, base := range []string{"", "gate.example.com", "ftp://x", "https://u:p@x", "https://x?y=1"} {
		_, err := client.New(base, key, client.Options{})
		require.ErrorContains(t, err, "scheme and host", "%q", base)
	}
	_, err := client.New("https://x", "", client.Options{})
	require.ErrorContains(t, err, "apps add")
	_, err = client.New("https://x", "a b", client.Options{})
	require.ErrorContains(t, err, "apps add")
}
