package app_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"tidegate/app"
	"tidegate/pkg/config"
	"tidegate/pkg/wechat/wechatsim"
)

const samples = "../deployments/config"

// notInSamples lists the keys that a user seldom touches, with the reason.
var notInSamples = map[string]string{
	"accounts[].prev_token":                     "only while the account's settings are being changed",
	"accounts[].prev_encoding_aes_key":          "only while the account's settings are being changed",
	"accounts[].prev_until":                     "only while the account's settings are being changed",
	"accounts[].sender.replies.start_full":      "only where a restart may exceed the cap",
	"accounts[].sender.template.start_full":     "only where a restart may exceed the cap",
	"accounts[].sender.subscription.start_full": "only where a restart may exceed the cap",
	"database.allow_insecure":                   "only where the network is private and plain",
	"kafka.allow_insecure":                      "only where the network is private and plain",
	"redis.allow_insecure":                      "only where the network is private and plain",
	"alarms.webhooks[].ca_file":                 "only for a receiver with an authority of its own",
	"receipts.report.webhook.ca_file":           "only for a receiver with an authority of its own",
	"receipts.webhooks.ca_file":                 "only for receivers with an authority of their own",
	"receipts.webhooks.apps[].prev_secret":      "only while the secret is being changed",
	"database.synchronous":                      "SQLite only",
	"kafka.tls.cert_file":                       "only for brokers that ask for it",
	"kafka.tls.key_file":                        "only for brokers that ask for it",
	"kafka.tls.server_name":                     "only for an unusual certificate",
	"redis.tls.cert_file":                       "only for servers that ask for it",
	"redis.tls.key_file":                        "only for servers that ask for it",
	"redis.tls.server_name":                     "only for an unusual certificate",
	"redis.sentinel_username":                   "sentinels seldom have users",
	"ops.cert_file":                             "the operations listener is private",
	"ops.key_file":                              "the operations listener is private",
	"ops.drain_timeout":                         "the default is right",
	"ops.idle_timeout":                          "the default is right",
	"ops.max_connections":                       "the default is right",
	"ops.max_header_bytes":                      "the default is right",
	"ops.read_header_timeout":                   "the default is right",
	"ops.read_timeout":                          "the default is right",
	"ops.write_timeout":                         "the default is right",
	"proxy.repeats.rules[].key":                 "described in a comment: the default has one rule for all keys",
	"proxy.repeats.rules[].window":              "described in a comment: the default is the window of the section",
	"proxy.http.cert_file":                      "a load balancer speaks TLS",
	"proxy.http.key_file":                       "a load balancer speaks TLS",
	"proxy.http.max_header_bytes":               "the default is right",
	"ops.max_connections_per_address":           "the default is right",
	"ops.allow_open":                            "only where the network is private",
	"ops.trusted_proxies":                       "the default is right",
	"api.max_connections_per_address":           "the default is right",
	"api.trusted_proxies":                       "only where one address may not have all connections",
	"robot.dialogue.prev_key":                   "only while the key is being changed",
	"robot.engines[].prev_secret":               "only while the secret is being changed",
	"sender.node":                               "made from host and process",
}

var secretRef = regexp.MustCompile(`"(file|env):([^"]+)"`)

// sampleFile copies a sample with its places moved into a directory of the
// test, and provides what it refers to.
func sampleFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(samples, name+".yaml"))
	require.NoError(t, err)
	etc := t.TempDir()
	moved := strings.ReplaceAll(string(text), "/etc/tidegate", filepath.ToSlash(etc))
	for _, ref := range secretRef.FindAllStringSubmatch(moved, -1) {
		value := secretFor(ref[2])
		if ref[1] == "env" {
			t.Setenv(ref[2], value)
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(ref[2]), 0o700))
		require.NoError(t, os.WriteFile(ref[2], []byte(value+"\n"), 0o600))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(etc, "tls"), 0o700))
	for _, ca := range []string{"kafka-ca.pem", "core-ca.pem"} { // these are read when the configuration is checked
		require.NoError(t, os.WriteFile(filepath.Join(etc, "tls", ca), certificate(t), 0o600))
	}
	rules, err := os.ReadFile(filepath.Join(samples, "rules.sample.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(etc, "rules.yaml"), rules, 0o600))
	path := filepath.Join(etc, name+".yaml")
	require.NoError(t, os.WriteFile(path, []byte(moved), 0o600))
	return path
}

// secretFor makes up a secret in the form that its name asks for.
func secretFor(name string) string {
	switch {
	case strings.Contains(strings.ToLower(name), "aes"):
		return "Hs8dK2mQp4Xv7Zc1Bn5Lt9Rw3Yf6Jg0EuAiOqTkMxNA"
	case strings.HasSuffix(name, "guard-key"), strings.HasSuffix(name, "seal-key"):
		return "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	case strings.HasSuffix(name, "webhook-secret"):
		return "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	case strings.HasSuffix(name, "dmz-proxy"):
		return "http://user:password@proxy.internal:3128"
	case strings.HasSuffix(name, "robot-url"):
		return "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=secret"
	case strings.HasSuffix(name, "dsn"):
		return "postgres://tidegate:password@db.internal:5432/tidegate?sslmode=verify-full"
	}
	return "secret-of-" + filepath.Base(name)
}

func TestEverySampleIsGoodForItsRole(t *testing.T) {
	for _, role := range app.Roles() {
		t.Run(string(role), func(t *testing.T) {
			c, err := app.LoadConfig(sampleFile(t, string(role)), nil)
			require.NoError(t, err)
			require.NoError(t, c.Validate(role))
			require.Len(t, c.Kafka.Brokers, 3)
			require.Equal(t, "secret-of-kafka-password", c.Kafka.SASL.Password)
		})
	}
}

// The doctor is first run without --role, on one of these files.
func TestTheDoctorKnowsWhoseASampleIs(t *testing.T) {
	for _, role := range app.Roles() {
		t.Run(string(role), func(t *testing.T) {
			roles, err := app.DoctorOnFiles(app.Source{File: sampleFile(t, string(role))})
			require.NoError(t, err)
			require.Equal(t, role, roles[0], "a sender's file is good for receipts too: both have the database")
		})
	}
	file := sampleFile(t, "proxy")
	for set, value := range map[string]string{"robot.workers": "65", "database.dsn": "postgres://tidegate@127.0.0.1/x?sslmode=verify-full"} {
		roles, err := app.DoctorOnFiles(app.Source{File: file, Set: map[string]string{set: value}})
		require.Contains(t, roles, app.RoleRobot, "with %s the file is more than a door's", set)
		require.ErrorContains(t, err, "core", "and then the back end of its rules is missing")
	}
	roles, err := app.DoctorOnFiles(app.Source{File: file, Set: map[string]string{"robot.group": "answers"}})
	require.NoError(t, err)
	require.Equal(t, []app.Role{app.RoleProxy}, roles)
}

// A sample states the defaults where it does not set something up: what it
// says about a number is then true of the program too.
func TestSamplesStateTheDefaults(t *testing.T) {
	d := app.DefaultConfig()
	load := func(role app.Role) app.Config {
		c, err := app.LoadConfig(sampleFile(t, string(role)), nil)
		require.NoError(t, err)
		return c
	}
	proxy, robot, sender, receipts := load(app.RoleProxy), load(app.RoleRobot), load(app.RoleSender), load(app.RoleReceipts)
	require.Equal(t, d.Proxy.Repeats, proxy.Proxy.Repeats)
	require.Equal(t, d.Proxy.Budget, proxy.Proxy.Budget)
	proxy.Proxy.Spool.Dir = ""
	require.Equal(t, d.Proxy.Spool, proxy.Proxy.Spool)
	require.Equal(t, d.Topics, proxy.Topics)
	robot.Robot.Backends, robot.Robot.Engines, robot.Robot.Dialogue = nil, nil, d.Robot.Dialogue
	robot.Robot.Binding.Backend, robot.Robot.Binding.Key, robot.Robot.History.Keep, robot.Robot.History.Key = "", "", 0, ""
	d.Robot.Group, d.Receipts.Group = "tidegate.robot", "tidegate.receipts" // as LoadConfig names them
	require.Equal(t, d.Robot, robot.Robot)
	limits := &sender.Sender.Intake.Limits // nobody is limited where the file does not say so
	limits.Developer, limits.App, limits.User, limits.Apps, sender.Sender.Intake.CallbackAllow = nil, nil, nil, nil, nil
	require.Equal(t, d.Sender, sender.Sender)
	sender.WeChat.Lines = nil // ways out are each site's own
	require.Equal(t, d.WeChat, sender.WeChat)
	receipts.Receipts.Report.Dir, receipts.Receipts.Report.Webhook = "", d.Receipts.Report.Webhook
	receipts.Receipts.Webhooks.Apps, receipts.Receipts.Webhooks.Allow = nil, nil
	require.Equal(t, d.Receipts, receipts.Receipts)
}

// Keys are read from the files as written, so that a sample cannot rot while
// the defaults make up for it.
func TestEveryKeyIsInASampleOrLeftOutForAReason(t *testing.T) {
	shown := map[string]bool{}
	for _, role := range app.Roles() {
		for _, k := range keysOf(t, string(role)) {
			shown[k] = true
		}
	}
	known := config.Keys(app.Config{})
	for _, k := range known {
		_, left := notInSamples[k]
		assert.NotEqual(t, left, shown[k], "%s: show it in a sample under deployments/config or say in notInSamples why not; not both", k)
	}
	for k := range notInSamples {
		require.Contains(t, known, k, "%s is no key any more", k)
	}
}

func TestTheSampleOfTheSimulator(t *testing.T) {
	c := wechatsim.DefaultConfig()
	require.NoError(t, config.Load(&c, config.Source{File: filepath.Join(samples, "sim.yaml")}))
	require.NoError(t, c.Validate())
	d := wechatsim.DefaultConfig()
	d.Addr, d.Accounts, d.Limits.Daily, d.Limits.PerMinute = c.Addr, c.Accounts, c.Limits.Daily, c.Limits.PerMinute
	require.Equal(t, d, c, "apart from its account it states the defaults")
	shown := keysOf(t, "sim")
	for _, k := range config.Keys(c) {
		require.Contains(t, shown, k)
	}
}

// keysOf lists the dotted keys of a sample as config.Keys writes them.
func keysOf(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(samples, name+".yaml"))
	require.NoError(t, err)
	var doc yaml.Node
	require.NoError(t, yaml.Unmarshal(text, &doc))
	var keys []string
	var walk func(n *yaml.Node, path string)
	walk = func(n *yaml.Node, path string) {
		switch {
		case n.Kind == yaml.MappingNode && !isMap(path):
			for i := 0; i < len(n.Content); i += 2 {
				walk(n.Content[i+1], strings.TrimPrefix(path+"."+n.Content[i].Value, "."))
			}
		case n.Kind == yaml.SequenceNode && len(n.Content) > 0 && n.Content[0].Kind == yaml.MappingNode:
			for _, item := range n.Content {
				walk(item, path+"[]")
			}
		default:
			keys = append(keys, path)
		}
	}
	walk(doc.Content[0], "")
	slices.Sort(keys)
	return slices.Compact(keys)
}

// isMap tells keys whose value is a mapping with keys of the user's own.
func isMap(key string) bool {
	return slices.Contains([]string{"robot.backends[].headers", "alarms.webhooks[].headers", "limits.daily", "limits.per_minute", "credit.events", "accounts[].quiet_hours.templates"}, key)
}
