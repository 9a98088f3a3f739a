package app_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/app"
	"tidegate/pkg/config"
)

func TestTheSampleOfTheGuard(t *testing.T) {
	c := app.DefaultGuardConfig()
	require.NoError(t, config.Load(&c, config.Source{File: filepath.Join(samples, "guard.yaml")}))
	require.NoError(t, c.Validate())
	d := app.DefaultGuardConfig()
	d.Proxy = c.Proxy
	d.Redis.Addrs, d.HTTP.TrustedProxies, d.Ops.TrustedProxies, d.Ops.Keys = c.Redis.Addrs, c.HTTP.TrustedProxies, c.Ops.TrustedProxies, c.Ops.Keys // empty lists
	require.Equal(t, d, c, "apart from its routes it states the defaults")
	require.Empty(t, c.Redis.Addrs)
	shown := keysOf(t, "guard")
	for _, k := range config.Keys(c) {
		if k != "ops.keys[].name" && k != "ops.keys[].sha256" && k != "ops.keys[].scopes" {
			require.Contains(t, shown, k)
		}
	}
}

// free is an address that nobody listens on.
func free(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	return ln.Addr().String()
}

func TestGuardCommand(t *testing.T) {
	var calls atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, calls.Add(1)) }))
	defer up.Close()
	web, ops := free(t), free(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- app.Guard(ctx, app.GuardOptions{
			Source:   app.Source{Set: map[string]string{"guard.threshold": "0", "guard.ttl": "1m", "ops.addr": ops, "log.level": "error"}},
			Upstream: up.URL, Addr: web, Share: []string{"/seats/{train}"},
		})
	}()
	get := func(url string) (body, how string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return "", ""
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(b), resp.Header.Get("X-Guard")
	}
	require.Eventually(t, func() bool { _, how := get("http://" + web + "/seats/7"); return how == "local" }, 10*time.Second, 10*time.Millisecond)
	body, how := get("http://" + web + "/seats/7")
	require.Equal(t, "1", body)
	require.Equal(t, "local", how)
	body, how = get("http://" + web + "/other")
	require.Equal(t, "2", body)
	require.Equal(t, "pass", how)
	body, _ = get("http://" + ops + "/ops/v1/guard/native")
	require.Contains(t, body, `"mode":"protect"`)
	require.Contains(t, body, `"shared":false`)
	body, _ = get("http://" + ops + "/metrics")
	require.Contains(t, body, `tidegate_guard_requests_total{backend="native",how="local"}`)
	stop()
	require.NoError(t, <-ended)

	err := app.Guard(t.Context(), app.GuardOptions{})
	require.ErrorIs(t, err, app.ErrUsage)
	require.ErrorContains(t, err, "proxy: upstream")
}
