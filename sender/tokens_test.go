package sender_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/api"
	"tidegate/pkg/wechat/wechatsim"
)

// Another system gets the account's token by a key of its own, and WeChat takes it.
// S50, S53: the token is in no log line and no label.
func TestTokenForAnotherSystem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	r := w.start(func(s *setup) { s.now = func() time.Time { return now } })
	door := httptest.NewServer(r.Handler())
	t.Cleanup(door.Close)
	type answer struct {
		StatusCode int
		Header     http.Header
	}
	get := func(key, name string) (answer, map[string]any) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, door.URL+"/v1/accounts/"+name+"/token", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		var body map[string]any
		require.NoError(t, json.Unmarshal(text, &body), "%s", text)
		return answer{resp.StatusCode, resp.Header}, body
	}
	keyOf := func(app string, scopes, accounts []string) string {
		_, key, err := r.keys.Add(t.Context(), app, scopes, accounts)
		require.NoError(t, err)
		return key
	}
	legacy := keyOf("legacy", []string{api.TokensRead}, []string{account})
	resp, body := get(legacy, account)
	require.Equal(t, 200, resp.StatusCode, "%v", body)
	require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	token, _ := body["access_token"].(string)
	require.NotEmpty(t, token)
	require.InDelta(t, 7200, body["expires_in"], 10)
	require.Len(t, w.arrivals(wechatsim.PathStableToken), 1)

	resp, _ = get(keyOf("crm", api.DefaultScopes(), []string{api.AllAccounts}), account)
	require.Equal(t, 403, resp.StatusCode, "a key that pushes does not get the token")
	resp, _ = get(legacy, bank)
	require.Equal(t, 403, resp.StatusCode)
	resp, _ = get("tg_no key", account)
	require.Equal(t, 401, resp.StatusCode)
	all := keyOf("all", []string{api.TokensRead}, []string{api.AllAccounts})
	resp, body = get(all, "stranger")
	require.Equal(t, 404, resp.StatusCode)
	require.Equal(t, "not_found", body["errcode"])

	for range 9 {
		resp, body = get(legacy, account)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, token, body["access_token"])
	}
	resp, body = get(legacy, account)
	require.Equal(t, 429, resp.StatusCode)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	require.Contains(t, body["detail"], "expires_in")
	resp, _ = get(all, account)
	require.Equal(t, 200, resp.StatusCode, "each key has its own count")
	require.Len(t, w.arrivals(wechatsim.PathStableToken), 1, "whoever asks, WeChat is asked once")

	given := r.log.FilterMessage("an access token was given").All()
	require.Len(t, given, 11)
	require.Equal(t, "legacy", given[0].ContextMap()["app"])
	for _, e := range r.log.All() {
		line, err := json.Marshal(e.ContextMap())
		require.NoError(t, err)
		require.NotContains(t, e.Message+string(line), token)
		require.NotContains(t, e.Message+string(line), secret)
	}
	families, err := r.reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		require.NotContains(t, f.String(), token)
		require.NotContains(t, f.String(), "stranger")
	}
}
