package robot_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/robot/backend"
)

// botSettings makes the back end core a bot named old.
func botSettings(c *backend.Config) {
	c.Name, c.Type, c.Bot = "old", backend.TypeWeChat, backend.BotConfig{Token: "bot-token", Mode: wechat.ModePlain}
}

func withBody(c *wire.Callback) *wire.Callback {
	c.ToUser = "gh_1"
	c.Body = []byte("<xml><FromUserName>" + c.OpenID + "</FromUserName><Content>" + c.Content + "</Content></xml>")
	return c
}

// A bot that answers, keeps silent and fails, in the room: replies, receipts and
// the fallback text as for any other rule; the next rules have the others.
func TestABotAnswersInThePlaceOfRules(t *testing.T) {
	w := newWorld(t, "a")
	w.backend(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch openid := r.URL.Query().Get("openid"); {
		case strings.Contains(string(body), "quiet"):
			_, _ = io.WriteString(rw, "success")
		case strings.Contains(string(body), "break"):
			_, _ = io.WriteString(rw, "<html></html>")
		default:
			_, _ = io.WriteString(rw, "<xml><ToUserName>"+openid+"</ToUserName><FromUserName>gh_1</FromUserName><MsgType>text</MsgType><Content>bot</Content></xml>")
		}
	}, botSettings)
	w.engine = rulesOf(t, "  - {name: old, match: {text: {prefix: old}}, bot: old, fallback: later}\n  - {name: new, match: {default: true}, reply: {text: new}}\n")
	w.start(account("a"))
	asked, quiet, broken, other := withBody(callback("a", "o1", 1, "old")), withBody(callback("a", "o2", 1, "old quiet")), withBody(callback("a", "o3", 1, "old break")), callback("a", "o4", 1, "x")
	w.send(asked, quiet, broken, other)
	w.awaitReceipts(4)
	require.Equal(t, []string{"bot"}, w.texts("o1"))
	require.Empty(t, w.texts("o2"))
	require.Equal(t, []string{"later"}, w.texts("o3"))
	require.Equal(t, []string{"new"}, w.texts("o4"))
	require.Equal(t, "rule old, bot old", w.receipt(asked.ID).Detail)
	require.Equal(t, wire.NotAnswered, w.receipt(quiet.ID).State)
	require.Equal(t, "the bot gave no answer", w.receipt(quiet.ID).Reason)
	require.Contains(t, w.receipt(broken.ID).Reason, "neither success, nor empty")
}

// Changed rules move followers while the robot runs; rules that ask an unknown
// bot, or call one as a back end, are refused.
func TestCutOverWhileRunning(t *testing.T) {
	w := newWorld(t, "a")
	w.backend(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, "<xml><ToUserName>"+r.URL.Query().Get("openid")+"</ToUserName><FromUserName>gh_1</FromUserName><MsgType>text</MsgType><Content>bot</Content></xml>")
	}, botSettings)
	half := rulesOf(t, "  - {name: old, match: {default: true}, bot: {name: old, percent: 100}}\n  - {name: new, match: {default: true}, reply: {text: new}}\n")
	w.engine = half
	r := w.start(account("a"))
	for i, percent := range []float64{100, 0, 100} {
		rules, err := half.WithShare("old", percent)
		if i == 0 {
			rules, err = half, nil
		}
		require.NoError(t, err)
		require.NoError(t, r.SetRules(rules))
		w.send(withBody(callback("a", "o1", i, "x")))
		w.awaitReceipts(i + 1)
	}
	require.Equal(t, []string{"bot", "new", "bot"}, w.texts("o1"))
	require.NoError(t, testutil.GatherAndCompare(w.reg, strings.NewReader("# HELP tidegate_robot_bot_percent Per cent of the followers whom a rule leaves to a bot, by the rules in force.\n# TYPE tidegate_robot_bot_percent gauge\ntidegate_robot_bot_percent{bot=\"old\",rule=\"old\"} 100\n"), "tidegate_robot_bot_percent"))
	require.ErrorContains(t, r.SetRules(rulesOf(t, "  - {name: x, match: {default: true}, bot: other}\n")), `the bot "other"`)
	require.ErrorContains(t, r.SetRules(rulesOf(t, "  - {name: x, match: {default: true}, call: {backend: old, path: /x}}\n")), `the back end "old"`)
	require.Equal(t, []string{"old"}, w.cfg.BotNames())
	require.Empty(t, w.cfg.BackendNames())
}
