//go:build e2e

package e2e

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat/wechatsim"
	"tidegate/test/chaos/herd"
)

const (
	botToken = "the-bots-own-token" // not the account's: that one is Tidegate's now
	botKey   = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"

	botBackend = `
robot:
  backends:
    - name: old
      type: wechat
      base_url: http://127.0.0.1:%s/wechat
      rate: 400
      burst: 40
      concurrency: 40
      bot: {token: %s, app_id: %s, encoding_aes_key: %s}
`
	cutOverRules = `
version: 1
fallback: "busy"
rules:
  - name: to-the-bot
    match: {default: true}
    bot: {name: old, percent: %d}
  - name: ours
    match: {message_type: text}
    reply: [{text: "new {{ .Content }}"}]
`
)

// bot is the bot that answers today: test/sdk/bot.py, in a process of its own.
type bot struct {
	port string
	mu   sync.Mutex
	said []said
}

// said is one callback that the bot answered.
type said struct {
	MsgID       string `json:"msg_id"`
	OpenID      string `json:"openid"`
	QueryOpenID string `json:"query_openid"`
	Repeat      bool   `json:"repeat"`
	Refused     string `json:"refused"`
}

// startBot runs it with the Python of test/sdk/run.
func startBot(t *testing.T) *bot {
	t.Helper()
	python := os.Getenv("TIDEGATE_SDK_PYTHON")
	require.NotEmpty(t, python, "TIDEGATE_SDK_PYTHON is not set: run test/sdk/run bot, which makes an environment with wechatpy")
	cmd := exec.CommandContext(t.Context(), python, "-W", "ignore", "../sdk/bot.py", botToken, botKey, appID)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	b, lines, ended := &bot{}, bufio.NewScanner(out), make(chan struct{})
	require.True(t, lines.Scan(), "the bot ended at its start")
	b.port = lines.Text()
	go func() {
		defer close(ended)
		for lines.Scan() {
			var s said
			if json.Unmarshal(lines.Bytes(), &s) == nil {
				b.mu.Lock()
				b.said = append(b.said, s)
				b.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended; _ = cmd.Wait() })
	return b
}

// answered is a user's message and the side that answered it.
type answered struct {
	openid, side string
	at           uint64 // the message's number in the journal
}

// sides joins messages with their visible replies, in the order of the messages.
func (w *world) sides(from uint64) []answered {
	w.t.Helper()
	texts := map[string]string{} // by mark
	all, _ := w.sim.Journal().Read(0, 1<<20, func(e *wechatsim.Entry) bool {
		return e.Kind == wechatsim.KindStimulus || e.Kind == wechatsim.KindArrival && e.What == wechatsim.PathCustomSend && e.Visible
	})
	for _, e := range all {
		if e.Kind == wechatsim.KindArrival && len(e.Tokens) == 1 {
			texts[e.Tokens[0]] = e.Text
		}
	}
	var out []answered
	for _, e := range all {
		if e.Kind == wechatsim.KindStimulus && e.Seq > from && len(e.Tokens) == 1 && texts[e.Tokens[0]] != "" {
			side, _, _ := strings.Cut(texts[e.Tokens[0]], " ")
			out = append(out, answered{e.OpenID, side, e.Seq})
		}
	}
	return out
}

// cutOver gives the bot a share of the users and waits until every robot does so.
func (w *world) cutOver(percent int) {
	w.t.Helper()
	rules := filepath.Join(filepath.Dir(w.file), "rules.yaml")
	require.NoError(w.t, os.WriteFile(rules+".new", fmt.Appendf(nil, cutOverRules, percent), 0o600))
	require.NoError(w.t, os.Rename(rules+".new", rules))
	herd.Wait(w.t, fmt.Sprintf("the robots to give the bot %d %%", percent), 20*time.Second, func() bool {
		for _, name := range []string{"robot0", "robot1"} {
			if w.parts[name].MetricWith("tidegate_robot_bot_percent", `bot="old"`) != float64(percent) {
				return false
			}
		}
		return true
	})
}

// An independent bot behind back-end type wechat, under load and without a pause:
// 0, 50 and 100 per cent of the users, and back.
func TestExistingBot(t *testing.T) {
	b := startBot(t)
	const users = 30
	w := newWorld(t, shape{
		partitions: 4, proxies: 1, robots: 2, senders: 1, receiptsWorkers: 1, followers: users,
		more: fmt.Sprintf(botBackend, b.port, botToken, appID, botKey), rules: fmt.Sprintf(cutOverRules, 0),
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	loaded := make(chan error, 1)
	go func() {
		_, err := w.sim.Load(ctx, wechatsim.LoadSpec{For: 3 * time.Minute, Rate: 60, Loop: wechatsim.LoopClosed})
		loaded <- err
	}()
	var half map[string]string
	begun := time.Now()
	for _, percent := range []int{0, 50, 100, 50, 0} {
		w.cutOver(percent)
		side := w.steady(users)
		count := map[string]int{}
		for _, s := range side {
			count[s]++
		}
		switch {
		case percent == 0:
			require.Equal(t, map[string]int{"new": users}, count)
		case percent == 100:
			require.Equal(t, map[string]int{"bot": users}, count)
		case half == nil:
			require.Len(t, count, 2, "both sides have users")
			half = side
		default:
			require.Equal(t, half, side, "the way back is the same")
		}
		ci(t, "bot at %3d %%: %2d users with the bot, %2d with the rules", percent, count["bot"], count["new"])
	}
	stop()
	if err := <-loaded; err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	v := w.settle(30 * time.Second)
	requireRight(t, v)
	w.requireSides()
	asked := b.requireAsked(t, w)
	ci(t, "an independent bot (wechatpy) behind Tidegate, 0, 50, 100 per cent and back under load: %d messages of %d users in %s, %d answered by the bot; lost 0, doubled 0, out of order 0; each user changed side twice",
		v.Replies.Answered, users, time.Since(begun).Round(time.Second), asked)
}

// steady waits until every user has been answered again, and gives the one side
// of each since now.
func (w *world) steady(users int) map[string]string {
	w.t.Helper()
	from, _ := w.sim.Journal().Len()
	side := map[string]string{}
	herd.Wait(w.t, "an answer to every user", 30*time.Second, func() bool {
		clear(side)
		for _, a := range w.sides(from) {
			if was := cmp.Or(side[a.openid], a.side); was != a.side {
				w.t.Fatalf("%s was answered by both sides, %s and %s", a.openid, was, a.side)
			}
			side[a.openid] = a.side
		}
		return len(side) == users
	})
	return side
}

// requireSides looks at the whole run: each user went over to the bot once and
// came back once, whatever messages were on their way when the rules changed.
func (w *world) requireSides() {
	w.t.Helper()
	was := map[string][]string{}
	for _, a := range w.sides(0) {
		if l := was[a.openid]; len(l) == 0 || l[len(l)-1] != a.side {
			was[a.openid] = append(l, a.side)
		}
	}
	for openid, sides := range was {
		require.Equal(w.t, []string{"new", "bot", "new"}, sides, openid)
	}
}

// requireAsked holds what the bot saw against what users got: each message once,
// for the right user, and nothing that it had to refuse.
func (b *bot) requireAsked(t *testing.T, w *world) int {
	t.Helper()
	answered := 0
	for _, a := range w.sides(0) {
		if a.side == "bot" {
			answered++
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.said {
		require.Empty(t, s.Refused)
		require.Equal(t, s.OpenID, s.QueryOpenID)
		require.False(t, s.Repeat, "nothing went wrong, so nothing is asked twice")
	}
	require.Len(t, b.said, answered)
	return answered
}
