package telemetry_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/telemetry"
)

func get(o *telemetry.Ops, path string) (int, string) {
	w := httptest.NewRecorder()
	o.ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1"+path, nil))
	return w.Code, w.Body.String()
}

func TestReadyNamesWhatIsMissing(t *testing.T) {
	o := telemetry.NewOps(telemetry.NewRegistry())
	code, body := get(o, "/readyz")
	require.Equal(t, 200, code)
	require.Equal(t, "ready\n", body)
	o.AddReadiness("queue", func(context.Context) error { return errors.New("no broker answers") })
	code, body = get(o, "/readyz")
	require.Equal(t, 503, code)
	require.Equal(t, "not ready: queue: no broker answers\n", body)
	code, _ = get(o, "/healthz")
	require.Equal(t, 200, code, "liveness is local only")
}

func TestMetricsAreServed(t *testing.T) {
	reg := telemetry.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "tidegate_test_total"})
	telemetry.Registerer(reg).MustRegister(c)
	c.Inc()
	_, body := get(telemetry.NewOps(reg), "/metrics")
	require.Contains(t, body, "tidegate_test_total 1")
	require.NotNil(t, telemetry.Registerer(nil))
}

func TestHashIsKeyedAndShort(t *testing.T) {
	a, b := telemetry.NewHasher([]byte("a")), telemetry.NewHasher([]byte("b"))
	require.Len(t, a.OpenID("oX"), 12)
	require.Equal(t, "40d55d4d2de4", a.OpenID("oX"), "the same key gives the same hash in every release")
	require.NotEqual(t, a.OpenID("oX"), b.OpenID("oX"))
	require.NotContains(t, a.OpenID("oX"), "oX")
}

func TestBadLogConfigSaysWhatToUse(t *testing.T) {
	_, err := telemetry.NewLogger(telemetry.LogConfig{Level: "loud", Format: "json"})
	require.ErrorContains(t, err, "use debug, info, warn or error")
	l, err := telemetry.NewLogger(telemetry.DefaultLogConfig())
	require.NoError(t, err)
	require.NotNil(t, l)
}
