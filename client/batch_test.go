package client_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/client"
)

// A batch keeps its keys over repeats, and tells each push what became of it.
func TestPushBatch(t *testing.T) {
	c, g := open(t, client.Options{},
		answer(http.StatusServiceUnavailable, `{"errcode": "unavailable"}`),
		answer(http.StatusOK, `{"accepted": 1, "refused": 1, "results": [{"id": "1", "state": "queued"}, {"problem": {"status": 400, "errcode": "invalid", "field": "openid", "detail": "give one"}}]}`),
	)
	until := time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)
	got, err := c.PushBatch(t.Context(), []client.Push{{Account: "shop", OpenID: "u", IdempotencyKey: "mine", ExpiresAt: until}, {Account: "shop"}})
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.NoError(t, got[0].Err)
	require.Equal(t, "1", got[0].ID)
	require.Equal(t, "mine", got[0].IdempotencyKey)
	var p *client.Problem
	require.ErrorAs(t, got[1].Err, &p)
	require.Equal(t, "openid", p.Field)
	require.NotEmpty(t, got[1].IdempotencyKey)

	asked, bodies := g.requests()
	require.Len(t, asked, 2)
	require.Equal(t, bodies[0], bodies[1], "the same keys")
	require.Equal(t, "/v1/pushes:batch", asked[0].URL.Path)
	var sent struct{ Pushes []map[string]any }
	require.NoError(t, json.Unmarshal([]byte(bodies[0]), &sent))
	require.Equal(t, "mine", sent.Pushes[0]["idempotency_key"])
	require.Equal(t, "2031-01-02T03:04:05Z", sent.Pushes[0]["expires_at"])
	require.Equal(t, got[1].IdempotencyKey, sent.Pushes[1]["idempotency_key"])

	c, _ = open(t, client.Options{}, answer(http.StatusOK, `{"results": []}`))
	_, err = c.PushBatch(t.Context(), []client.Push{{}})
	require.ErrorContains(t, err, "0 results for 1 pushes")
}
