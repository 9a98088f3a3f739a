package receipts_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/api"
	"tidegate/pkg/api/openapi/openapitest"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
)

// Every answer that the description has for messages occurs, and none that it has
// not.
func TestTheDescriptionIsWhatMessagesAnswer(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t))
	ctx := t.Context()
	book := openapitest.Open(t)
	h := book.Around(w.room.Handler())
	get := func(want int, app, path string) {
		t.Helper()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		if app != "" {
			r.Header.Set("Authorization", "Bearer "+w.keys[app])
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		require.Equal(t, want, rec.Code, rec.Body.String())
	}
	p := w.push(1)
	w.queue(p)
	w.outcome(p, wire.Dead)
	w.settled(1, wire.Dead)
	w.key("blind", []string{api.PushesWrite}, "bank")

	one := "/v1/messages/" + p.ID
	for _, path := range []string{"/v1/messages", one} {
		get(200, "card", path)
		get(401, "", path)
		get(403, "blind", path)
		get(400, "card", path+"?colour=red")
	}
	get(200, "card", "/v1/messages?format=csv")
	get(200, "card", "/v1/messages?format=ndjson")
	get(403, "card", "/v1/messages?app=till")
	get(400, "card", "/v1/messages/12")
	other, _ := idOf(99)
	get(404, "card", "/v1/messages/"+other)
	get(404, "till", one)
	// A database that does not answer in time is what a request meets whose time is up.
	late, cancel := context.WithCancel(t.Context())
	cancel()
	ctx = late
	get(503, "card", "/v1/messages")
	get(503, "card", one)
	require.Empty(t, book.Unseen("receipts"), "these are described and nothing brings them")
}
