package wechatsim

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// replyBot answers every callback that carries a mark through the API.
func replyBot(t *testing.T, mode string) (*bot, *Sim) {
	b := newBot(t, mode)
	cfg := testConfig(mode)
	cfg.Limits.Message.Count = 1000
	cfg.Limits.Menu.Count = 1000
	cfg.Limits.Scan.Count = 1000
	cfg.Receipts.Delay = time.Millisecond
	s := newSim(t, cfg, b)
	token := stable(t, s, false).Token
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = func(w http.ResponseWriter, r received) {
		_, _ = io.WriteString(w, "success")
		_ = http.NewResponseController(w).Flush()
		about := r.fields["Content"] + r.fields["EventKey"]
		if strings.Contains(about, markPrefix) {
			resp, err := b.server.Client().Post(s.URL()+PathCustomSend+"?access_token="+token, "application/json",
				strings.NewReader(textTo(r.fields["FromUserName"], "reply to "+about)))
			if err == nil {
				_ = resp.Body.Close()
			}
		}
	}
	return b, s
}

func TestLoadIsAnsweredInEveryMode(t *testing.T) {
	for _, mode := range []string{ModePlain, ModeCompatible, ModeSafe} {
		t.Run(mode, func(t *testing.T) {
			b, s := replyBot(t, mode)
			report, err := s.Load(t.Context(), LoadSpec{Count: 60, Mix: Mix{Text: 3, Menu: 1, Scan: 1, Subscribe: 1}})
			require.NoError(t, err)
			require.EqualValues(t, 60, report.Acked)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			require.NoError(t, s.Idle(ctx))
			v := s.Verdict(0)
			require.True(t, v.OK, "%+v", v)
			require.EqualValues(t, 60, v.Callbacks.Acked)
			require.EqualValues(t, 60, v.Replies.Answered)
			require.Len(t, b.received(), 60)
			require.Greater(t, v.Callbacks.AckMaxMs, 0.0)
		})
	}
}

func TestTemplateReceiptComesBackAsACallback(t *testing.T) {
	b, s := replyBot(t, ModeSafe)
	token := stable(t, s, false).Token
	ids, err := s.Followers("", 1)
	require.NoError(t, err)
	body := `{"touser":"` + ids[0] + `","template_id":"T1","client_msg_id":"c1","data":{"thing1":{"value":"你好"}}}`
	a := post(t, s, PathTemplateSend, token, body)
	require.Zero(t, a.Errcode, a.Errmsg)
	require.Greater(t, a.MsgID, int64(1)<<53)
	again := post(t, s, PathTemplateSend, token, body)
	require.Equal(t, a.MsgID, again.MsgID)
	require.Eventually(t, func() bool { return s.Verdict(0).Receipts.Delivered == 1 }, 5*time.Second, time.Millisecond)
	got := b.received()
	require.Len(t, got, 1)
	require.Equal(t, EventTemplateFinish, got[0].fields["Event"])
	require.Equal(t, "success", got[0].fields["Status"])
	v := s.Verdict(0)
	require.EqualValues(t, 2, v.Pushes.Raw)
	require.EqualValues(t, 1, v.Pushes.Visible)
	require.EqualValues(t, 1, v.Pushes.Absorbed)
	require.Zero(t, v.Pushes.Doubled)
	require.True(t, v.OK)
}
