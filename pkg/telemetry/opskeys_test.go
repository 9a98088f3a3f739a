package telemetry_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/telemetry"
)

func ask(o *telemetry.Ops, method, path, key string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, nil)
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	o.ServeHTTP(w, r)
	return w
}

func refusals(t *testing.T, reg *prometheus.Registry) (n float64) {
	all, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range all {
		if f.GetName() == "tidegate_ops_refused_total" {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// S37, D14: each endpoint asks for its own scope, and nothing for less.
func TestS37KeysOfTheOperationsListener(t *testing.T) {
	reg := telemetry.NewRegistry()
	o := telemetry.NewOps(reg)
	o.Handle("/ops/v1/things", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	o.HandleSteering("PUT /ops/v1/limits/{subject}", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, telemetry.ScopeSteer, telemetry.OpsKeyName(r.Context()), "the handler learns whose key it was")
		w.WriteHeader(http.StatusNoContent)
	}))
	o.HandlePersonal("/ops/v1/users/{openid}/actions", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	o.AddReadiness("queue", func(context.Context) error { return errors.New("kafka-1.internal does not answer") })
	texts := map[string]string{"": "", "wrong": "tgo_wrong"}
	var keys []telemetry.OpsKey
	for _, scope := range telemetry.OpsScopes() {
		text, hash := telemetry.NewOpsKey()
		texts[scope] = text
		keys = append(keys, telemetry.OpsKey{Name: scope, SHA256: hash, Scopes: []string{scope}})
	}
	require.NoError(t, o.SetKeys(keys))
	for _, c := range []struct{ method, path, scope string }{
		{"GET", "/metrics", telemetry.ScopeMetrics},
		{"GET", "/ops/v1/things", telemetry.ScopeRead},
		{"HEAD", "/ops/v1/things", telemetry.ScopeRead},
		{"POST", "/ops/v1/things", telemetry.ScopeWrite},
		{"DELETE", "/ops/v1/things", telemetry.ScopeWrite},
		{"PUT", "/ops/v1/limits/x", telemetry.ScopeSteer},
		{"GET", "/ops/v1/users/oX/actions", telemetry.ScopePersonal},
		{"DELETE", "/ops/v1/users/oX/actions", telemetry.ScopePersonal},
		{"GET", "/debug/pprof/", telemetry.ScopeDebug},
		{"GET", "/debug/pprof/heap", telemetry.ScopeDebug},
		{"GET", "/debug/pprof/symbol", telemetry.ScopeDebug},
	} {
		for name, text := range texts {
			before := refusals(t, reg)
			w := ask(o, c.method, c.path, text)
			switch {
			case name == c.scope:
				require.Less(t, w.Code, 300, "%v with %s", c, name)
				require.Equal(t, before, refusals(t, reg))
				continue
			case name == "" || name == "wrong":
				require.Equal(t, http.StatusUnauthorized, w.Code, "%v with %s", c, name)
				require.NotEmpty(t, w.Header().Get("WWW-Authenticate"))
			default:
				require.Equal(t, http.StatusForbidden, w.Code, "%v with %s", c, name)
			}
			require.Equal(t, before+1, refusals(t, reg), "%v with %s", c, name)
			require.NotContains(t, w.Body.String(), "goroutine")
			require.Contains(t, w.Body.String(), "'tidegate ops-key NAME --scope "+c.scope+"' makes", "whoever is refused learns how to get in")
		}
	}
	require.Equal(t, 200, ask(o, "GET", "/healthz", "").Code)
	w := ask(o, "GET", "/readyz", "")
	require.Equal(t, 503, w.Code, "a load balancer has no key")
	require.Equal(t, "not ready\n", w.Body.String(), "and needs no names of ours")
	require.Contains(t, ask(o, "GET", "/readyz", texts[telemetry.ScopeMetrics]).Body.String(), "kafka-1.internal")
	for _, odd := range []string{"Bearer  " + texts["read"], "bearer " + texts["read"], "Basic " + texts["read"], texts["read"], "Bearer " + keys[1].SHA256, "Bearer " + texts["read"] + " "} {
		r := httptest.NewRequest("GET", "/ops/v1/things", nil)
		r.Header.Set("Authorization", odd)
		w := httptest.NewRecorder()
		o.ServeHTTP(w, r)
		require.Equal(t, 401, w.Code, odd[:7])
	}
	for _, path := range []string{"//debug/pprof/heap", "/x/../debug/pprof/heap", "/debug%2fpprof/heap", "/debu%67/pprof/heap"} {
		require.NotEqual(t, 200, ask(o, "GET", path, "").Code, path)
	}
	require.NoError(t, o.SetKeys(keys[:1]))
	require.Equal(t, 401, ask(o, "GET", "/ops/v1/things", texts[telemetry.ScopeRead]).Code, "a key that was taken out is out")
}

// A page in a browser on the same machine can send requests to a listener that
// is open; it must not change anything by them.
func TestAnOpenListenerTakesNoChangesFromPages(t *testing.T) {
	o := telemetry.NewOps(telemetry.NewRegistry())
	o.HandleSteering("/ops/v1/limits/{subject}", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Contains(t, telemetry.OpsKeyName(r.Context()), "open")
		w.WriteHeader(http.StatusNoContent)
	}))
	send := func(method string, head ...string) int {
		r := httptest.NewRequest(method, "http://127.0.0.1:9100/ops/v1/limits/x", nil)
		if len(head) > 0 {
			r.Header.Set(head[0], head[1])
		}
		w := httptest.NewRecorder()
		o.ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, http.StatusNoContent, send("PUT"))
	require.Equal(t, http.StatusNoContent, send("GET", "Origin", "https://evil.example"), "reading is the browser's to refuse")
	for _, head := range [][]string{{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "cross-site"}} {
		require.Equal(t, http.StatusForbidden, send("PUT", head...))
		require.Equal(t, http.StatusForbidden, send("DELETE", head...))
	}
	text, hash := telemetry.NewOpsKey()
	require.NoError(t, o.SetKeys([]telemetry.OpsKey{{Name: "a", SHA256: hash, Scopes: []string{"steer"}}}))
	require.Equal(t, http.StatusUnauthorized, send("PUT", "Origin", "https://evil.example"), "with keys a page has none")
	require.NotEmpty(t, text)
}

// A page whose name was led to the listener's address (DNS rebinding) has the
// listener's origin for the browser, and may read; only its Host tells.
func TestAnOpenListenerAnswersToNoForeignName(t *testing.T) {
	reg := telemetry.NewRegistry()
	o := telemetry.NewOps(reg)
	o.Handle("GET /ops/v1/things", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	o.AddReadiness("queue", func(context.Context) error { return errors.New("kafka-1.internal does not answer") })
	send := func(path, host, key string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.Host = host
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		o.ServeHTTP(w, r)
		return w
	}
	foreign := []string{"evil.example", "evil.example:9100", "localhost.evil.example:9100", "127.0.0.1.evil.example", "127.1", "[evil]", ""}
	for _, host := range foreign {
		for _, path := range []string{"/ops/v1/things", "/metrics", "/debug/pprof/", "/debug/pprof/heap"} {
			before := refusals(t, reg)
			w := send(path, host, "")
			require.Equal(t, http.StatusForbidden, w.Code, "%s of %q", path, host)
			require.Contains(t, w.Body.String(), "'tidegate ops-key NAME", "it says how to get in by a name")
			require.Equal(t, before+1, refusals(t, reg))
		}
		require.Equal(t, 200, send("/healthz", host, "").Code)
		require.Equal(t, "not ready\n", send("/readyz", host, "").Body.String(), "a load balancer may ask by name, and learns no names of ours")
	}
	for _, host := range []string{"127.0.0.1", "127.0.0.1:9100", "10.2.3.4:9100", "[::1]:9100", "[::1]", "localhost", "LocalHost:9100"} {
		require.Equal(t, http.StatusNoContent, send("/ops/v1/things", host, "").Code, host)
		require.Contains(t, send("/readyz", host, "").Body.String(), "kafka-1.internal")
	}
	text, hash := telemetry.NewOpsKey()
	require.NoError(t, o.SetKeys([]telemetry.OpsKey{{Name: "a", SHA256: hash, Scopes: []string{"read"}}}))
	require.Equal(t, http.StatusNoContent, send("/ops/v1/things", "proxy-1.internal:9100", text).Code, "with keys every name is good")
}

func TestBadKeysSayWhatToDo(t *testing.T) {
	text, hash := telemetry.NewOpsKey()
	require.True(t, strings.HasPrefix(text, "tgo_"))
	require.Len(t, text, 47)
	good := telemetry.OpsKey{Name: "a", SHA256: hash, Scopes: []string{"read"}}
	with := func(f func(*telemetry.OpsKey)) []telemetry.OpsKey {
		k := good
		f(&k)
		return []telemetry.OpsKey{k}
	}
	for want, keys := range map[string][]telemetry.OpsKey{
		"keys[0]: name":          with(func(k *telemetry.OpsKey) { k.Name = "A B" }),
		"'tidegate ops-key a'":   with(func(k *telemetry.OpsKey) { k.SHA256 = text }),
		"keys[0] (a): no scopes": with(func(k *telemetry.OpsKey) { k.Scopes = nil }),
		`scope "all"`:            with(func(k *telemetry.OpsKey) { k.Scopes = []string{"read", "all"} }),
		"of another key":         {good, {Name: "b", SHA256: strings.ToUpper(hash), Scopes: []string{"read"}}},
	} {
		require.ErrorContains(t, telemetry.ValidateOpsKeys(keys), want)
		require.Error(t, telemetry.NewOps(telemetry.NewRegistry()).SetKeys(keys))
	}
	require.NoError(t, telemetry.ValidateOpsKeys([]telemetry.OpsKey{good}))
}
