package app

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/telemetry"
)

// What a part shows of one follower is nothing for a key that looks after queues.
func TestWhatConcernsOneFollowerAsksForAScopeOfItsOwn(t *testing.T) {
	ops := telemetry.NewOps(prometheus.NewRegistry())
	shown := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	p := &part{role: RoleRobot, personal: map[string]http.Handler{"GET /ops/v1/users/{account}/{openid}/actions": shown}}
	p.register(ops)
	var keys []telemetry.OpsKey
	text := map[string]string{}
	for _, scope := range telemetry.OpsScopes() {
		var hash string
		text[scope], hash = telemetry.NewOpsKey()
		keys = append(keys, telemetry.OpsKey{Name: scope, SHA256: hash, Scopes: []string{scope}})
	}
	require.NoError(t, ops.SetKeys(keys))
	for scope, key := range text {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ops/v1/users/card/oUser-1/actions", http.NoBody)
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		ops.ServeHTTP(w, r)
		want := http.StatusForbidden
		if scope == telemetry.ScopePersonal {
			want = http.StatusNoContent
		}
		require.Equal(t, want, w.Code, scope)
	}
}
