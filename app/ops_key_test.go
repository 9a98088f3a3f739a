package app

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/telemetry"
)

// S37: an operations listener that others can reach asks for a key, or somebody
// has said that it need not.
func TestS37AnOpenOperationsListenerIsRefused(t *testing.T) {
	_, hash := telemetry.NewOpsKey()
	key := []telemetry.OpsKey{{Name: "prometheus", SHA256: hash, Scopes: []string{"metrics"}}}
	for _, addr := range []string{"127.0.0.1:9100", "[::1]:9100", "localhost:9100", "127.9.9.9:0"} {
		c := DefaultConfig().Ops
		c.Addr = addr
		require.NoError(t, c.validate(), addr)
	}
	for _, addr := range []string{"0.0.0.0:9100", ":9100", "[::]:9100", "10.0.0.5:9100", "ops.internal:9100", "localhost.evil.example:9100"} {
		c := DefaultConfig().Ops
		c.Addr = addr
		require.ErrorContains(t, c.validate(), "tidegate ops-key", addr)
		c.Keys = key
		require.NoError(t, c.validate(), addr)
		c.Keys, c.AllowOpen = nil, true
		require.NoError(t, c.validate(), addr)
		c.Keys = []telemetry.OpsKey{{Name: "x"}}
		require.ErrorContains(t, c.validate(), "keys[0] (x)")
	}
}

func TestKeysChangeWhileTheRoleRuns(t *testing.T) {
	one, hashOne := telemetry.NewOpsKey()
	two, hashTwo := telemetry.NewOpsKey()
	with := func(hash string) OpsConfig {
		return OpsConfig{Keys: []telemetry.OpsKey{{Name: "a", SHA256: hash, Scopes: []string{"metrics"}}}}
	}
	c := DefaultConfig()
	c.Ops.Keys = with(hashOne).Keys
	ops, err := newEngines(c, zap.NewNop()).newOps()
	require.NoError(t, err)
	status := func(key string) int {
		rec := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Authorization", "Bearer "+key)
		ops.ServeHTTP(rec, r)
		return rec.Code
	}
	require.Equal(t, []int{200, 401}, []int{status(one), status(two)})
	require.NoError(t, changeKeys(ops, c.Ops, with(hashTwo)))
	require.Equal(t, []int{401, 200}, []int{status(one), status(two)}, "a lost key is out at once")
	require.ErrorContains(t, changeKeys(ops, c.Ops, OpsConfig{}), "takes a restart")
	require.Equal(t, []int{401, 200}, []int{status(one), status(two)})
}

func TestOpsKeyCommand(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, NewOpsKey("prometheus", []string{"metrics", "read"}, &out))
	hash := regexp.MustCompile(`sha256: ([0-9a-f]{64})\n`).FindSubmatch(out.Bytes())
	key := regexp.MustCompile(`\n  (tgo_\S{43})\n`).FindSubmatch(out.Bytes())
	require.NotNil(t, hash, out.String())
	require.NotNil(t, key, out.String())
	c := DefaultConfig()
	c.Ops.Keys = []telemetry.OpsKey{{Name: "prometheus", SHA256: string(hash[1]), Scopes: []string{"metrics", "read"}}}
	ops, err := newEngines(c, zap.NewNop()).newOps()
	require.NoError(t, err)
	srv := httptest.NewServer(ops)
	defer srv.Close()
	for text, want := range map[string]int{"": 401, string(key[1]): 200} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/ops/v1/alarms", http.NoBody)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+text)
		resp, err := srv.Client().Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, resp.StatusCode)
	}
	require.ErrorIs(t, NewOpsKey("A B", []string{"read"}, &out), ErrUsage)
	require.ErrorIs(t, NewOpsKey("a", []string{"all"}, &out), ErrUsage)
}
