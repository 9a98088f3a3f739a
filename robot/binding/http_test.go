package binding_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tidegate/pkg/api"
	"tidegate/pkg/sqldb/sqldbtest"
)

// TestPublicAPI goes through the door that a business system has.
func TestPublicAPI(t *testing.T) {
	w := newWorld(t)
	b := w.node()
	db := sqldbtest.OpenSQLite(t)
	require.NoError(t, api.Migrate(t.Context(), db))
	keys := api.NewBook(db, nil)
	_, writer, err := keys.Add(t.Context(), "crm", []string{api.BindingsRead, api.BindingsWrite}, []string{account})
	require.NoError(t, err)
	_, reader, err := keys.Add(t.Context(), "web", []string{api.BindingsRead}, []string{account})
	require.NoError(t, err)
	m := http.NewServeMux()
	core, logs := observer.New(zap.InfoLevel)
	b.Mount(m, api.NewKeys(keys), zap.New(core))
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)

	do := func(key, method, path, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Idempotency-Key", "k1")
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(text)
	}
	const path, all = "/v1/accounts/card/bindings/oUser-1", "/v1/accounts/card/bindings"
	for _, c := range []struct {
		key, method, path, body string
		status                  int
		holds                   string
	}{
		{reader, "GET", path, "", 404, `"errcode":"not_found"`},
		{"tg_wrong", "GET", path, "", 401, "unauthenticated"},
		{reader, "PUT", path, `{"user":"77"}`, 403, "lacks the scope bindings:write"},
		{writer, "PUT", "/v1/accounts/other/bindings/oUser-1", `{"user":"77"}`, 403, "not for the account"},
		{writer, "PUT", path, `{"usr":"77"}`, 400, "unknown field usr"},
		{writer, "PUT", path, `{"user":"a/b"}`, 400, `"field":"user"`},
		{writer, "PUT", all + "/bad%20id", `{"user":"77"}`, 400, "this is no openid"},
		{writer, "PUT", path, `{"user":"77"}`, 200, `{"account":"card","openid":"oUser-1","user":"77"}`},
		{reader, "GET", path, "", 200, `"user":"77"`},
		{reader, "GET", path + "?x=1", "", 400, "unknown parameter"},
		{reader, "GET", all + "?user=77", "", 200, `"openids":["oUser-1"]`},
		{reader, "GET", all + "?user=78", "", 200, `"openids":[]`},
		{reader, "GET", all, "", 400, "name the user"},
		{reader, "POST", path, "", 405, "method_not_allowed"},
		{writer, "DELETE", path, "", 204, ""},
		{reader, "GET", path, "", 404, "not bound"},
	} {
		status, text := do(c.key, c.method, c.path, c.body)
		require.Equal(t, c.status, status, "%s %s: %s", c.method, c.path, text)
		require.Contains(t, text, c.holds)
	}
	require.Equal(t, []string{"k1", "k1"}, w.bank.keys, "the caller's key reaches the authority")
	require.Zero(t, logs.Len())

	// The bank refuses our credentials: that is not about the caller's key.
	for n, code := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		w.bank.set(func() { w.bank.fail = code })
		status, text := do(writer, "PUT", path, `{"user":"77"}`)
		require.Equal(t, 500, status, text)
		require.Contains(t, text, "tell the operator")
		require.Equal(t, n+1, logs.Len(), "once each")
		line := logs.All()[n]
		require.Equal(t, zap.WarnLevel, line.Level)
		require.NotContains(t, fmt.Sprint(line.Message, line.ContextMap()), "oUser-1")
	}
	w.bank.set(func() { w.bank.fail = 0 })

	// Redis does not answer: the bank has done it, and the others cannot be told.
	if w.server != nil {
		w.server.Close()
		status, text := do(writer, "DELETE", path, "")
		require.Equal(t, 503, status, text)
		require.Contains(t, text, `"errcode":"ambiguous"`)
		require.Contains(t, text, "has changed the binding, but other robots could not be told and may use the old one for up to 10m0s: ask again")
		require.Contains(t, text, "until it succeeds")
	}
	http.DefaultClient.CloseIdleConnections()
}
