package sender_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
)

const (
	canaryToken  = "CANARY-access-token-0123456789"
	canarySecret = "CANARYsecret0123456789abcdef0123"
	canaryText   = "CANARY 13800138000 110101199003070011"
)

// chatterbox is a WeChat that quotes whatever it was sent, in every way in which
// an answer can be wrong.
func chatterbox(t *testing.T, calls *atomic.Int64) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "stable_token") {
			fmt.Fprintf(rw, `{"access_token":%q,"expires_in":7200}`, canaryToken)
			return
		}
		n := calls.Add(1)
		quote := r.URL.String() + " secret " + r.URL.Query().Get("access_token")
		switch n % 12 { // not so many in a row that the road is closed
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			rw.WriteHeader(http.StatusBadGateway)
			fmt.Fprintf(rw, "<html>cannot reach %s</html>", quote)
		case 2:
			http.Redirect(rw, r, "https://elsewhere.example"+r.URL.String(), http.StatusFound)
		case 3:
			fmt.Fprintf(rw, `{"errcode":-1,"errmsg":%q}`, "system busy "+quote)
		default:
			fmt.Fprintf(rw, `{"errcode":47003,"errmsg":%q}`, "argument invalid "+quote)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// S50, S51, S53: whatever WeChat answers, neither token nor secret is in a log line,
// an alarm, a receipt, a dead letter or a metric; what followers wrote and who they
// are is in no log line; and followers add no series.
func TestS51NothingOfACallGetsOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int64
	host := chatterbox(t, &calls)
	client, err := wechat.NewClient(nil, wechat.Options{BaseURLs: []string{host.URL}})
	require.NoError(t, err)
	t.Cleanup(client.CloseIdle)
	board := alarm.NewBoard(zap.NewNop(), nil, nil)
	r := w.start(func(s *setup) {
		s.wechat, s.alarms, s.secret = client, board, canarySecret
		s.cfg.Retry.MaxTries = 2
	})
	series := func() (n int, text string) {
		families, err := r.reg.Gather()
		require.NoError(t, err)
		var b strings.Builder
		for _, f := range families {
			n += len(f.GetMetric())
			b.WriteString(f.String())
		}
		return n, b.String()
	}
	ids := []string{}
	for i, f := range w.followers {
		ids = append(ids,
			w.push(fmt.Sprint("push ", i), func(p *wire.Push) { p.OpenID, p.Data = f, map[string]string{"thing1": canaryText} }),
			w.reply(fmt.Sprint("reply ", i), func(r *wire.Reply) { r.OpenID, r.Content.Text = f, canaryText; r.Class = wire.PreferLoss }))
	}
	before := 0
	for i, id := range ids {
		got := w.outcome(id)
		require.NotEqual(t, wire.Accepted, got.State)
		text, err := json.Marshal(got)
		require.NoError(t, err)
		requireNone(t, "a receipt", string(text), canaryToken, canarySecret, "access_token=CANARY")
		if i == len(ids)/2 {
			before, _ = series()
		}
	}
	require.GreaterOrEqual(t, calls.Load(), int64(24), "every wrong answer must have been given")
	for _, rec := range w.dead.all() {
		requireNone(t, "a dead letter", string(rec.Value), canaryToken, canarySecret)
	}
	for _, e := range r.log.All() {
		line, err := json.Marshal(e.ContextMap())
		require.NoError(t, err)
		requireNone(t, "the log", e.Message+string(line), append([]string{"CANARY", "13800138000"}, w.followers...)...)
	}
	after, text := series()
	requireNone(t, "metrics", text, append([]string{"CANARY"}, w.followers...)...)
	require.LessOrEqual(t, after, before+12, "S53: outcomes add series, followers do not")
	requireNone(t, "problems", strings.Join(r.Problems(), "\n"), "CANARY")
	for _, a := range board.Firing() {
		requireNone(t, "alarms", a.Text+a.TextZH, "CANARY")
	}
}

func requireNone(t *testing.T, where, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		require.NotContains(t, text, word, "%s", where)
	}
}
