package config_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/config"
)

type redis struct {
	Addrs    []string      `koanf:"addrs"`
	Password string        `koanf:"password" secret:"true"`
	Timeout  time.Duration `koanf:"timeout"`
}

type account struct {
	Name  string `koanf:"name"`
	Token string `koanf:"token" secret:"true"`
}

type Base struct {
	Prefix string `koanf:"prefix"`
}

type conf struct {
	Base     `koanf:",squash"`
	Redis    redis             `koanf:"redis"`
	Accounts []account         `koanf:"accounts"`
	Rate     float64           `koanf:"rate"`
	Headers  map[string]string `koanf:"headers" secret:"true"`
}

func write(t *testing.T, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(p, []byte(text), 0o600))
	return p
}

func load(t *testing.T, text string, env ...string) (conf, error) {
	t.Helper()
	c := conf{Redis: redis{Addrs: []string{"a:1", "b:2"}, Timeout: time.Second}, Rate: 5}
	err := config.Load(&c, config.Source{File: write(t, text), EnvPrefix: "TIDEGATE_", Environ: env, Ignore: []string{"TIDEGATE_TEST_"}})
	return c, err
}

func TestFileEnvironmentAndDefaultsInOrder(t *testing.T) {
	c, err := load(t, "redis: {addrs: [x:1], timeout: 200ms}\nrate: 2\n", "TIDEGATE_RATE=16.983333", "TIDEGATE_REDIS__PASSWORD=p", "TIDEGATE_TEST_KAFKA=ignored", "HOME=/")
	require.NoError(t, err)
	require.Equal(t, []string{"x:1"}, c.Redis.Addrs)
	require.Equal(t, 200*time.Millisecond, c.Redis.Timeout)
	require.InDelta(t, 16.983333, c.Rate, 1e-9)
	require.Equal(t, "p", c.Redis.Password)
}

func TestListsComeFromTheEnvironment(t *testing.T) {
	c, err := load(t, "", "TIDEGATE_REDIS__ADDRS=h1:1,h2:2,h3:3")
	require.NoError(t, err)
	require.Equal(t, []string{"h1:1", "h2:2", "h3:3"}, c.Redis.Addrs)
}

func TestUnknownKeysAreRefusedWithWhatWasMeant(t *testing.T) {
	for text, want := range map[string]string{
		"redis: {adrs: [x:1]}\n":              "unknown key redis.adrs; did you mean redis.addrs?",
		"redis: {hosts: [x:1]}\n":             "unknown key redis.hosts; known here: redis.addrs, redis.password, redis.timeout",
		"accounts: [{name: a, tokn: x}]\n":    "unknown key accounts[0].tokn; did you mean accounts[].token?",
		"cache: {size: 1}\n":                  "unknown key cache; known sections: accounts, headers, prefix, rate, redis",
		"redis: {adrs: [x:1]}\ncache: true\n": "unknown key cache",
	} {
		_, err := load(t, text)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "config_test")
	}
	_, err := load(t, "", "TIDEGATE_REDIS__ADRS=x")
	require.ErrorContains(t, err, "did you mean redis.addrs?")
}

func TestMovedKeysAreRefusedWithTheirNewPlace(t *testing.T) {
	s := config.Source{File: write(t, "redis: {servers: [x:1], adrs: [y:1]}\n"), EnvPrefix: "TIDEGATE_", Environ: []string{"TIDEGATE_SPEED=1"},
		Moved: map[string]string{"redis.servers": "redis.addrs", "speed": "rate"}}
	err := config.Load(&conf{}, s)
	require.ErrorContains(t, err, "unknown key redis.servers; it is redis.addrs now")
	require.ErrorContains(t, err, "unknown key speed; it is rate now")
	require.ErrorContains(t, err, "unknown key redis.adrs; did you mean redis.addrs?")
}

func TestBareNumbersAreNoDurations(t *testing.T) {
	_, err := load(t, "redis: {timeout: 5}\n")
	require.ErrorContains(t, err, "write a duration such as 5s")
}

func TestSecretsComeFromFilesAndEnvironment(t *testing.T) {
	p := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(p, []byte("s3cret\n"), 0o600))
	t.Setenv("CARD_TOKEN", "from-env")
	c, err := load(t, "accounts:\n  - {name: a, token: 'file:"+p+"'}\n  - {name: b, token: 'env:CARD_TOKEN'}\n  - {name: c, token: plain}\n")
	require.NoError(t, err)
	require.Equal(t, []account{{"a", "s3cret"}, {"b", "from-env"}, {"c", "plain"}}, c.Accounts)
	_, err = load(t, "accounts:\n  - {name: a, token: 'env:NOT_SET_ANYWHERE'}\n  - {name: b, token: 'file:/does/not/exist'}\n")
	require.ErrorIs(t, err, config.ErrNoSecret)
	require.ErrorContains(t, err, "accounts[0].token")
	require.ErrorContains(t, err, "accounts[1].token", "all of them at once")
}

func TestMapsOfSecrets(t *testing.T) {
	t.Setenv("CORE_KEY", "from-env")
	c, err := load(t, "headers: {X-API-Key: 'env:CORE_KEY', X-Channel: wechat}\n")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"X-API-Key": "from-env", "X-Channel": "wechat"}, c.Headers)
	text, err := config.Redacted(&c)
	require.NoError(t, err)
	require.NotContains(t, text, "from-env")
	require.Contains(t, text, "headers: (secret)")
	_, err = load(t, "headers: {X-API-Key: 'env:NOT_SET_ANYWHERE'}\n")
	require.ErrorIs(t, err, config.ErrNoSecret)
	require.ErrorContains(t, err, "headers.X-API-Key")
}

func TestPrintingHidesSecrets(t *testing.T) {
	c, err := load(t, "prefix: tg\naccounts:\n  - {name: a, token: hush}\n")
	require.NoError(t, err)
	text, err := config.Redacted(&c)
	require.NoError(t, err)
	require.NotContains(t, text, "hush")
	require.Contains(t, text, "token: (secret)")
	require.Contains(t, text, "timeout: 1s")
	require.Contains(t, text, "prefix: tg")
}

func TestMissingFileIsNamed(t *testing.T) {
	var c conf
	err := config.Load(&c, config.Source{File: "/does/not/exist.yaml"})
	require.ErrorContains(t, err, "/does/not/exist.yaml")
}

func TestFlagsWin(t *testing.T) {
	c := conf{}
	require.NoError(t, config.Load(&c, config.Source{EnvPrefix: "TIDEGATE_", Environ: []string{"TIDEGATE_RATE=1"}, Set: map[string]string{"rate": "9"}}))
	require.InDelta(t, 9, c.Rate, 0)
}

// A point in time is written as RFC 3339, with or without quotes.
func TestTimes(t *testing.T) {
	type withTime struct {
		Accounts []struct {
			Until time.Time `koanf:"until"`
		} `koanf:"accounts"`
	}
	want := time.Date(2030, 1, 2, 7, 4, 5, 0, time.UTC)
	for _, text := range []string{"2030-01-02T15:04:05+08:00", `"2030-01-02T15:04:05+08:00"`, "2030-01-02T07:04:05Z"} {
		var c withTime
		require.NoError(t, config.Load(&c, config.Source{File: write(t, "accounts:\n  - until: "+text+"\n")}), text)
		require.True(t, want.Equal(c.Accounts[0].Until), text)
		printed, err := config.Redacted(c)
		require.NoError(t, err)
		require.Contains(t, printed, "until: \"2030-01-02T")
	}
	require.Equal(t, []string{"accounts[].until"}, config.Keys(withTime{}))
	for _, bad := range []string{"tomorrow", "5"} {
		var c withTime
		require.Error(t, config.Load(&c, config.Source{File: write(t, "accounts:\n  - until: "+bad+"\n")}), bad)
	}
}
