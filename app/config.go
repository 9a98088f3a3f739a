package app

import (
	"os"
	"time"

	"tidegate/pkg/alarm"
	"tidegate/pkg/config"
	"tidegate/pkg/control"
	"tidegate/pkg/crash"
	"tidegate/pkg/credit"
	"tidegate/pkg/kafka"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/redis"
	"tidegate/pkg/run"
	"tidegate/pkg/schedule"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/proxy"
	"tidegate/receipts"
	"tidegate/robot"
	"tidegate/sender"
	"tidegate/sender/line"
)

// EnvPrefix marks environment variables that are settings.
const EnvPrefix = "TIDEGATE_"

// Config is the whole file. Each room owns its section; this struct only puts
// the sections together. One file may serve all roles: a role reads what it
// needs.
type Config struct {
	Log telemetry.LogConfig `koanf:"log"`
	// Ops is the operations listener: metrics, health, profiles. Keep it private.
	Ops OpsConfig `koanf:"ops"`
	// API is the public listener of sender and receipts.
	API      run.HTTPConfig  `koanf:"api"`
	Topics   TopicsConfig    `koanf:"topics"`
	Kafka    kafka.Config    `koanf:"kafka"`
	Redis    redis.Config    `koanf:"redis"`
	Database sqldb.Config    `koanf:"database"`
	WeChat   WeChatConfig    `koanf:"wechat"`
	Accounts []AccountConfig `koanf:"accounts"`
	// Rules is the file of the robot's rules; the proxy reads it too, for
	// answers that go into the ack.
	Rules string `koanf:"rules"`
	// Alarms says who is told when something needs a person.
	Alarms alarm.Config `koanf:"alarms"`
	// Permits says how caps are shared by all processes of a role.
	Permits ratelimit.Config `koanf:"permits"`
	// Credit has the windows in which WeChat takes customer-service messages.
	Credit credit.Config `koanf:"credit"`
	// Control is about limits that are changed while roles run.
	Control control.Config `koanf:"control"`
	// Jobs says how scheduled jobs are shared by the nodes of a role.
	Jobs schedule.Config `koanf:"jobs"`
	// StopTimeout bounds a clean stop.
	StopTimeout time.Duration `koanf:"stop_timeout"`

	Proxy    proxy.Config    `koanf:"proxy"`
	Robot    robot.Config    `koanf:"robot"`
	Sender   sender.Config   `koanf:"sender"`
	Receipts receipts.Config `koanf:"receipts"`
}

// OpsConfig is the operations listener and who may use it.
type OpsConfig struct {
	run.HTTPConfig `koanf:",squash"`
	// Keys are the keys that it asks for; without any it is open.
	Keys []telemetry.OpsKey `koanf:"keys"`
	// AllowOpen lets it be open where others can reach it, by IP address only.
	AllowOpen bool `koanf:"allow_open"`
}

// TopicsConfig says how topics are named and made (D4).
type TopicsConfig struct {
	Prefix      string        `koanf:"prefix"`
	Partitions  int32         `koanf:"partitions"`
	Replication int16         `koanf:"replication"`
	MinISR      int           `koanf:"min_insync_replicas"`
	Retention   time.Duration `koanf:"retention"`
}

// Names gives the topic names.
func (t TopicsConfig) Names() wire.Topics { return wire.Topics{Prefix: t.Prefix} }

// WeChatConfig says where WeChat's API is.
type WeChatConfig struct {
	// BaseURLs are tried in order when one cannot be reached.
	BaseURLs []string `koanf:"base_urls"`
	// Lines take their place where there are several ways out (M3).
	Lines []line.Config `koanf:"lines"`
	// LineHealth says when a line is left and taken again.
	LineHealth line.Health   `koanf:"line_health"`
	Timeout    time.Duration `koanf:"timeout"`
}

// AccountConfig is one service account.
type AccountConfig struct {
	// Name is ours: it is part of the callback URL and of topic names.
	Name string `koanf:"name"`
	// GhID is the original id, gh_….
	GhID string `koanf:"gh_id"`
	// Secret is the AppSecret; only the sender needs it.
	Secret string `koanf:"secret" secret:"true"`
	// Lines is its order of the lines of wechat.lines; empty is the order there.
	Lines []string `koanf:"lines"`
	// Errors are its exceptions from the table of WeChat's error codes.
	Errors             []sender.ErrorRule `koanf:"errors"`
	wechat.Credentials `koanf:",squash"`
	// AllowFrom lists the addresses that callbacks may come from, or the one word
	// any; mode plain must say which.
	AllowFrom []string `koanf:"allow_from"`
	// Robot and Sender cap what this account may cost.
	Robot  robot.Limits  `koanf:"robot"`
	Sender sender.Limits `koanf:"sender"`
	// Caps are what pushes have to pass before the caps of their API.
	Caps sender.Caps `koanf:"caps"`
	// QuietHours are those in which the account sends no pushes.
	QuietHours sender.QuietHours `koanf:"quiet_hours"`
}

// DefaultConfig listens on loopback only and expects engines on this machine.
func DefaultConfig() Config {
	ops := run.DefaultHTTPConfig()
	ops.Addr = "127.0.0.1:9100"
	api := run.DefaultHTTPConfig()
	api.Addr = "127.0.0.1:8081"
	api.WriteTimeout = 30 * time.Second // an export or a report takes its time
	ops.WriteTimeout = 35 * time.Second // a CPU profile takes 30 s
	return Config{
		Log:         telemetry.DefaultLogConfig(),
		Ops:         OpsConfig{HTTPConfig: ops},
		API:         api,
		Topics:      TopicsConfig{Prefix: "tidegate", Partitions: wire.Partitions, Replication: 3, MinISR: 2, Retention: 7 * 24 * time.Hour},
		Kafka:       kafka.DefaultConfig(),
		Redis:       redis.DefaultConfig(),
		Database:    sqldb.DefaultConfig(),
		WeChat:      WeChatConfig{BaseURLs: []string{"https://api.weixin.qq.com", "https://api2.weixin.qq.com"}, LineHealth: line.DefaultHealth(), Timeout: 5 * time.Second},
		Alarms:      alarm.DefaultConfig(),
		Permits:     ratelimit.DefaultConfig(),
		Credit:      credit.DefaultConfig(),
		Control:     control.DefaultConfig(),
		Jobs:        schedule.DefaultConfig(),
		StopTimeout: 15 * time.Second,
		Proxy:       proxy.DefaultConfig(),
		Robot:       robot.DefaultConfig(),
		Sender:      sender.DefaultConfig(),
		Receipts:    receipts.DefaultConfig(),
	}
}

// nameGroups gives consumer groups that were not named the topics' prefix, so
// that two deployments on one Kafka cluster do not meet in a group.
func (c *Config) nameGroups() {
	if c.Robot.Group == robot.DefaultConfig().Group {
		c.Robot.Group = c.Topics.Prefix + ".robot"
	}
	if c.Receipts.Group == receipts.DefaultConfig().Group {
		c.Receipts.Group = c.Topics.Prefix + ".receipts"
	}
}

// ignored begins the names of variables that are ours and no settings. Those of
// fault tests are unknown keys in a release, where they do nothing.
func ignored() []string {
	names := []string{EnvPrefix + "TEST_", EnvPrefix + "ENGINES_", EnvPrefix + "CONFIG", EnvPrefix + "OPS_KEY", EnvPrefix + "CACHE_DIR", EnvPrefix + "SDK_", EnvPrefix + "SIM_", GuardEnvPrefix}
	if crash.Enabled {
		names = append(names, EnvPrefix+"CRASH_", EnvPrefix+"LIVELOCK")
	}
	return names
}

// LoadConfig reads the file, the environment and --set flags over the
// defaults. It does not validate: see Validate.
func LoadConfig(file string, set map[string]string) (Config, error) {
	return readConfig(Source{File: file, Set: set}, false)
}

// loadNames reads what a command needs that uses names and addresses alone:
// secrets, which whoever runs it may not be allowed to read, stay references.
func loadNames(src Source) (Config, error) { return readConfig(src, true) }

func readConfig(src Source, noSecrets bool) (Config, error) {
	c := DefaultConfig()
	err := config.Load(&c, config.Source{
		File: src.File, EnvPrefix: EnvPrefix, Environ: os.Environ(), Set: src.Set,
		Ignore: ignored(), NoSecrets: noSecrets,
		Moved: map[string]string{"proxy.repeat_window": "proxy.repeats.window", "proxy.repeat_events": "proxy.repeats.rules[].types"},
	})
	c.nameGroups()
	return c, err
}
