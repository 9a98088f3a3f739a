package app_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/app"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wechat"
	"tidegate/robot"
)

// whole is a configuration that every role can use.
func whole() app.Config {
	c := app.DefaultConfig()
	c.Rules = "rules.yaml"
	c.Database.DSN = "tidegate.db"
	c.Accounts = []app.AccountConfig{{
		Name: "card", GhID: "gh_1", Secret: "app-secret",
		Credentials: wechat.Credentials{AppID: "wx1", Token: "token", EncodingAESKey: "Hs8dK2mQp4Xv7Zc1Bn5Lt9Rw3Yf6Jg0EuAiOqTkMxNA"},
	}}
	return c
}

func TestTheDefaultsAreValid(t *testing.T) {
	for _, role := range append(app.Roles(), "") {
		require.NoError(t, whole().Validate(role), role)
	}
}

// Each problem names its key and says what to do, for the role that has it.
func TestValidateNamesKeyAndCure(t *testing.T) {
	another := func(change func(*app.AccountConfig)) func(*app.Config) {
		return func(c *app.Config) {
			a := c.Accounts[0]
			a.Name, a.AppID, a.GhID = "second", "wx2", "gh_2"
			change(&a)
			c.Accounts = append(c.Accounts, a)
		}
	}
	for name, c := range map[string]struct {
		role   app.Role
		change func(*app.Config)
		want   string
	}{
		"no account":        {"", func(c *app.Config) { c.Accounts = nil }, "accounts: configure at least one account"},
		"bad name":          {"", another(func(a *app.AccountConfig) { a.Name = "Card 2" }), "accounts[1] (Card 2): name \"Card 2\": use 1 to 40 of a-z"},
		"name twice":        {"", another(func(a *app.AccountConfig) { a.Name = "card" }), "accounts[1] (card): name \"card\" is already that of accounts[0]"},
		"appid twice":       {"", another(func(a *app.AccountConfig) { a.AppID = "wx1" }), "accounts[1] (second): app_id \"wx1\" is already that of accounts[0]"},
		"original id twice": {"", another(func(a *app.AccountConfig) { a.GhID = "gh_1" }), "accounts[1] (second): gh_id \"gh_1\" is already that of accounts[0]"},
		"no appid":          {"", another(func(a *app.AccountConfig) { a.AppID = "" }), "accounts[1] (second): app_id is empty"},
		"robot's cap":       {"", another(func(a *app.AccountConfig) { a.Robot = robot.Limits{Rate: -3} }), "accounts[1] (second): robot.rate: -3"},
		"sender's cap": {"", another(func(a *app.AccountConfig) { a.Sender.Template = ratelimit.Limit{Concurrency: -1} }),
			"accounts[1] (second): sender.template: concurrency: -1 is negative"},
		"no token":            {app.RoleProxy, another(func(a *app.AccountConfig) { a.Token = "" }), "accounts[1] (second): wechat credentials: token is empty"},
		"short key":           {app.RoleProxy, another(func(a *app.AccountConfig) { a.EncodingAESKey = "short" }), "accounts[1] (second): wechat credentials: encoding_aes_key"},
		"no secret":           {app.RoleSender, another(func(a *app.AccountConfig) { a.Secret = "" }), "accounts[1] (second): secret is empty"},
		"no rules":            {app.RoleRobot, func(c *app.Config) { c.Rules = "" }, "rules: name the file"},
		"no database":         {app.RoleReceipts, func(c *app.Config) { c.Database.DSN = "" }, "database: "},
		"MySQL":               {app.RoleSender, func(c *app.Config) { c.Database = sqldb.Config{Driver: "mysql", DSN: "x"} }, "MySQL is not supported"},
		"no base URL":         {app.RoleSender, func(c *app.Config) { c.WeChat.BaseURLs = nil }, "wechat.base_urls: name at least"},
		"odd base URL":        {app.RoleSender, func(c *app.Config) { c.WeChat.BaseURLs = []string{"https://x/y"} }, "a base URL must be scheme and host"},
		"one port":            {app.RoleProxy, func(c *app.Config) { c.Ops.Addr = c.Proxy.HTTP.Addr }, "proxy.http.addr \"127.0.0.1:8080\": it is also ops.addr"},
		"one port, any host":  {app.RoleReceipts, func(c *app.Config) { c.Ops.Addr, c.API.Addr = ":9100", "10.1.2.3:9100" }, "api.addr \"10.1.2.3:9100\": it is also ops.addr"},
		"no port":             {"", func(c *app.Config) { c.Ops.Addr = "9100" }, "ops: addr \"9100\": give host:port"},
		"no stop":             {"", func(c *app.Config) { c.StopTimeout = 0 }, "stop_timeout 0s: use 1s to 10m"},
		"bad prefix":          {"", func(c *app.Config) { c.Topics.Prefix = "Tide.Gate" }, "topics: topic prefix"},
		"short retention":     {"", func(c *app.Config) { c.Topics.Retention = time.Hour }, "topics: retention 1h0m0s: use at least 24h"},
		"more than there are": {"", func(c *app.Config) { c.Topics.Replication, c.Topics.MinISR = 1, 2 }, "topics: min_insync_replicas 2: use 1 to replication (1)"},
		"no broker":           {"", func(c *app.Config) { c.Kafka.Brokers = nil }, "kafka: "},
		"no master":           {app.RoleProxy, func(c *app.Config) { c.Redis.Mode = "sentinel" }, "redis.master: mode sentinel needs the name"},
		"level":               {"", func(c *app.Config) { c.Log.Level = "loud" }, "log.level \"loud\""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := whole()
			c.change(&cfg)
			require.ErrorContains(t, cfg.Validate(c.role), c.want)
		})
	}
}

func TestValidateReportsEverythingAtOnce(t *testing.T) {
	c := whole()
	c.Topics.Retention, c.StopTimeout, c.Rules, c.Accounts[0].Name = time.Hour, 0, "", "!"
	err := c.Validate(app.RoleRobot)
	for _, want := range []string{"topics: retention", "stop_timeout", "rules: ", "accounts[0] (!)"} {
		require.ErrorContains(t, err, want)
	}
}

// A role asks only for what it needs.
func TestARoleNeedsNoSecretsOfOthers(t *testing.T) {
	c := whole()
	c.Accounts[0].Secret, c.Accounts[0].Token, c.Accounts[0].EncodingAESKey = "", "", ""
	require.NoError(t, c.Validate(app.RoleRobot))
	require.NoError(t, c.Validate(app.RoleReceipts))
	require.Error(t, c.Validate(app.RoleProxy))
	require.Error(t, c.Validate(app.RoleSender))
}

func TestLoadConfigTakesFileVariablesAndFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(path, []byte("redis: {addrs: [from-file:1], timeout: 300ms}\ntopics: {prefix: from-file, partitions: 6}\n"), 0o600))
	t.Setenv("TIDEGATE_REDIS__ADDRS", "from-variable:1,second:2")
	t.Setenv("TIDEGATE_TOPICS__PREFIX", "from-variable")
	t.Setenv("TIDEGATE_REDIS__PASSWORD", "env:REDIS_PASSWORD_OF_TEST")
	t.Setenv("REDIS_PASSWORD_OF_TEST", "s3cret")
	t.Setenv("TIDEGATE_CONFIG", path)      // the flag's variable is no setting
	t.Setenv("TIDEGATE_TEST_WHATEVER", "") // nor are those of tests
	c, err := app.LoadConfig(path, map[string]string{"topics.prefix": "from-flag"})
	require.NoError(t, err)
	require.Equal(t, []string{"from-variable:1", "second:2"}, c.Redis.Addrs)
	require.Equal(t, 300*time.Millisecond, c.Redis.Timeout)
	require.Equal(t, "s3cret", c.Redis.Password)
	require.Equal(t, "from-flag", c.Topics.Prefix)
	require.EqualValues(t, 6, c.Topics.Partitions)
	require.Equal(t, "from-flag.robot", c.Robot.Group, "groups follow the prefix")
	require.Equal(t, "from-flag.receipts", c.Receipts.Group)
	require.Equal(t, app.DefaultConfig().API, c.API, "the rest are defaults")

	t.Setenv("TIDEGATE_REDDIS__ADDRS", "x")
	_, err = app.LoadConfig(path, nil)
	require.ErrorContains(t, err, "reddis")
}
