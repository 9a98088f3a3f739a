//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/client"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/test/chaos/herd"
)

const (
	appID  = "wx9f3c7b21d08e4a56"
	ghID   = "gh_5d1e0a77c3b2"
	secret = "0123456789abcdef0123456789abcdef"
	token  = "e2e-token-2031"
	aesKey = "Qm7rT0xkV3sZ9bYh2LdNcP5wEaGfJu8oXiKyRzMt4Bq"
)

// world is a deployment: engines from the environment, processes of ours, and
// the simulated WeChat in the test's own process, so that it outlives kills.
type world struct {
	t      *testing.T
	sim    *wechatsim.Sim
	prefix string
	file   string                     // configuration shared by all roles
	plain  string                     // the one that reaches the engines without encryption, if file does not
	extra  func(role string) []string // further arguments of a role; nil has none
	herd   *herd.Herd
	parts  map[string]*herd.Process
	addr   map[string]string
	lb     *balancer
	key    string
	dsn    string
}

type shape struct {
	partitions                                int
	proxies, robots, senders, receiptsWorkers int
	followers                                 int
	spool                                     bool   // doors have a spool
	rules                                     string // instead of rulesYAML
	more                                      string // more configuration
}

func engine(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv("TIDEGATE_TEST_" + name)
	require.NotEmpty(t, v, "TIDEGATE_TEST_%s is not set: run eval \"$(deployments/dev/engines env)\" after deployments/dev/engines up", name)
	return v
}

// newWorld starts everything; names carry the time, so that runs on the same
// engines do not meet.
func newWorld(t *testing.T, s shape) *world {
	t.Helper()
	w := newBareWorld(t, s)
	w.command("topics", "--config", w.file)
	w.key = w.makeKey()
	w.startAll(s)
	return w
}

// newBareWorld has a simulator and a configuration and runs nothing.
func newBareWorld(t *testing.T, s shape) *world {
	t.Helper()
	w := &world{t: t, prefix: "e2e" + strconv.FormatInt(time.Now().UnixNano(), 36), parts: map[string]*herd.Process{}, addr: map[string]string{}}
	w.startSim(s.followers)
	w.herd = herd.New(t)
	w.writeConfig(s)
	return w
}

func (w *world) startSim(followers int) {
	cfg := wechatsim.DefaultConfig()
	cfg.Accounts = []wechatsim.Account{{AppID: appID, Secret: secret, GhID: ghID, Token: token, EncodingAESKey: aesKey, Mode: wechatsim.ModeSafe, Followers: followers}}
	cfg.Deliveries = 4
	// The windows of WeChat would hide what comes late after a kill.
	cfg.Limits.Message.Count, cfg.Limits.Menu.Count, cfg.Limits.Menu.Life = 100, 100, time.Hour
	sim, err := wechatsim.New(cfg, zap.NewNop())
	require.NoError(w.t, err)
	require.NoError(w.t, sim.Start())
	w.t.Cleanup(func() { _ = sim.Close() })
	w.sim = sim
}

// schema makes a PostgreSQL schema of our own and gives the DSN that uses it.
func (w *world) schema() string {
	base := engine(w.t, "POSTGRES")
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	db, err := sqldb.Open(ctx, sqldb.Config{Driver: sqldb.Postgres, DSN: base})
	require.NoError(w.t, err)
	_, err = db.Exec(ctx, "CREATE SCHEMA "+w.prefix)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		_, _ = db.Exec(context.Background(), "DROP SCHEMA "+w.prefix+" CASCADE")
		_ = db.Close()
	})
	u, err := url.Parse(base)
	require.NoError(w.t, err)
	q := u.Query()
	q.Set("search_path", w.prefix)
	u.RawQuery = q.Encode()
	w.dsn = u.String()
	return w.dsn
}

// writeConfig writes one file for all roles, with secrets in files and in the
// environment as in production.
func (w *world) writeConfig(s shape) {
	dir := w.t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(w.t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	rules := write("rules.yaml", cmp.Or(s.rules, rulesYAML))
	w.file = write("tidegate.yaml", s.more+fmt.Sprintf(configYAML, w.prefix, s.partitions, engine(w.t, "KAFKA"), engine(w.t, "REDIS"), w.prefix,
		write("dsn", w.schema()), w.sim.URL(), ghID, appID, write("token", token+"\n"), write("key", aesKey), write("secret", secret), rules))
}

// cappedRobot is taken out where what is measured must know no cap. The concurrency
// has room for what a robot that hangs keeps of it until it ends: it is one cap for
// all robots.
const cappedRobot = "robot: {rate: 400, burst: 40, concurrency: 256}"

const configYAML = `
log: {level: info, format: json, hash_key: e2e}
topics: {prefix: %s, partitions: %d, replication: 1, min_insync_replicas: 1}
kafka: {brokers: ["%s"]}
redis: {addrs: ["%s"], prefix: %s}
credit: {off: true} # the simulator's windows are wider, see startSim
database: {driver: postgres, dsn: "file:%s", max_conns: 10}
wechat: {base_urls: ["%s"]}
receipts: {housekeeping_every: 1s} # how often what is counted is shown
accounts:
  - name: card
    gh_id: %s
    app_id: %s
    token: "file:%s"
    encoding_aes_key: "file:%s"
    secret: "file:%s"
    mode: safe
    ` + cappedRobot + `
    sender:
      replies: {rate: 400, burst: 40, concurrency: 64}
      template: {rate: 200, burst: 20, concurrency: 32}
      subscription: {rate: 200, burst: 20, concurrency: 32}
rules: %s
`

const rulesYAML = `
version: 1
fallback: "busy"
rules:
  - name: menu
    match: {event: CLICK}
    reply: [{text: "menu {{ .EventKey }}"}]
  - name: echo
    match: {message_type: text}
    reply: [{text: "echo {{ .Content }}"}]
`

// command runs a subcommand to its end.
func (w *world) command(args ...string) string {
	w.t.Helper()
	path, err := builds.Tidegate()
	require.NoError(w.t, err)
	out, err := exec.Command(path, args...).CombinedOutput()
	require.NoError(w.t, err, "%v: %s", args, out)
	return string(out)
}

func (w *world) makeKey() string {
	w.t.Helper()
	lines := strings.Split(strings.TrimSpace(w.command("apps", "add", "e2e", "--account", "card", "--config", w.file)), "\n")
	return lines[len(lines)-1]
}

// startAll starts the roles against the stream and opens the door last.
func (w *world) startAll(s shape) {
	for i := range s.receiptsWorkers {
		w.role("receipts", i, "api.addr")
	}
	for i := range s.senders {
		w.role("sender", i, "api.addr")
	}
	for i := range s.robots {
		w.role("robot", i, "")
	}
	var doors []string
	for i := range s.proxies {
		var extra []string
		if s.spool {
			extra = w.spoolArgs(fmt.Sprintf("proxy%d", i))
		}
		doors = append(doors, w.role("proxy", i, "proxy.http.addr", extra...))
	}
	w.lb = newBalancer(w.t, doors...)
	require.NoError(w.t, w.sim.SetCallbackURL(w.t.Context(), "", w.lb.url+"/wx/card", true))
}

// role starts one process and returns the address that it was given for key.
func (w *world) role(role string, i int, key string, extra ...string) string {
	w.t.Helper()
	name, ops := fmt.Sprintf("%s%d", role, i), herd.FreeAddr(w.t)
	args := []string{role, "--config", w.file, "--set", "ops.addr=" + ops}
	switch role {
	case "sender":
		args = append(args, "--set", "sender.node="+name)
	case "robot":
		args = append(args, "--set", "kafka.client_id="+name) // how the group shows who holds what
	}
	if w.extra != nil {
		args = append(args, w.extra(role)...)
	}
	if key != "" {
		w.addr[name] = herd.FreeAddr(w.t)
		args = append(args, "--set", key+"="+w.addr[name])
	}
	path, err := builds.Tidegate()
	require.NoError(w.t, err)
	w.parts[name] = w.herd.Start(herd.Spec{Name: name, Path: path, Args: append(args, extra...), Ops: ops})
	return w.addr[name]
}

// client speaks to the push API of sender i.
func (w *world) client(i int) *client.Client {
	w.t.Helper()
	c, err := client.New("http://"+w.addr[fmt.Sprintf("sender%d", i)], w.key, client.Options{})
	require.NoError(w.t, err)
	return c
}
