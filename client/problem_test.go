package client_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/client"
)

// script answers with what a test has put down, and keeps what it was sent.
type script struct {
	mu      sync.Mutex
	answers []func(http.ResponseWriter)
	bodies  []map[string]any
	keys    []string
}

func (g *script) RoundTrip(r *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	_ = json.Unmarshal(b, &m)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bodies, g.keys = append(g.bodies, m), append(g.keys, r.Header.Get("Idempotency-Key"))
	w := httptest.NewRecorder()
	next := g.answers[0]
	if len(g.answers) > 1 {
		g.answers = g.answers[1:]
	}
	next(w)
	return w.Result(), nil
}

func refuse(status int, body string, headers ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func accepts(w http.ResponseWriter) {
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"id":"15770000000000000000003","state":"queued"}`)
}

func over(t *testing.T, g *script) *client.Client {
	c, err := client.New("http://gate.example", "tg_x", client.Options{HTTP: &http.Client{Transport: g}, Tries: 3})
	require.NoError(t, err)
	return c
}

// A limit of the paper's kind is a 403 that passes; the client waits as long as it is
// told, and its repeats carry one key.
func TestOverALimitIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &script{answers: []func(http.ResponseWriter){
			refuse(403, `{"errcode":"over_limit","scope":"app","limit":20,"period":"1s","used":20,"retry_after_ms":700}`, "Retry-After", "1"),
			refuse(503, `{"errcode":"unavailable"}`, "Retry-After", "5"),
			accepts,
		}}
		begin := time.Now()
		a, err := over(t, g).Push(t.Context(), client.Push{Account: "shop", OpenID: "o1", Kind: client.Custom, Content: client.Text("hi"),
			NotBefore: begin.Add(time.Hour), CallbackURL: "https://crm.example/h", Class: client.PreferLoss})
		require.NoError(t, err)
		require.Equal(t, "15770000000000000000003", a.ID)
		require.GreaterOrEqual(t, time.Since(begin), 5700*time.Millisecond)
		require.Less(t, time.Since(begin), 7*time.Second)
		require.Len(t, g.keys, 3)
		require.NotEmpty(t, g.keys[0])
		require.Equal(t, []string{g.keys[0], g.keys[0]}, g.keys[1:])
		m := g.bodies[0]
		require.Equal(t, map[string]any{"type": "text", "text": "hi"}, m["content"])
		require.NotContains(t, m, "data")
		require.NotContains(t, m, "template_id")
		require.NotEmpty(t, m["not_before"])
	})
}

func TestRefusalsAreTyped(t *testing.T) {
	for errcode, c := range map[string]struct {
		status int
		is     error
	}{
		"invalid": {400, client.ErrInvalid}, "unauthenticated": {401, client.ErrUnauthenticated}, "denied": {403, client.ErrDenied},
		"not_found": {404, client.ErrNotFound}, "conflict": {409, client.ErrConflict}, "unfit": {422, client.ErrUnfit},
	} {
		g := &script{answers: []func(http.ResponseWriter){refuse(c.status, `{"errcode":"`+errcode+`","field":"data.thing1","pointer":"/data/thing1"}`)}}
		_, err := over(t, g).Push(t.Context(), client.Push{})
		require.ErrorIs(t, err, c.is)
		require.Len(t, g.keys, 1, "what will not change is not repeated")
		var p *client.Problem
		require.ErrorAs(t, err, &p)
		require.Equal(t, "/data/thing1", p.Pointer)
		require.False(t, p.Temporary())
		require.NotErrorIs(t, err, client.ErrOverLimit)
	}
}
