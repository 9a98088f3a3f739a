package sender_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/api"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
)

// A push travels from the API to WeChat, and its outcome to the receipts.
func TestPushRoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start()
	_, key, err := r.keys.Add(t.Context(), "crm", []string{api.PushesWrite}, []string{api.AllAccounts})
	require.NoError(t, err)
	door := httptest.NewServer(r.Handler())
	defer door.Close()
	defer http.DefaultClient.CloseIdleConnections()
	body := fmt.Sprintf(`{"account":"shop","openid":%q,"template_id":%q,"data":{"thing1":"<b>电费</b> & \u2028"},"url":"https://example.com/?a=1&b=2","reference":"r-1"}`, w.followers[3], template)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, door.URL+"/v1/pushes", bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "order-1")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusAccepted, res.StatusCode, "%s", b)
	var answer struct{ ID string }
	require.NoError(t, json.Unmarshal(b, &answer))

	got := w.outcome(answer.ID)
	require.Equal(t, wire.Accepted, got.State)
	require.Equal(t, "crm", got.App)
	require.Equal(t, "r-1", got.Reference)
	require.Equal(t, template, got.TemplateID)
	require.Equal(t, wire.KindPush, got.MessageKind)
	require.Equal(t, wire.LaneRealtime, got.Lane)
	require.Equal(t, 1, got.Attempt)
	require.False(t, got.PossibleDuplicate)
	arrived := w.arrivals(wechatsim.PathTemplateSend)
	require.Len(t, arrived, 1)
	require.Equal(t, answer.ID, arrived[0].ClientMsgID)
	require.Equal(t, fmt.Sprint(arrived[0].MsgID), got.MsgID)
	require.Equal(t, w.followers[3], arrived[0].OpenID)
}

func TestEveryKindOfLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	ids := map[string]string{
		"text": w.reply("plain text"),
		"news": w.reply("news", func(r *wire.Reply) {
			r.Content = wire.Content{Type: "news", News: &wire.Article{Title: "t", Description: "d", URL: "https://example.com", PicURL: "https://example.com/p.png"}}
		}),
		"image": w.reply("image", func(r *wire.Reply) { r.Content = wire.Content{Type: "image", MediaID: "media-1"} }),
		"voice": w.reply("voice", func(r *wire.Reply) { r.Content = wire.Content{Type: "voice", MediaID: "media-2"} }),
		"video": w.reply("video", func(r *wire.Reply) {
			r.Content = wire.Content{Type: "video", Video: &wire.Video{MediaID: "media-3", Title: "t"}}
		}),
		"music": w.reply("music", func(r *wire.Reply) {
			r.Content = wire.Content{Type: "music", Music: &wire.Music{Title: "t", URL: "https://example.com/a.mp3", ThumbMediaID: "media-4"}}
		}),
		"msgmenu": w.reply("menu", func(r *wire.Reply) {
			r.Content = wire.Content{Type: "msgmenu", Menu: &wire.Menu{Head: "well?", Items: []wire.MenuItem{{ID: "1", Text: "good"}, {ID: "2", Text: "bad"}}, Tail: "thanks"}}
		}),
		"template": w.push("template", func(p *wire.Push) { p.MiniAppID, p.MiniPath = "wx0123456789abcdef", "pages/a?b=1" }),
		"bulk":     w.push("bulk", func(p *wire.Push) { p.Lane = wire.LaneBulk }),
		"subscription": w.push("subscription", func(p *wire.Push) {
			p.PushKind, p.Page = wire.PushSubscription, "pages/index"
		}),
	}
	for kind, id := range ids {
		got := w.outcome(id)
		require.Equal(t, wire.Accepted, got.State, "%s: %+v", kind, got)
	}
	types := map[string]int{}
	for _, e := range w.arrivals(wechatsim.PathCustomSend) {
		types[e.MsgType]++
	}
	require.Equal(t, map[string]int{"text": 1, "news": 1, "image": 1, "voice": 1, "video": 1, "music": 1, "msgmenu": 1}, types)
	require.Len(t, w.arrivals(wechatsim.PathTemplateSend), 2)
	require.Len(t, w.arrivals(wechatsim.PathBizSend), 1)
	require.Len(t, w.arrivals(wechatsim.PathStableToken), 1)
}

func TestOneFollowersRepliesStayInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.sim.SetFaults(wechatsim.Fault{Do: wechatsim.FaultErrcode, Errcode: 45011, API: wechatsim.PathCustomSend, Count: 1, After: 7}))
	w.start()
	var ids []string
	for i := range 30 {
		ids = append(ids, w.reply(fmt.Sprintf("message %02d", i)))
	}
	for _, id := range ids {
		require.Equal(t, wire.Accepted, w.outcome(id).State)
	}
	var seen []string
	for _, e := range w.arrivals(wechatsim.PathCustomSend) {
		if e.Visible {
			seen = append(seen, e.Text)
		}
	}
	require.Len(t, seen, 30)
	require.IsIncreasing(t, seen)
	require.Equal(t, 1, w.sim.Faults()[0].Hits)
}

func TestCopiesOfALetterAreSentOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	for range 5 {
		w.push("one")
	}
	id := w.push("one")
	require.Equal(t, wire.Accepted, w.outcome(id).State)
	last := w.push("two") // behind them in the same partition
	require.Equal(t, wire.Accepted, w.outcome(last).State)
	require.Len(t, w.arrivals(wechatsim.PathTemplateSend), 2)
	require.Len(t, w.outcomes(id), 1)
}

func TestExpiredLettersAreNotTried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	ago := func(d time.Duration) int64 { return time.Now().Add(-d).UnixMilli() }
	ids := []string{
		w.push("late push", func(p *wire.Push) { p.ExpiresAt = ago(time.Second) }),
		w.reply("late reply", func(r *wire.Reply) { r.ExpiresAt = ago(time.Second) }),
		w.reply("old reply", func(r *wire.Reply) { r.ReceivedAt = ago(48*time.Hour + time.Second) }),
	}
	for _, id := range ids {
		got := w.outcome(id)
		require.Equal(t, wire.Expired, got.State)
		require.Zero(t, got.Attempt)
	}
	require.Empty(t, w.arrivals(wechatsim.PathTemplateSend))
	require.Empty(t, w.arrivals(wechatsim.PathCustomSend))
}
