package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tidegate/pkg/kafka/kafkamem"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/run"
	"tidegate/pkg/wechat"
)

// gate is a running door whose files a test rewrites.
type gate struct {
	t    *testing.T
	src  Source
	e    *engines
	p    *part
	logs *observer.ObservedLogs

	asked int // each request has a nonce of its own
}

const (
	gateFile = `
kafka: {brokers: ["%s"]}
redis: {addrs: ["%s"], timeout: 2s}
topics: {prefix: reload, partitions: 1, replication: 1, min_insync_replicas: 1}
proxy: {http: {addr: "127.0.0.1:0"}}
rules: '%s'
accounts:
`
	gateAccount = "  - {name: %s, app_id: wx-%[1]s, gh_id: gh_%[1]s, token: token-%[1]s, mode: plain, allow_from: [127.0.0.1]}\n"
	gateRules   = "version: 1\nrules:\n  - name: hours\n    match: {text: {equals: hours}}\n    answer: at_once\n    reply: {text: \"%s\"}\n"
)

func newGate(t *testing.T) *gate {
	t.Helper()
	broker, err := kafkamem.Start(kafkamem.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	cache, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(cache.Close)
	dir := t.TempDir()
	g := &gate{t: t, src: Source{File: filepath.Join(dir, "tidegate.yaml")}}
	g.setRules(fmt.Sprintf(gateRules, "nine to five"))
	head := fmt.Sprintf(gateFile, broker.Addr(), cache.Addr(), filepath.Join(dir, "rules.yaml"))
	g.write("tidegate.yaml", head+fmt.Sprintf(gateAccount, "card"))
	g.start()
	return g
}

func (g *gate) start() {
	c, err := loadFor(g.src, RoleProxy)
	require.NoError(g.t, err)
	core, logs := observer.New(zap.InfoLevel)
	g.logs, g.e = logs, newEngines(c, zap.New(core))
	g.t.Cleanup(func() { require.NoError(g.t, g.e.stack.Stop(context.Background())) })
	admin, err := g.e.Admin()
	require.NoError(g.t, err)
	_, err = admin.EnsureTopics(g.t.Context(), c.topicSpecs())
	require.NoError(g.t, err)
	g.p, err = buildPart(g.t.Context(), RoleProxy, g.e, partOptions{rules: rulesSource{path: c.Rules}})
	require.NoError(g.t, err)
	group := run.NewGroup(g.t.Context())
	for _, s := range g.p.services {
		group.Go(s)
	}
	g.t.Cleanup(func() { group.Stop(); require.NoError(g.t, group.Wait()) })
}

func (g *gate) write(name, text string) {
	require.NoError(g.t, os.WriteFile(filepath.Join(filepath.Dir(g.src.File), name), []byte(text), 0o600))
}

func (g *gate) setRules(text string) { g.write("rules.yaml", text) }

func (g *gate) add(text string) {
	old, err := os.ReadFile(g.src.File)
	require.NoError(g.t, err)
	g.write("tidegate.yaml", string(old)+text)
}

// ask signs a request as WeChat does for the account, and gives what the door
// answers.
func (g *gate) ask(account, method, body string) (status int, text string) {
	timestamp := fmt.Sprint(time.Now().Unix())
	g.asked++
	nonce := fmt.Sprint("n", g.asked)
	q := url.Values{"timestamp": {timestamp}, "nonce": {nonce}, "signature": {wechat.Signature("token-"+account, timestamp, nonce)}}
	if method == http.MethodGet {
		q.Set("echostr", "hello-"+account)
	}
	req, err := http.NewRequestWithContext(g.t.Context(), method, "http://"+g.p.addr["door"]+"/wx/"+account+"?"+q.Encode(), strings.NewReader(body))
	require.NoError(g.t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(g.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(g.t, err)
	return resp.StatusCode, string(b)
}

func (g *gate) open(account string) bool {
	status, text := g.ask(account, http.MethodGet, "")
	return status == http.StatusOK && text == "hello-"+account
}

// hours is the door's answer to a follower who asks for them.
func (g *gate) hours(msgID int) string {
	status, text := g.ask("card", http.MethodPost, fmt.Sprintf("<xml><ToUserName>gh_card</ToUserName><FromUserName>o1</FromUserName><CreateTime>%d</CreateTime>"+
		"<MsgType>text</MsgType><Content>hours</Content><MsgId>%d</MsgId></xml>", time.Now().Unix(), msgID))
	require.Equal(g.t, http.StatusOK, status)
	return text
}

// reload lets the part read its files again and gives the one line that it logs.
func (g *gate) reload() observer.LoggedEntry {
	g.logs.TakeAll()
	g.p.reload(g.src, g.e)
	lines := g.logs.FilterLoggerName("settings").All()
	require.Len(g.t, lines, 1)
	return lines[0]
}

// D4: an account added to the configuration is picked up without a restart.
func TestReloadTakesAnAddedAccountAndChangedRules(t *testing.T) {
	g := newGate(t)
	require.True(t, g.open("card"))
	require.False(t, g.open("second"))
	require.Contains(t, g.hours(1), "nine to five")

	g.add(fmt.Sprintf(gateAccount, "second"))
	g.setRules(fmt.Sprintf(gateRules, "ten to six"))
	line := g.reload()
	require.Equal(t, zap.InfoLevel, line.Level)
	require.EqualValues(t, 2, line.ContextMap()["accounts"])
	require.True(t, g.open("second"))
	require.True(t, g.open("card"))
	require.Contains(t, g.hours(2), "ten to six")
}

func TestReloadRefusesWhatIsBroken(t *testing.T) {
	g := newGate(t)
	whole, err := os.ReadFile(g.src.File)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		brk  func()
		want string
	}{
		"no YAML":         {func() { g.add("  - {name: second") }, "read configuration"},
		"unknown key":     {func() { g.add(fmt.Sprintf(gateAccount, "second") + "acounts: []\n") }, "acounts"},
		"invalid account": {func() { g.add(fmt.Sprintf(gateAccount, "second") + "  - {name: third, app_id: wx3}\n") }, "accounts[2] (third)"},
		"unreadable secret": {func() {
			g.add("  - {name: second, app_id: wx2, mode: plain, allow_from: [any], token: 'file:/does/not/exist'}\n")
		}, "accounts[1].token"},
		"rules": {func() {
			g.add(fmt.Sprintf(gateAccount, "second"))
			g.setRules(strings.Replace(fmt.Sprintf(gateRules, "never"), "match", "mach", 1))
		}, "rules.yaml:4:5"},
		"no file": {func() { require.NoError(t, os.Remove(g.src.File)) }, "tidegate.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				g.write("tidegate.yaml", string(whole))
				g.setRules(fmt.Sprintf(gateRules, "nine to five"))
			}()
			c.brk()
			line := g.reload()
			require.Equal(t, zap.ErrorLevel, line.Level)
			require.Contains(t, line.ContextMap()["error"], c.want)
			require.Regexp(t, "not taken; .* (stay|stays)", line.Message)
			require.False(t, g.open("second"), "nothing of a broken change is taken")
			require.True(t, g.open("card"), "what was goes on")
		})
	}
	require.Equal(t, zap.InfoLevel, g.reload().Level, "and once it is mended it is taken")
}

// A back end that was added together with a rule that calls it takes a restart:
// until then neither the rules nor the accounts of that change are taken.
func TestReloadLeavesNewBackEndsToARestart(t *testing.T) {
	dir := t.TempDir()
	config, rules := filepath.Join(dir, "tidegate.yaml"), filepath.Join(dir, "rules.yaml")
	write := func(backend, account string) {
		require.NoError(t, os.WriteFile(rules, fmt.Appendf(nil,
			"version: 1\nrules:\n  - name: bill\n    match: {text: {equals: bill}}\n    call: {backend: %s, path: /bill}\n    reply: {text: ok}\n", backend), 0o600))
		require.NoError(t, os.WriteFile(config, fmt.Appendf(nil,
			"kafka: {brokers: [\"127.0.0.1:1\"]}\nrules: '%s'\nrobot: {backends: [{name: %s, base_url: \"http://127.0.0.1:9\"}]}\naccounts:\n"+gateAccount, rules, backend, account), 0o600))
	}
	write("core", "card")
	src := Source{File: config}
	c, err := loadFor(src, RoleRobot)
	require.NoError(t, err)
	core, logs := observer.New(zap.InfoLevel)
	e := newEngines(c, zap.New(core))
	defer func() { require.NoError(t, e.stack.Stop(t.Context())) }()
	p, err := buildPart(t.Context(), RoleRobot, e, partOptions{rules: rulesSource{path: c.Rules}})
	require.NoError(t, err)
	taken := 0
	p.accounts = func(Config) error { taken++; return nil }

	write("second", "added")
	p.reload(src, e)
	require.Zero(t, taken)
	refused := logs.FilterMessageSnippet("takes a restart").All()
	require.Len(t, refused, 1)
	require.Contains(t, refused[0].ContextMap()["error"], "second")
	write("core", "added")
	p.reload(src, e)
	require.Equal(t, 1, taken)
}

// The watcher sees changed content, not times; a file that is away for a
// moment is not a change.
func TestWatchTellsWhichFileChanged(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	put := func(path, text string) {
		require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
	put(a, "1")
	put(b, "1")
	seen := make(chan []string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		watch(ctx, []string{a, b}, time.Millisecond, func(paths []string) { seen <- paths })
	}()
	// The first change may come before the watcher has read the files: repeat it
	// with new content until it is seen.
	for i := 0; len(seen) == 0; i++ {
		put(b, fmt.Sprint("2.", i))
	}
	require.Equal(t, []string{b}, <-seen)
	cancel()
	<-done
	for len(seen) > 0 {
		require.Equal(t, []string{b}, <-seen, "a never changed")
	}
}
