package sender_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/api"
	"tidegate/pkg/api/openapi"
	"tidegate/pkg/api/openapi/openapitest"
	"tidegate/pkg/kafka"
	"tidegate/pkg/slice"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/sender"
)

// shut is a queue that can be away.
type shut struct {
	sender.Publisher
	away atomic.Bool
}

func (s *shut) Publish(ctx context.Context, r kafka.Record) (kafka.Record, error) {
	if s.away.Load() {
		return kafka.Record{}, errors.New("the queue is away")
	}
	return s.Publisher.Publish(ctx, r)
}

// caller talks to the push API as a business system does.
type caller struct {
	t    *testing.T
	base string
}

func (c caller) send(key, method, path, body string, headers ...string) (int, http.Header, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, bytes.NewReader([]byte(body)))
	require.NoError(c.t, err)
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(c.t, err)
	b, err := io.ReadAll(res.Body)
	require.NoError(c.t, err)
	require.NoError(c.t, res.Body.Close())
	return res.StatusCode, res.Header, string(b)
}

// withTemplates gives the simulated account two templates.
func withTemplates(c *wechatsim.Config) {
	c.Accounts[0].Templates = []wechatsim.Template{
		{ID: "T-bill", Title: "账单", Content: "{{thing1.DATA}} {{amount2.DATA}}"},
		{ID: "S-due", Title: "到期", Content: "{{thing1.DATA}}", Kind: "subscribe"},
	}
}

func pushJSON(t *testing.T, openid string, change map[string]any) string {
	m := map[string]any{"account": account, "openid": openid, "template_id": "T-bill", "data": map[string]any{"thing1": "电费", "amount2": "12.50"}}
	for k, v := range change {
		m[k] = v
	}
	b, err := json.Marshal(m)
	require.NoError(t, err)
	return string(b)
}

// Every answer that the description has occurs, and none that it has not. The
// templates come from the simulated WeChat, the limits from Redis.
func TestTheDescriptionIsWhatTheHandlersDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withTemplates)
	book := openapitest.Open(t)
	queue := &shut{Publisher: w.producer}
	rooms := map[int]*room{}
	for _, status := range []int{403, 429} {
		rooms[status] = w.start(func(s *setup) {
			s.publisher = queue
			s.cfg.Intake.Limits.Status = status
			s.cfg.Intake.Limits.User = []slice.Rule{{Limit: 3, Period: time.Hour}}
			s.cfg.Intake.MaxInFlight = 1
		})
	}
	r := rooms[403]
	s := httptest.NewServer(book.Around(r.Handler()))
	t.Cleanup(s.Close)
	modern := httptest.NewServer(book.Around(rooms[429].Handler()))
	t.Cleanup(modern.Close)
	c := caller{t, s.URL}
	_, key, err := r.keys.Add(t.Context(), "crm", []string{api.PushesWrite}, []string{account})
	require.NoError(t, err)
	_, reader, err := r.keys.Add(t.Context(), "reader", []string{api.MessagesRead}, []string{account})
	require.NoError(t, err)
	post := func(want int, key, path, body string, headers ...string) string {
		t.Helper()
		status, _, answer := c.send(key, http.MethodPost, path, body, headers...)
		require.Equal(t, want, status, answer)
		return answer
	}
	user := func(i int) string { return w.followers[i] }
	good := pushJSON(t, user(0), nil)

	post(202, key, "/v1/pushes", good)
	post(202, key, "/v1/pushes", pushJSON(t, user(1), map[string]any{"kind": "subscription", "template_id": "S-due", "data": map[string]any{"thing1": "x"}}))
	post(202, key, "/v1/pushes", pushJSON(t, user(1), nil), "Idempotency-Key", "k")
	for _, path := range []string{"/v1/pushes", "/v1/pushes:batch"} {
		post(400, key, path, `{"openid": 1}`)
		post(401, "", path, good)
		post(401, "tg_wrong", path, good)
		post(403, reader, path, good)
		post(413, key, path, `{"pushes": ["`+strings.Repeat("x", 5<<20)+`"]}`)
		post(415, key, path, good, "Content-Type", "text/plain")
	}
	post(409, key, "/v1/pushes", pushJSON(t, user(1), map[string]any{"reference": "another"}), "Idempotency-Key", "k")
	require.Contains(t, post(422, key, "/v1/pushes", pushJSON(t, user(0), map[string]any{"template_id": "T-gone"})), "T-gone")
	require.Contains(t, post(422, key, "/v1/pushes", pushJSON(t, user(0), map[string]any{"data": map[string]any{"thing1": "x"}})), "/data/amount2")
	post(200, key, "/v1/pushes:batch", fmt.Sprintf(`{"pushes": [%s, {"account": "nobody"}]}`, good))
	post(202, key, "/v1/pushes", good)
	status, h, answer := c.send(key, http.MethodPost, "/v1/pushes", good)
	require.Equal(t, 403, status)
	require.Contains(t, answer, `"scope":"user"`)
	require.NotEmpty(t, h.Get("Retry-After"))
	require.Equal(t, "0", h.Get("RateLimit-Remaining"))
	at429 := caller{t, modern.URL}
	status, _, answer = at429.send(key, http.MethodPost, "/v1/pushes", good)
	require.Equal(t, 429, status, "the limit holds over both nodes: %s", answer)
	queue.away.Store(true)
	post(503, key, "/v1/pushes", pushJSON(t, user(2), nil))
	queue.away.Store(false)

	status, _, answer = c.send("", http.MethodGet, "/v1/openapi.json", "")
	require.Equal(t, 200, status)
	require.JSONEq(t, string(openapi.Document()), answer)
	busy(t, book, r, key, good)
	tokens(t, w, r, c)
	require.Empty(t, book.Unseen("sender"), "these are described and nothing brings them")
}

// tokens asks for access tokens in every way.
func tokens(t *testing.T, w *world, r *room, c caller) {
	accounts := []sender.Account{{Name: account, AppID: appID, Secret: secret}, {Name: "late", AppID: bankID, Secret: secret}, {Name: "wrong", AppID: bankID, Secret: "no-secret-of-it"}}
	require.NoError(t, r.SetAccounts(accounts))
	_, key, err := r.keys.Add(t.Context(), "legacy", []string{api.TokensRead}, []string{api.AllAccounts})
	require.NoError(t, err)
	_, other, err := r.keys.Add(t.Context(), "other", []string{api.PushesWrite}, []string{api.AllAccounts})
	require.NoError(t, err)
	get := func(want int, key, name string) {
		t.Helper()
		status, _, answer := c.send(key, http.MethodGet, "/v1/accounts/"+name+"/token", "")
		require.Equal(t, want, status, answer)
	}
	get(200, key, account)
	get(401, "", account)
	get(403, other, account)
	get(404, key, "nobody")
	get(409, key, "wrong")
	require.NoError(t, w.sim.SetFaults(wechatsim.Fault{Do: wechatsim.FaultErrcode, Errcode: -1, API: wechatsim.PathStableToken, Count: 1000}))
	get(503, key, "late")
	status, _, _ := c.send(key, http.MethodGet, "/v1/accounts/"+account+"/token?key=x", "")
	require.Equal(t, 400, status)
	for range 10 { // what it may ask at once
		status, _, _ = c.send(key, http.MethodGet, "/v1/accounts/"+account+"/token", "")
	}
	require.Equal(t, 429, status)
}

// busy fills the one place for batches with a body that does not come.
func busy(t *testing.T, book *openapitest.Book, r *room, key, good string) {
	read := make(chan struct{})
	body, rest := io.Pipe()
	first := make(chan struct{})
	go func() {
		defer close(first)
		req := httptest.NewRequest(http.MethodPost, "/v1/pushes:batch", io.TeeReader(body, signal{read}))
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "application/json")
		r.Handler().ServeHTTP(httptest.NewRecorder(), req)
	}()
	_, err := rest.Write([]byte("{"))
	require.NoError(t, err)
	<-read
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodPost, "/v1/pushes:batch", strings.NewReader(good))
	req.Header.Set("Authorization", "Bearer "+key)
	book.Around(r.Handler()).ServeHTTP(rec, req)
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
	require.NoError(t, rest.Close())
	<-first
}

// signal tells that something was read.
type signal struct{ read chan struct{} }

func (s signal) Write(p []byte) (int, error) {
	close(s.read)
	return len(p), nil
}
