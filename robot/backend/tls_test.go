package backend_test

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
)

func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `1`) }))
	t.Cleanup(s.Close)
	c := config(s.URL)
	cl, _ := client(t, c)
	_, err := cl.Call(t.Context(), post())
	require.ErrorContains(t, err, "check the certificate")
	require.Equal(t, fault.Final, fault.KindOf(err))

	c.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(c.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	cl, _ = client(t, c)
	answer, err := cl.Call(t.Context(), post())
	require.NoError(t, err)
	require.Equal(t, int64(1), answer)
	c.BaseURL = strings.Replace(c.BaseURL, "127.0.0.1", "localhost", 1)
	cl, _ = client(t, c)
	_, err = cl.Call(t.Context(), post())
	require.ErrorContains(t, err, "check the certificate", "the name is not in the certificate")
}

func TestOldTLSIsRefused(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `1`) }))
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	s.StartTLS()
	t.Cleanup(s.Close)
	c := config(s.URL)
	c.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(c.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	cl, _ := client(t, c)
	_, err := cl.Call(t.Context(), post())
	require.ErrorContains(t, err, "TLS 1.2")
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	cl, reg := client(t, config("http://"+l.Addr().String()))
	_, err = cl.Call(t.Context(), post())
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.ErrorContains(t, err, "cannot connect")
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader("# HELP tidegate_backend_retries_total Tries after the first one of a call.\n# TYPE tidegate_backend_retries_total counter\ntidegate_backend_retries_total{backend=\"core\"} 2\n"), "tidegate_backend_retries_total"))
}
