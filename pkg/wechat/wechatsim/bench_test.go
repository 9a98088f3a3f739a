package wechatsim

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// BenchmarkLoad is what one simulator can push over real sockets in safe mode
// to a server that does nothing.
func BenchmarkLoad(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	cfg := testConfig(ModeSafe)
	cfg.Accounts[0].CallbackURL = server.URL
	cfg.Accounts[0].Followers = 200
	s, err := New(cfg, zap.NewNop())
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close()) }()
	b.ReportAllocs()
	b.ResetTimer()
	report, err := s.Load(b.Context(), LoadSpec{Count: b.N, Wants: -1})
	require.NoError(b, err)
	require.EqualValues(b, b.N, report.Acked)
	b.ReportMetric(float64(report.Acked)/report.Elapsed.Seconds(), "callbacks/s")
}
