package redis_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

func TestValidateNamesFieldAndRemedy(t *testing.T) {
	require.NoError(t, redis.DefaultConfig().Validate())
	for want, change := range map[string]func(*redis.Config){
		"redis.mode":          func(c *redis.Config) { c.Mode = "standalone" },
		"redis.addrs: mode":   func(c *redis.Config) { c.Addrs = []string{"a:1", "b:1"} },
		"redis.addrs: give":   func(c *redis.Config) { c.Addrs = nil },
		"is not host:port":    func(c *redis.Config) { c.Addrs = []string{"redis://x"} },
		"redis.master: mode":  func(c *redis.Config) { c.Mode = redis.Sentinel },
		"redis.master: only":  func(c *redis.Config) { c.Master = "m" },
		"redis.db: a cluster": func(c *redis.Config) { c.Mode, c.DB = redis.Cluster, 1 },
		"redis.db: -1":        func(c *redis.Config) { c.DB = -1 },
		"redis.password":      func(c *redis.Config) { c.Username = "u" },
		"redis.timeout":       func(c *redis.Config) { c.Timeout = time.Minute },
		"redis.pool_size":     func(c *redis.Config) { c.PoolSize = -1 },
		"redis.prefix":        func(c *redis.Config) { c.Prefix = "{tag}" },
		"redis.tls: cert":     func(c *redis.Config) { c.TLS = redis.TLS{Enabled: true, CertFile: "x"} },
		"redis.tls.enabled":   func(c *redis.Config) { c.TLS.CAFile = "x" },
	} {
		c := redis.DefaultConfig()
		change(&c)
		require.ErrorContains(t, c.Validate(), want, want)
		_, err := redis.Open(c, nil)
		require.Equal(t, fault.Invalid, fault.KindOf(err), want)
	}
}

func TestUserAndPassword(t *testing.T) {
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	s.RequireUser("gate", "secret")
	cfg := config(s.Addr())
	require.Equal(t, fault.Denied, fault.KindOf(open(t, cfg).Ping(t.Context())))
	cfg.Username, cfg.Password = "gate", "wrong"
	err = open(t, cfg).Ping(t.Context())
	require.Equal(t, fault.Denied, fault.KindOf(err))
	require.ErrorContains(t, err, "redis.password")
	require.NotContains(t, err.Error(), "wrong")
	cfg.Password = "secret"
	c := open(t, cfg)
	require.NoError(t, c.Ping(t.Context()))
	_, err = c.Info(t.Context())
	require.NoError(t, err)
}

// tlsFront ends TLS in front of a plain server and demands a client certificate.
func tlsFront(t *testing.T, target string) (addr, ca, cert, key string) {
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis.test"}, DNSNames: []string{"redis.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &priv.PublicKey, priv)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(priv)
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
		return path
	}
	cert, key = write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", keyDER)
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool.AddCert(leaf)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			wg.Go(func() { defer in.Close(); defer out.Close(); _, _ = io.Copy(out, in) })
			wg.Go(func() { defer in.Close(); defer out.Close(); _, _ = io.Copy(in, out) })
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return ln.Addr().String(), cert, cert, key
}

func TestTLSWithClientCertificate(t *testing.T) {
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	addr, ca, cert, key := tlsFront(t, s.Addr())
	cfg := config(addr)
	cfg.TLS = redis.TLS{Enabled: true, CAFile: ca, CertFile: cert, KeyFile: key, ServerName: "redis.test"}
	good, err := redis.Open(cfg, nil)
	require.NoError(t, err)
	require.NoError(t, good.Ping(t.Context()))
	require.NoError(t, good.Close()) // before the front goes, which waits for its connections

	for name, bad := range map[string]redis.TLS{
		"wrong name":        {Enabled: true, CAFile: ca, CertFile: cert, KeyFile: key, ServerName: "other.test"},
		"unknown authority": {Enabled: true, CertFile: cert, KeyFile: key, ServerName: "redis.test"},
		"no certificate":    {Enabled: true, CAFile: ca, ServerName: "redis.test"},
		"no TLS":            {},
	} {
		cfg.TLS = bad
		c, err := redis.Open(cfg, nil)
		require.NoError(t, err)
		require.Error(t, c.Ping(t.Context()), name)
		require.NoError(t, c.Close())
	}
	for field, bad := range map[string]redis.TLS{
		"redis.tls.ca_file":               {Enabled: true, CAFile: "/does/not/exist"},
		"redis.tls.ca_file: ":             {Enabled: true, CAFile: key},
		"redis.tls.cert_file and key_fil": {Enabled: true, CertFile: key, KeyFile: cert},
	} {
		cfg.TLS = bad
		_, err := redis.Open(cfg, nil)
		require.ErrorContains(t, err, field)
	}
}

func TestKeysDoNotRunIntoEachOther(t *testing.T) {
	require.Equal(t, "claim:wx%3A1:a%20b", redis.Key("claim", "wx:1", "a b"))
	require.Equal(t, "{cron%7Bx}:fence", redis.Tag("cron{x", "fence"))
	part := rapid.StringOf(rapid.SampledFrom([]rune("a:{}% %3A\x00é")))
	parts := rapid.SliceOfN(part, 1, 4)
	rapid.Check(t, func(t *rapid.T) {
		a, b := parts.Draw(t, "a"), parts.Draw(t, "b")
		same := strings.Join(a, "\xff") == strings.Join(b, "\xff")
		if (redis.Key(a...) == redis.Key(b...)) != same {
			t.Fatalf("%q and %q", a, b)
		}
		if strings.ContainsAny(redis.Key(a...), "{} \x00") {
			t.Fatalf("%q chooses its slot or breaks a line", a)
		}
	})
}

func TestAdviceSaysWhatToDo(t *testing.T) {
	fatal := func(i redis.Info) (out []string) {
		for _, a := range i.Advice() {
			if a.Fatal {
				out = append(out, a.Text)
			}
		}
		return out
	}
	good := redis.Info{Version: "7.0.15", Role: "master", AOF: "1", Policy: "noeviction"}
	require.Empty(t, good.Advice())
	old := good
	old.Version = "6.2.7"
	require.Contains(t, fatal(old)[0], "upgrade")
	replica := good
	replica.Role = "slave"
	require.Contains(t, fatal(replica)[0], "master")
	evicting := good
	evicting.Policy, evicting.MaxMemory = "volatile-lru", 1<<30
	require.Contains(t, fatal(evicting)[0], "noeviction")
	evicting.MaxMemory = 0
	require.Empty(t, fatal(evicting))
	require.Len(t, evicting.Advice(), 1)
	volatile := good
	volatile.AOF = "0"
	require.Empty(t, fatal(volatile))
	require.Contains(t, volatile.Advice()[0].Text, "appendonly")
	blind := redis.Info{Version: "7.2.0", Role: "master", Unknown: []string{"persistence", "eviction policy"}}
	require.Contains(t, blind.Advice()[0].Text, "persistence, eviction policy")
}

func TestScriptKeysNeedOneTag(t *testing.T) {
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	c := open(t, config(s.Addr()))
	_, err = redis.NewScript("return 1").Run(t.Context(), c, []string{redis.Tag("a", "x"), redis.Tag("b", "x")})
	require.Equal(t, fault.Internal, fault.KindOf(err))
	require.ErrorContains(t, err, "different hash tags")
	_, err = redis.NewScript("return 1").Run(t.Context(), c, []string{redis.Tag("a", "x"), redis.Tag("a", "y")})
	require.NoError(t, err)
}
