package outhttp_test

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/outhttp"
)

func TestS46AnAnswerIsCutAtItsSizeAndTime(t *testing.T) {
	var sent atomic.Int64
	chunk := bytes.Repeat([]byte("x"), 64<<10)
	for name, h := range map[string]http.HandlerFunc{
		"a gigabyte": func(w http.ResponseWriter, _ *http.Request) {
			for range 16 << 10 { // a gigabyte
				n, err := w.Write(chunk)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		},
		"never ends": func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"drips": func(w http.ResponseWriter, r *http.Request) {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				_, _ = w.Write([]byte("x"))
				_ = http.NewResponseController(w).Flush()
				select {
				case <-tick.C:
				case <-r.Context().Done():
					return
				}
			}
		},
		"10,000 headers": func(w http.ResponseWriter, _ *http.Request) {
			for i := range 10_000 {
				w.Header().Set(fmt.Sprintf("X-Header-%d", i), "value")
			}
		},
		"says nothing": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		s, seen := server(t, h)
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		c := client(t, outhttp.Options{Allow: []string{"127.0.0.1"}, Timeout: 300 * time.Millisecond})
		began := time.Now()
		_, err := c.Do(t.Context(), outhttp.Request{URL: s.URL})
		require.Equal(t, fault.Unavailable, fault.KindOf(err), name)
		require.Less(t, time.Since(began), 5*time.Second, name)
		require.EqualValues(t, 1, seen.Load(), name)
	}
	require.Less(t, sent.Load(), int64(64<<20), "the gigabyte must not have been read")
}

func TestS46ABombStaysSmall(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 128 {
		_, err := z.Write(make([]byte, 64<<10))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	s, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		require.Empty(t, r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	})
	a, err := client(t, outhttp.Options{Allow: []string{"127.0.0.1"}}).Do(t.Context(), outhttp.Request{URL: s.URL})
	require.NoError(t, err)
	require.Len(t, a.Body, bomb.Len(), "8 MiB stay packed")
}

func TestS46AnAnswerOfExactlyTheLimitIsTaken(t *testing.T) {
	s, _ := server(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1000)) })
	a, err := client(t, outhttp.Options{Allow: []string{"127.0.0.1"}, MaxResponse: 1000}).Do(t.Context(), outhttp.Request{URL: s.URL})
	require.NoError(t, err)
	require.Len(t, a.Body, 1000)
	_, err = client(t, outhttp.Options{Allow: []string{"127.0.0.1"}, MaxResponse: 999}).Do(t.Context(), outhttp.Request{URL: s.URL})
	require.ErrorContains(t, err, "longer than 999 bytes")
}

// issue makes a certificate for a host that is its own authority.
func issue(t *testing.T, host string, until time.Time) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: until.Add(-48 * time.Hour), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if ip := net.ParseIP(host); ip != nil {
		c.IPAddresses = []net.IP{ip}
	} else {
		c.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

func TestS47TLSIsNotWeakened(t *testing.T) {
	good, goodCA := issue(t, "127.0.0.1", time.Now().Add(24*time.Hour))
	old, oldCA := issue(t, "127.0.0.1", time.Now().Add(-time.Hour))
	other, otherCA := issue(t, "other.example", time.Now().Add(24*time.Hour))
	for name, c := range map[string]struct {
		cert  tls.Certificate
		ca    string
		most  uint16
		taken bool
	}{
		"own authority":  {cert: good, ca: goodCA, taken: true},
		"self-signed":    {cert: good},
		"expired":        {cert: old, ca: oldCA},
		"wrong host":     {cert: other, ca: otherCA},
		"only TLS 1.1":   {cert: good, ca: goodCA, most: tls.VersionTLS11},
		"only TLS 1.0":   {cert: good, ca: goodCA, most: tls.VersionTLS10},
		"TLS 1.2 is new": {cert: good, ca: goodCA, most: tls.VersionTLS12, taken: true},
	} {
		var seen, shook atomic.Int64
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.TLS = &tls.Config{
			Certificates: []tls.Certificate{c.cert}, MinVersion: tls.VersionTLS10, MaxVersion: c.most,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { shook.Add(1); return nil, nil },
		}
		s.StartTLS()
		_, err := client(t, outhttp.Options{Allow: []string{"127.0.0.1"}, CAFile: c.ca}).Do(t.Context(), outhttp.Request{URL: s.URL})
		s.Close()
		require.Equal(t, c.taken, err == nil, "%s: %v", name, err)
		require.Equal(t, c.taken, seen.Load() == 1, name)
		require.Positive(t, shook.Load(), "%s: the handshake must have begun", name)
	}
}
