package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"tidegate/pkg/kafka/kafkamem"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wechat/wechatsim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	appID  = "wx4be1a90c77d3f215"
	ghID   = "gh_9a0c4e7715bd"
	secret = "5f0d7c6b1a2e4938a7b6c5d4e3f20191"
	token  = "tide-doctor-token"
	aesKey = "Hs8dK2mQp4Xv7Zc1Bn5Lt9Rw3Yf6Jg0EuAiOqTkMxNA"
)

// site is a small deployment that is in order: what a test changes is what is
// broken.
type site struct {
	Dir                        string
	Kafka, Redis, Driver, DSN  string
	WeChat                     []string
	Secret, AESKey, Rules      string
	Topics, Ops, API, Door     string
	RedisLogin, Extra, Account string
}

var siteFile = template.Must(template.New("site").Parse(`
log: {hash_key: keeps-hashes-alike}
topics: {{.Topics}}
kafka: {brokers: ["{{.Kafka}}"]}
redis: {addrs: ["{{.Redis}}"] {{.RedisLogin}}}
database: {driver: {{.Driver}}, dsn: '{{.DSN}}'}
wechat: {base_urls: [{{range $i, $u := .WeChat}}{{if $i}}, {{end}}"{{$u}}"{{end}}]}
rules: '{{.Rules}}'
ops: {addr: "{{.Ops}}"}
api: {addr: "{{.API}}"}
proxy: {http: {addr: "{{.Door}}"}}
robot:
  backends: [{name: core, base_url: "http://127.0.0.1:9"}]
  engines: [{name: assistant, url: "http://127.0.0.1:9/", secret: an engine's secret of some length, allow: [127.0.0.1]}]
  dialogue: {key: a key of some length}
accounts:
  - {name: card, app_id: ` + appID + `, gh_id: ` + ghID + `, token: ` + token + `, encoding_aes_key: '{{.AESKey}}', secret: '{{.Secret}}' {{.Account}}}
{{.Extra}}
`))

// newSite starts embedded engines and a simulated WeChat, and makes the topics
// with the program's own command.
func newSite(t *testing.T) site {
	t.Helper()
	broker, err := kafkamem.Start(kafkamem.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	cache, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(cache.Close)
	s := site{
		Dir: t.TempDir(), Kafka: broker.Addr(), Redis: cache.Addr(), Driver: "sqlite", WeChat: []string{simulate(t, nil)},
		Secret: secret, AESKey: aesKey, Rules: filepath.Join("deployments", "config", "rules.sample.yaml"),
		Topics: "{prefix: site, partitions: 4, replication: 1, min_insync_replicas: 1}",
		Ops:    "127.0.0.1:0", API: "127.0.0.1:0", Door: "127.0.0.1:0",
	}
	s.DSN = filepath.Join(s.Dir, "tidegate.db")
	code, _, problem := tidegate(t, "topics", "--config", s.write(t))
	require.Zero(t, code, problem)
	return s
}

// write makes the configuration file; only its owner may read it.
func (s site) write(t *testing.T) string {
	t.Helper()
	var text bytes.Buffer
	require.NoError(t, siteFile.Execute(&text, s))
	path := filepath.Join(t.TempDir(), "tidegate.yaml")
	require.NoError(t, os.WriteFile(path, text.Bytes(), 0o600))
	return path
}

// simulate starts a WeChat that knows the account, and gives its address.
func simulate(t *testing.T, change func(*wechatsim.Config)) string {
	t.Helper()
	cfg := wechatsim.DefaultConfig()
	cfg.Accounts = []wechatsim.Account{{AppID: appID, Secret: secret, GhID: ghID, Token: token, EncodingAESKey: aesKey, Mode: wechatsim.ModeSafe}}
	if change != nil {
		change(&cfg)
	}
	sim, err := wechatsim.New(cfg, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, sim.Start())
	t.Cleanup(func() { require.NoError(t, sim.Close()) })
	return sim.URL()
}

// tidegate runs the program with arguments, as main does, and gives its exit
// code and what it wrote.
func tidegate(t *testing.T, args ...string) (code int, out, problem string) {
	t.Helper()
	stdout, stderr := os.Stdout, os.Stderr
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	files := make([]*os.File, 2)
	for i := range files {
		f, err := os.CreateTemp(t.TempDir(), "")
		require.NoError(t, err)
		defer f.Close()
		files[i] = f
	}
	os.Stdout, os.Stderr = files[0], files[1]
	code = run(args)
	text := make([]string, 2)
	for i, f := range files {
		_, err := f.Seek(0, io.SeekStart)
		require.NoError(t, err)
		b, err := io.ReadAll(f)
		require.NoError(t, err)
		text[i] = strings.ReplaceAll(string(b), "\r\n", "\n")
	}
	return code, text[0], text[1]
}

// closedPort is an address that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// serveHealth answers as the operations listener of a running role.
func serveHealth(t *testing.T, addr string) (stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	srv := &http.Server{Handler: telemetry.NewOps(telemetry.NewRegistry()), ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	return func() { _ = srv.Close(); <-done }
}

// openPort is an address that takes connections, and never says a word.
func openPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}
