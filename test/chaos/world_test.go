//go:build chaos

package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/herd"
	"tidegate/test/chaos/history"
	"tidegate/test/chaos/reader"
)

// accounts of every world: one encrypted, one in plain text.
var accounts = []drive.Account{
	{Name: "card", AppID: "wx9f3c7b21d08e4a56", GhID: "gh_5d1e0a77c3b2", Token: "chaos-token-2031", EncodingAESKey: "Qm7rT0xkV3sZ9bYh2LdNcP5wEaGfJu8oXiKyRzMt4Bq"},
	{Name: "shop", AppID: "wx9f3c7b21d08e4a57", GhID: "gh_5d1e0a77c3b3", Token: "chaos-token-2031"},
}

// world is one scenario: doors over the engines, a driver in front of them, and
// the history of what happens.
type world struct {
	t      *testing.T
	e      *engines
	broker *herd.Engine
	h      *herd.Herd
	dice   *rand.Rand
	run    string // names topics and marks
	config string
	doors  []*herd.Process
	addrs  []drive.Door
	drive  *drive.Driver
	log    *history.Writer
	file   string
	start  time.Time
	ids    atomic.Uint64
	slow   float64
}

type shape struct {
	doors   int
	broker  *herd.Engine // nil is Apache Kafka
	routing drive.Routing
	spools  string               // folder of the spools; empty is in the run folder
	set     func(i int) []string // further --set of a door; nil is none
	extra   string               // further lines of the configuration
	rules   string               // empty is rulesYAML
}

func newWorld(t *testing.T, e *engines, s shape) *world {
	t.Helper()
	w := &world{t: t, e: e, broker: s.broker, h: herd.New(t), slow: e.slow, start: time.Now()}
	if w.broker == nil {
		w.broker = e.kafka
	}
	w.dice = herd.Dice(t, "go test -tags chaos ./test/chaos")
	w.run = strconv.FormatInt(time.Now().UnixNano()/1000, 36)
	w.ids.Store(uint64(time.Now().UnixNano()))
	w.openHistory()
	w.writeConfig(s)
	w.command("topics", "--config", w.config)
	for i := range s.doors {
		w.addrs = append(w.addrs, w.door(i, s))
	}
	if s.doors == 0 {
		return w // nobody knocks
	}
	d, err := drive.New(drive.Options{Doors: w.addrs, Accounts: accounts, Routing: s.routing, History: w.log})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	w.drive = d
	return w
}

func (w *world) openHistory() {
	w.file = filepath.Join(w.h.Dir, "history-"+w.run+".jsonl")
	log, err := history.Create(w.file, w.start)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = log.Close() })
	w.log = log
	w.h.Record(log)
	w.e.herd.Record(log)
	w.t.Cleanup(func() { w.e.herd.Record(nil) })
}

const configYAML = `
log: {level: info, format: json, hash_key: chaos}
topics: {prefix: %[1]s, partitions: 8, replication: 1, min_insync_replicas: 1}
kafka: {brokers: ["%[2]s"]}
proxy: {http: {trusted_proxies: [127.0.0.1]}} # the balancer inside the driver
redis: {addrs: ["%[3]s"], prefix: %[1]s}
credit: {off: true} # the simulator's windows are wider than WeChat's: they would hide what comes late
accounts:
  - {name: card, mode: safe, gh_id: %[4]s, app_id: %[5]s, token: %[6]s, encoding_aes_key: %[7]s, secret: %[11]s, robot: %[12]s, sender: {replies: %[12]s, template: %[12]s}}
  - {name: shop, mode: plain, allow_from: [127.0.0.0/8], gh_id: %[8]s, app_id: %[9]s, token: %[6]s, secret: %[11]s, robot: %[12]s, sender: {replies: %[12]s, template: %[12]s}}
rules: %[13]s
%[10]s
`

// What the accounts may cost is no part of what is broken here.
const (
	appSecret = "0123456789abcdef0123456789abcdef"
	limits    = "{rate: 2000, burst: 200, concurrency: 64}"
)

const rulesYAML = `
version: 1
fallback: "busy"
rules:
  - name: echo
    match: {message_type: text}
    reply: [{text: "echo {{ .Content }}"}]
`

func (w *world) writeConfig(s shape) {
	rules := filepath.Join(w.h.Dir, "rules.yaml")
	require.NoError(w.t, os.WriteFile(rules, []byte(cmp.Or(s.rules, rulesYAML)), 0o600))
	w.config = filepath.Join(w.h.Dir, "tidegate-"+w.run+".yaml")
	a, b := accounts[0], accounts[1]
	text := fmt.Sprintf(configYAML, w.run, w.broker.Addr, w.e.redis.Addr, a.GhID, a.AppID, a.Token, a.EncodingAESKey, b.GhID, b.AppID, s.extra, appSecret, limits, rules)
	require.NoError(w.t, os.WriteFile(w.config, []byte(text), 0o600))
}

// command runs a subcommand to its end and gives what it prints.
func (w *world) command(args ...string) string {
	w.t.Helper()
	path, err := builds.Tidegate()
	require.NoError(w.t, err)
	cmd := exec.Command(path, args...)
	cmd.Env = herd.Environ()
	out, err := cmd.CombinedOutput()
	require.NoError(w.t, err, "%v: %s", args, out)
	return string(out)
}

// door starts a proxy with a spool of its own.
func (w *world) door(i int, s shape) drive.Door {
	w.t.Helper()
	name := "door" + strconv.Itoa(i)
	addr := herd.FreeAddr(w.t)
	spools := s.spools
	if spools == "" {
		spools = w.h.Dir
	}
	args := []string{"proxy.http.addr=" + addr, "proxy.spool.dir=" + filepath.Join(spools, "spool-"+w.run+"-"+name)}
	if s.set != nil {
		args = append(args, s.set(i)...)
	}
	w.doors = append(w.doors, w.role("proxy", name, args...))
	return drive.Door{Name: name, Addr: addr}
}

// role starts a process of the program.
func (w *world) role(role, name string, set ...string) *herd.Process {
	w.t.Helper()
	path, err := builds.Tidegate()
	require.NoError(w.t, err)
	ops := herd.FreeAddr(w.t)
	args := []string{role, "--config", w.config, "--set", "ops.addr=" + ops}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	return w.h.Start(herd.Spec{Name: name, Path: path, Args: args, Ops: ops})
}

// text is a new text message of a user.
func (w *world) text(n int, account, openid string) drive.Act {
	return drive.Act{Token: drive.Mark(w.run, n), Account: account, OpenID: openid, MsgID: w.ids.Add(1), CreateTime: time.Now().Unix()}
}

// crowd gives acts of many users, a quarter of them at the plain account. Its
// user is always the same for the same n.
func (w *world) crowd(users int) func(n int) drive.Act {
	return func(n int) drive.Act {
		u := n % users
		a := accounts[0].Name
		if u%4 == 3 {
			a = accounts[1].Name
		}
		return w.text(n, a, user(u))
	}
}

func user(u int) string { return fmt.Sprintf("oChaos%022d", u) }

func (w *world) topics() []string {
	names := wire.Topics{Prefix: w.run}
	return []string{names.Callbacks(accounts[0].Name), names.Callbacks(accounts[1].Name)}
}

// patience is a deadline on a quiet machine, widened for this one.
func (w *world) patience(d time.Duration) time.Duration { return time.Duration(float64(d) * w.slow) }

// rate is one for a quiet machine, lowered for this one: a promise about
// latency is about a machine that is not full.
func (w *world) rate(r float64) float64 { return max(r/w.slow, r/10) }

// settled waits until every door has handed the queue what was in its spool.
func (w *world) settled() {
	w.t.Helper()
	for _, d := range w.doors {
		herd.Wait(w.t, d.Name+" to empty its spool", w.patience(60*time.Second), func() bool {
			return d.Metric("tidegate_proxy_spool_limit_bytes") > 0 && d.Metric("tidegate_proxy_spool_records") == 0
		})
	}
}

// spooled is how many records are in the doors' spools.
func (w *world) spooled() float64 {
	n := 0.0
	for _, d := range w.doors {
		n += d.Metric("tidegate_proxy_spool_records")
	}
	return n
}

// inFlight is what WeChat waits for at this moment: a fault that meets nothing
// in flight proves nothing.
func (w *world) waitForWork() int64 {
	w.t.Helper()
	var n int64
	herd.Wait(w.t, "deliveries in flight", w.patience(10*time.Second), func() bool {
		n = w.drive.InFlight()
		return n > 0
	})
	return n
}

// events closes the history, reads the log of Kafka and gives everything.
func (w *world) events() []history.Event {
	w.t.Helper()
	w.settled()
	n, err := reader.Callbacks(w.t.Context(), w.broker.Addr, w.topics(), w.log)
	require.NoError(w.t, err)
	require.Positive(w.t, n, "the log is empty")
	require.NoError(w.t, w.log.Close())
	events, err := history.Read(w.file)
	require.NoError(w.t, err)
	return events
}

// ci prints a line that the CI shows.
func ci(t *testing.T, format string, args ...any) { t.Helper(); t.Logf("CI: "+format, args...) }

// acks is how many deliveries have been acknowledged.
func (w *world) acks() int64 { return w.drive.Acked() }
