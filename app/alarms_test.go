package app

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/redis/redismem"
)

// An alarm of a role reaches the webhook of its configuration, also when the
// role stops at once, and can be asked at the operations listener.
func TestAlarmsReachTheWebhookOfTheConfiguration(t *testing.T) {
	bodies := make(chan []byte, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies <- b
	}))
	t.Cleanup(receiver.Close)
	cache, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(cache.Close)
	c := DefaultConfig()
	c.Redis.Addrs = []string{cache.Addr()}
	c.Alarms.Webhooks = []alarm.WebhookConfig{{Name: "ops", URL: receiver.URL, Allow: []string{"127.0.0.1"}}}
	e := newEngines(c, zap.NewNop())
	require.NoError(t, e.openAlarms(RoleProxy))

	e.Alarms().Fire(alarm.Alarm{Name: "queue_faulty", Subject: "card callbacks/3", Severity: alarm.Critical, Text: "no progress"})
	rec := httptest.NewRecorder()
	ops, err := e.newOps()
	require.NoError(t, err)
	ops.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/ops/v1/alarms", http.NoBody))
	require.Equal(t, http.StatusOK, rec.Code)
	require.Contains(t, rec.Body.String(), `"queue_faulty"`)
	require.Contains(t, rec.Body.String(), e.node)

	require.NoError(t, e.stack.Stop(t.Context()))
	require.Len(t, bodies, 1)
	var m map[string]any
	require.NoError(t, json.Unmarshal(<-bodies, &m))
	require.Equal(t, "firing", m["status"])
	require.Equal(t, e.node, m["node"])
	require.Equal(t, "deployments/prometheus/RUNBOOK.md#queue_faulty", m["runbook"])
}

func TestAWrongWebhookKeepsARoleFromStarting(t *testing.T) {
	c := DefaultConfig()
	c.Alarms.Webhooks = []alarm.WebhookConfig{{Name: "ops", URL: "http://10.0.0.1/hush"}}
	for _, err := range []error{c.Validate(RoleRobot), newEngines(c, zap.NewNop()).openAlarms(RoleRobot)} {
		require.ErrorContains(t, err, "alarms.webhooks[0] (ops): url: 10.0.0.1: the address is not public")
		require.NotContains(t, err.Error(), "hush")
	}
}
