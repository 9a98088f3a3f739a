package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/wechat/wechatsim"
)

// examine runs the doctor. Whatever is broken, no secret may be shown.
func examine(t *testing.T, s site, more ...string) (code int, text string) {
	t.Helper()
	code, out, problem := tidegate(t, append([]string{"doctor", "--config", s.write(t)}, more...)...)
	for _, hidden := range []string{secret, s.Secret, token, aesKey, s.AESKey, "pa55word"} {
		require.NotContains(t, out+problem, hidden)
	}
	return code, out + problem
}

func TestDoctorFindsNothingWrong(t *testing.T) {
	s := newSite(t)
	code, out := examine(t, s)
	require.Zero(t, code, out)
	require.Contains(t, out, "accounts card; checked for proxy, robot, sender, receipts")
	require.Contains(t, out, "ok    account card: WeChat takes its AppID and AppSecret")
	require.Contains(t, out, "ok    kafka topics: all 8 exist")
	require.Contains(t, out, "the first start makes it")
	require.Contains(t, out, "warn  database is SQLite")
	require.Contains(t, out, "single broker")
	require.Contains(t, out, " 0 FAIL\n")
	require.NotContains(t, out, "FAIL  ")
	_, err := os.Stat(s.DSN)
	require.ErrorIs(t, err, os.ErrNotExist, "the doctor makes no database file, which would belong to whoever ran it")
	for _, role := range []string{"proxy", "robot", "sender", "receipts"} {
		code, out := examine(t, s, "--role", role)
		require.Zero(t, code, out)
		require.Contains(t, out, "checked for "+role+"\n")
		require.Equal(t, role == "sender", strings.Contains(out, "account card"), "%s asks WeChat only if it needs it", role)
	}
}

// broken is a set-up with one fault, what the doctor says about it, and its
// exit code.
type broken struct {
	name  string
	brk   func(t *testing.T, s *site)
	code  int
	wants []string
}

func TestDoctorOnBrokenSetUps(t *testing.T) {
	whole := newSite(t)
	var all []broken
	for _, group := range [][]broken{brokenConfigurations(), brokenRedis(), brokenKafka(), brokenDatabase(), brokenWeChat(), brokenMachine()} {
		all = append(all, group...)
	}
	for _, b := range all {
		t.Run(b.name, func(t *testing.T) {
			s := whole
			b.brk(t, &s)
			code, text := examine(t, s)
			require.Equal(t, b.code, code, text)
			for _, w := range b.wants {
				require.Contains(t, text, w)
			}
			if b.code == exitFailed {
				require.Contains(t, text, "\nFAIL  ")
			}
		})
	}
}

func brokenConfigurations() []broken {
	return []broken{
		{"unknown key", func(_ *testing.T, s *site) { s.RedisLogin = ", pasword: x" }, exitUsage,
			[]string{"unknown key", "pasword", "redis.password"}},
		{"missing secrets", func(_ *testing.T, s *site) {
			s.Secret, s.AESKey = "env:TIDEGATE_TEST_NOWHERE", "file:/nowhere/aes-key"
		}, exitUsage, []string{"accounts[0].secret", "TIDEGATE_TEST_NOWHERE is not set", "accounts[0].encoding_aes_key", "/nowhere/aes-key"}},
		{"short AES key", func(_ *testing.T, s *site) { s.AESKey = "tooShortToBeAKey" }, exitUsage,
			[]string{"accounts[0] (card)", "encoding_aes_key"}},
		{"several problems at once", func(_ *testing.T, s *site) {
			s.Topics, s.WeChat, s.Account = "{retention: 1h}", []string{"ftp://x"}, ", sender: {template: {rate: -1}}"
		}, exitUsage, []string{"topics: retention 1h0m0s: use at least 24h", "accounts[0] (card): sender.template: rate", "a base URL must be"}},
		{"one appid twice", func(_ *testing.T, s *site) {
			s.Extra = "  - {name: second, app_id: " + appID + ", token: " + token + ", secret: x, mode: plain, allow_from: [any]}"
		}, exitUsage, []string{"accounts[1] (second): app_id \"" + appID + "\" is already that of accounts[0]"}},
		{"a door that would panic", func(_ *testing.T, s *site) { s.Door = `127.0.0.1:0", max_connections: "-1` }, exitUsage,
			[]string{"proxy.http: max_connections -1: use 1 to 1000000, or 0 for the default (10000)"}},
		{"an operations listener without time", func(_ *testing.T, s *site) { s.Ops = `127.0.0.1:0", write_timeout: "-5s` }, exitUsage,
			[]string{"ops: write_timeout -5s: use 1ms to 1h"}},
		{"everybody is a trusted proxy", func(_ *testing.T, s *site) { s.Door = `127.0.0.1:0", trusted_proxies: ["0.0.0.0/0"], cert_file: "` }, exitUsage,
			[]string{`proxy.http: trusted_proxies: "0.0.0.0/0" would believe`, "list your load balancers"}},
		{"one address twice", func(_ *testing.T, s *site) { s.Ops, s.API = "0.0.0.0:9100", "127.0.0.1:9100" }, exitUsage,
			[]string{"api.addr", "it is also ops.addr"}},
		{"rules with a misspelt key", func(t *testing.T, s *site) {
			s.Rules = filepath.Join(t.TempDir(), "rules.yaml")
			require.NoError(t, os.WriteFile(s.Rules, []byte("version: 1\nrules:\n  - name: hello\n    mach: {default: true}\n    silence: true\n"), 0o600))
		}, exitFailed, []string{"FAIL  rules: ", "rules.yaml:4:5: ", "mach"}},
	}
}

func brokenRedis() []broken {
	locked := func(t *testing.T, s *site, login string) {
		cache, err := redismem.Start("")
		require.NoError(t, err)
		t.Cleanup(cache.Close)
		cache.RequireUser("tidegate", "pa55word-right")
		s.Redis, s.RedisLogin = cache.Addr(), login
	}
	odd := func(clock time.Duration, settings ...string) func(*testing.T, *site) {
		return func(t *testing.T, s *site) { s.Redis = startRedis(t, clock, settings...) }
	}
	return []broken{
		{"Redis refuses", func(t *testing.T, s *site) { s.Redis = closedPort(t) }, exitFailed,
			[]string{"FAIL  redis 127.0.0.1:", "does not answer", "correct redis.addrs"}},
		{"Redis wants a login", func(t *testing.T, s *site) { locked(t, s, "") }, exitFailed,
			[]string{"FAIL  redis", "NOAUTH", "set redis.password"}},
		{"Redis login is wrong", func(t *testing.T, s *site) { locked(t, s, ", username: tidegate, password: pa55word-wrong") }, exitFailed,
			[]string{"FAIL  redis", "check redis.username and redis.password"}},
		{"Redis evicts", odd(0, "maxmemory_policy:allkeys-lru"), exitFailed,
			[]string{"FAIL  redis", "maxmemory-policy is allkeys-lru", "set it to noeviction"}},
		{"Redis is old", odd(0, "redis_version:6.2.14"), exitFailed,
			[]string{"FAIL  redis", "6.2.14 is too old", "7.0"}},
		{"Redis is a replica", odd(0, "role:slave"), exitFailed,
			[]string{"is a replica", "mode sentinel", "a claim cannot be made"}},
		{"Redis does not keep", odd(0, "aof_enabled:0"), 0, []string{"warn  redis", "append-only file is off", "set appendonly yes"}},
		{"clocks differ", odd(time.Hour), exitFailed, []string{"FAIL  clock: that of redis", "from ours", "NTP"}},
	}
}

func brokenKafka() []broken {
	return []broken{
		{"Kafka refuses", func(t *testing.T, s *site) { s.Kafka = closedPort(t) }, exitFailed,
			[]string{"FAIL  kafka 127.0.0.1:", "does not answer", "correct kafka.brokers"}},
		{"topics are missing", func(_ *testing.T, s *site) {
			s.Topics = "{prefix: nobody, replication: 1, min_insync_replicas: 1}"
		}, exitFailed, []string{"FAIL  kafka topics: missing: nobody.receipts", "and 4 more", "run 'tidegate topics'"}},
		{"topics cannot be made", func(_ *testing.T, s *site) { s.Topics = "{prefix: nobody, replication: 3, min_insync_replicas: 2}" }, exitFailed,
			[]string{"lower topics.replication (now 3)", "since the cluster has 1"}},
		{"too few partitions, too short a memory", func(t *testing.T, s *site) {
			s.Topics = "{prefix: small, partitions: 2, replication: 1, min_insync_replicas: 1, retention: 24h}"
			code, _, problem := tidegate(t, "topics", "--config", s.write(t))
			require.Zero(t, code, problem)
			s.Topics = "{prefix: small, partitions: 4, replication: 1, min_insync_replicas: 1, retention: 168h}"
		}, exitFailed, []string{"2 partitions instead of 4", "set topics.partitions", "retention is 24h0m0s, wanted 168h0m0s", "raise retention.ms"}},
	}
}

func brokenDatabase() []broken {
	return []broken{
		{"database refuses", func(t *testing.T, s *site) {
			s.Driver, s.DSN = "postgres", "postgres://tide:pa55word@"+closedPort(t)+"/tidegate?sslmode=disable"
		}, exitFailed, []string{"FAIL  database does not answer", "correct host, port and sslmode in database.dsn"}},
		{"database file is a directory", func(_ *testing.T, s *site) { s.DSN = s.Dir }, exitFailed,
			[]string{"is a directory", "give the path of a file in database.dsn"}},
	}
}

func brokenWeChat() []broken {
	return []broken{
		{"WeChat cannot be reached", func(t *testing.T, s *site) { s.WeChat = []string{"http://" + closedPort(t)} }, exitFailed,
			[]string{"FAIL  wechat http://127.0.0.1:", "cannot be reached", "firewalls", "FAIL  account card: no token"}},
		{"one of two hosts cannot be reached", func(t *testing.T, s *site) { s.WeChat = append([]string{"http://" + closedPort(t)}, s.WeChat...) }, 0,
			[]string{"warn  wechat http://127.0.0.1:", "ok    account card"}},
		{"WeChat's certificate is not trusted", func(t *testing.T, s *site) {
			stranger := httptest.NewUnstartedServer(http.NotFoundHandler())
			stranger.Config.ErrorLog = log.New(io.Discard, "", 0)
			stranger.StartTLS()
			t.Cleanup(stranger.Close)
			s.WeChat = []string{stranger.URL}
		}, exitFailed, []string{"FAIL  wechat https://127.0.0.1:", "its certificate is not trusted"}},
		{"WeChat without TLS where it should be", func(_ *testing.T, s *site) {
			s.WeChat = []string{strings.Replace(s.WeChat[0], "http://", "https://", 1)}
		}, exitFailed, []string{"correct the scheme in wechat.base_urls"}},
		{"address is not on the whitelist", func(t *testing.T, s *site) {
			s.WeChat = []string{simulate(t, func(c *wechatsim.Config) { c.Accounts[0].IPWhitelist = []string{"203.0.113.9"} })}
		}, exitFailed, []string{"FAIL  account card: no token: errcode 40164", "(127.0.0.1) on the IP whitelist"}},
		{"AppSecret is wrong", func(_ *testing.T, s *site) { s.Secret = "00000000000000000000000000000000" }, exitFailed,
			[]string{"FAIL  account card: no token: errcode 40125", "the AppSecret is wrong"}},
	}
}

func brokenMachine() []broken {
	return []broken{
		{"port is taken", func(t *testing.T, s *site) { s.Door = openPort(t) }, exitFailed,
			[]string{"FAIL  proxy.http.addr", "is used by another process"}},
		{"certificate is missing", func(_ *testing.T, s *site) {
			s.Door += `", cert_file: /nowhere/cert.pem, key_file: "/nowhere/key.pem`
		}, exitFailed, []string{"FAIL  proxy.http certificate /nowhere/cert.pem"}},
	}
}

// A process of this configuration that runs already is no reason to fail.
func TestDoctorBesideARunningRole(t *testing.T) {
	s := newSite(t)
	s.Ops, s.Door = closedPort(t), openPort(t)
	stop := serveHealth(t, s.Ops)
	defer stop()
	code, out := examine(t, s, "--role", "proxy")
	require.Zero(t, code, out)
	require.Contains(t, out, "ok    proxy.http.addr "+s.Door+" is in use, and a role of this configuration is running")
}

// Engines that take a connection and stay silent cost seconds, not minutes.
func TestDoctorDoesNotWaitForSilentEngines(t *testing.T) {
	s := newSite(t)
	silent := openPort(t)
	s.Kafka, s.Redis, s.WeChat = silent, silent, []string{"http://" + silent}
	s.Driver, s.DSN = "postgres", "postgres://tide:pa55word@"+silent+"/tidegate?sslmode=disable"
	began := time.Now()
	code, out := examine(t, s)
	require.Less(t, time.Since(began), 15*time.Second)
	require.Equal(t, exitFailed, code)
	for _, what := range []string{"FAIL  kafka", "FAIL  redis", "FAIL  database", "FAIL  wechat", "FAIL  account card"} {
		require.Contains(t, out, what)
	}
}

// Secrets that everybody may read are worth a line (S85).
func TestS85DoctorSeesReadableSecrets(t *testing.T) {
	if os.PathSeparator != '/' {
		return // there, the mode of a file says nothing
	}
	s := newSite(t)
	s.AESKey = "file:" + filepath.Join(s.Dir, "aes-key")
	key := filepath.Join(s.Dir, "aes-key")
	require.NoError(t, os.WriteFile(key, []byte(aesKey+"\n"), 0o600))
	require.NoError(t, os.Chmod(key, 0o644))
	path := s.write(t)
	require.NoError(t, os.Chmod(path, 0o644))
	code, out, _ := tidegate(t, "doctor", "--config", path)
	require.Zero(t, code, out)
	require.Contains(t, out, "warn  secrets in "+key)
	require.Contains(t, out, "warn  secrets in "+path)
	require.Contains(t, out, "chmod o= ")
}

// On the engines of the test run, where their addresses are given.
func TestDoctorOnRealEngines(t *testing.T) {
	s := newSite(t)
	found := false
	for _, e := range []struct {
		name string
		set  func(string)
	}{
		{"TIDEGATE_TEST_KAFKA", func(v string) { s.Kafka = v }},
		{"TIDEGATE_TEST_REDIS", func(v string) { s.Redis = v }},
		{"TIDEGATE_TEST_POSTGRES", func(v string) { s.Driver, s.DSN = "postgres", v }},
	} {
		if v := os.Getenv(e.name); v != "" {
			e.set(v)
			found = true
		}
	}
	if !found {
		t.Skip("no TIDEGATE_TEST_… variable names a real engine")
	}
	s.Topics = "{prefix: doctor-" + strings.ToLower(time.Now().Format("150405-000000000")) + ", partitions: 1, replication: 1, min_insync_replicas: 1}"
	code, _, problem := tidegate(t, "topics", "--config", s.write(t))
	require.Zero(t, code, problem)
	code, out := examine(t, s)
	require.Zero(t, code, out)
	require.Contains(t, out, "a claim was made and released")
	require.Contains(t, out, "kafka topics: all 8 exist")
}
