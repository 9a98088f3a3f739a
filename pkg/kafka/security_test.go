package kafka_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
)

// certificate makes a self-signed pair for 127.0.0.1 and gives its PEM file.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// Every login works over TLS, end to end; a wrong password and an unknown
// certificate are refused with words that say so.
func TestLoginOverTLS(t *testing.T) {
	t.Parallel()
	pair, ca := certificate(t)
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(mechanism, "tide", "gate"),
				kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}))
			require.NoError(t, err)
			defer c.Close()
			cfg := kafka.DefaultConfig()
			cfg.Brokers = c.ListenAddrs()
			cfg.TLS = kafka.TLS{Enabled: true, CAFile: ca}
			cfg.SASL = kafka.SASL{Mechanism: mechanism, Username: "tide", Password: "gate"}
			t.Run("right", func(t *testing.T) {
				tp := topic(t, cfg, 1)
				publish(t, producer(t, cfg, kafka.ProducerOptions{}), tp, "k", "v")
				got := make(chan string, 1)
				run(t, cfg, kafka.GroupOptions{Group: "g", Topics: []string{tp}, Handler: func(_ context.Context, r kafka.Record) error {
					got <- string(r.Value)
					return nil
				}})
				require.Equal(t, "v", wait(t, got, "the record"))
			})
			t.Run("wrong password", func(t *testing.T) {
				bad := cfg
				bad.SASL.Password = "wrong-one"
				err := admin(t, bad).Ping(t.Context())
				require.Error(t, err)
				require.NotContains(t, err.Error(), "wrong-one")
				// The embedded broker hangs up where Kafka answers with an error.
				require.ErrorContains(t, err, "check that tls and sasl match")
			})
			t.Run("unknown certificate", func(t *testing.T) {
				bad := cfg
				bad.TLS.CAFile = ""
				err := admin(t, bad).Ping(t.Context())
				require.ErrorContains(t, err, "certificate")
				require.Equal(t, fault.Unavailable, fault.KindOf(err))
			})
		})
	}
}
