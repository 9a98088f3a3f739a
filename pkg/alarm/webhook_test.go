package alarm

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/outhttp"
)

func count(h *Herald, webhook, result string) float64 {
	return testutil.ToFloat64(h.webhooks[0].met.messages.WithLabelValues(webhook, result))
}

func TestFiringAndResolvedReachTheReceiver(t *testing.T) {
	r := startReceiver(t, nil)
	w := hook("ops", r.URL+"/in")
	w.Headers = map[string]string{"Authorization": "Bearer hush"}
	b, _ := running(t, config(w), options("door-1"))
	b.Fire(faulty)
	b.Fire(faulty)
	r.await(t, 1)
	b.Resolve(faulty.Name, faulty.Subject)
	all := r.await(t, 2)
	require.Equal(t, []string{"firing", "resolved"}, r.statuses(t))
	require.Equal(t, "Bearer hush", all[0].header.Get("Authorization"))
	require.Equal(t, "application/json; charset=utf-8", all[0].header.Get("Content-Type"))
	require.Empty(t, all[0].header.Get("Webhook-Signature"))
}

// What begins and ends within one moment is told whole, in its order.
func TestAShortAlarmIsToldWhole(t *testing.T) {
	r := startReceiver(t, nil)
	h, err := newHerald(config(hook("ops", r.URL)), options("n"))
	require.NoError(t, err)
	b := NewBoard(zap.NewNop(), nil, nil, h)
	b.Fire(faulty)
	b.Resolve(faulty.Name, faulty.Subject)
	h.start()
	r.await(t, 2)
	require.NoError(t, h.Stop(t.Context()))
	require.Equal(t, []string{"firing", "resolved"}, r.statuses(t))
	require.Empty(t, h.news)
}

func TestSeverityChoosesReceivers(t *testing.T) {
	all, some := startReceiver(t, nil), startReceiver(t, nil)
	critical := hook("critical", some.URL)
	critical.MinSeverity = string(Critical)
	b, h := running(t, config(hook("all", all.URL), critical), options("n"))
	b.Fire(Alarm{Name: "queue_slow", Severity: Warning})
	b.Fire(faulty)
	all.await(t, 2)
	require.NoError(t, h.Stop(t.Context()))
	require.Len(t, some.seen(), 1)
	require.Equal(t, "queue_faulty", some.seen()[0].json(t)["name"])
}

func TestAFailingReceiverIsTriedAgain(t *testing.T) {
	r := startReceiver(t, func(n int, w http.ResponseWriter) {
		if n < 3 {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	b, h := running(t, config(hook("ops", r.URL)), options("n"))
	b.Fire(faulty)
	all := r.await(t, 3)
	require.NoError(t, h.Stop(t.Context()))
	require.Len(t, r.seen(), 3)
	require.Equal(t, all[0].header.Get("Webhook-Id"), all[2].header.Get("Webhook-Id"), "a receiver can recognise the repeat")
	require.Equal(t, 1.0, count(h, "ops", "delivered"))
	require.Equal(t, 2.0, count(h, "ops", "retried"))
}

func TestAReceiverIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct{ status, requests int }{"in the end": {500, tries}, "at once": {404, 1}, "a redirect": {302, 1}, "not for being busy": {429, tries}} {
		r := startReceiver(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(c.status) })
		b, h := running(t, config(hook("ops", r.URL)), options("n"))
		b.Fire(faulty)
		r.await(t, c.requests)
		require.NoError(t, h.Stop(t.Context()))
		require.Len(t, r.seen(), c.requests, name)
		require.Equal(t, 1.0, count(h, "ops", "failed"), name)
	}
}

// Group robots answer 200 to everything.
func TestARobotThatSaysNoHasNotTakenTheMessage(t *testing.T) {
	for _, c := range []struct{ robot, no, yes string }{
		{wecom, `{"errcode":45009,"errmsg":"api freq out of limit"}`, `{"errcode":0,"errmsg":"ok"}`},
		{dingtalk, `{"errcode":310000,"errmsg":"keywords not in content"}`, `{"errcode":0,"errmsg":"ok"}`},
		{feishu, `{"code":19021,"msg":"sign match fail"}`, `{"code":0,"msg":"success","StatusCode":0,"StatusMessage":"success"}`},
		{feishu, `{}`, `{"StatusCode":0,"StatusMessage":"success"}`},
		{wecom, `<html>login</html>`, `{"errcode":0}`},
	} {
		r := startReceiver(t, func(n int, w http.ResponseWriter) {
			if n == 1 {
				_, _ = w.Write([]byte(c.no))
				return
			}
			_, _ = w.Write([]byte(c.yes))
		})
		w := hook("group", r.URL+"/robot/send?key=k")
		w.Template = c.robot
		b, h := running(t, config(w), options("n"))
		b.Fire(faulty)
		r.await(t, 2)
		require.NoError(t, h.Stop(t.Context()))
		require.Len(t, r.seen(), 2, c.no)
		require.Equal(t, 1.0, count(h, "group", "delivered"), c.no)
		require.Equal(t, 1.0, count(h, "group", "retried"), c.no)
	}
}

func prepared(t *testing.T, w WebhookConfig) outhttp.Request {
	t.Helper()
	h, err := newWebhook(w.withDefaults(), "runbook")
	require.NoError(t, err)
	m := newMessage(Transition{Alarm: faulty, Firing: true, Since: noon, At: noon}, false, "n", English, "runbook")
	m.ID = "id-1"
	r, err := h.prepare(m, time.Unix(1700000030, 0))
	require.NoError(t, err)
	return r
}

// The values were computed with Python's hmac.
func TestRobotsCanVerifyUs(t *testing.T) {
	w := hook("ding", "http://127.0.0.1/robot/send?access_token=tok")
	w.Template, w.Secret = dingtalk, "SECret"
	require.Equal(t, "http://127.0.0.1/robot/send?access_token=tok&sign=80EIO%2FNHjHqSigfCv6Q2YXrOAY16x9TLvV5b00qzhho%3D&timestamp=1700000030000", prepared(t, w).URL)

	w = hook("fei", "http://127.0.0.1/open-apis/bot/v2/hook/x")
	w.Template, w.Secret = feishu, "fs-secret"
	m := got{body: prepared(t, w).Body}.json(t)
	require.Equal(t, "1700000030", m["timestamp"])
	require.Equal(t, "CEUap4xw+6FhqEONYMxWFvrHhvmtaB/E9rShxrVA0ls=", m["sign"])
}

func TestS48AReceiverCanVerifyUsWithEitherKey(t *testing.T) {
	w := hook("own", "http://127.0.0.1/in")
	w.Secret, w.PrevSecret = "new", "old"
	r := prepared(t, w)
	signed := strings.Join([]string{r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp"), string(r.Body)}, ".")
	signatures := strings.Split(r.Header.Get("Webhook-Signature"), " ")
	require.Len(t, signatures, 2)
	for i, key := range []string{"new", "old"} {
		h := hmac.New(sha256.New, []byte(key))
		_, _ = h.Write([]byte(signed))
		require.Equal(t, "v1,"+base64.StdEncoding.EncodeToString(h.Sum(nil)), signatures[i])
	}
	require.Equal(t, "id-1", r.Header.Get("Webhook-Id"))
	require.Equal(t, "1700000030", r.Header.Get("Webhook-Timestamp"))
}

// Fire must return at once, whatever the receiver does; what does not fit is
// counted.
func TestAStuckReceiverHoldsNobodyUp(t *testing.T) {
	free := make(chan struct{})
	entered := make(chan struct{}, 1)
	r := startReceiver(t, func(int, http.ResponseWriter) { entered <- struct{}{}; <-free })
	b, h := running(t, config(hook("ops", r.URL)), options("n"))
	b.Fire(Alarm{Name: "queue_slow", Subject: "first"})
	<-entered
	for i := range queueSize + 50 {
		b.Fire(Alarm{Name: "queue_slow", Subject: fmt.Sprint(i), Severity: Warning})
	}
	require.Eventually(t, func() bool { return count(h, "ops", "dropped") == 50 }, 10*time.Second, time.Millisecond)
	require.Len(t, b.Firing(), queueSize+51)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	require.NoError(t, h.Stop(ended), "a stop whose time is over drops the rest")
	require.Less(t, time.Since(began), flushMost)
	require.Equal(t, float64(50+queueSize), count(h, "ops", "dropped"))
	require.Equal(t, 1.0, count(h, "ops", "failed"))
	close(free)
}

func TestACleanStopTellsWhatIsQueued(t *testing.T) {
	r := startReceiver(t, nil)
	h, err := newHerald(config(hook("ops", r.URL)), options("n"))
	require.NoError(t, err)
	b := NewBoard(zap.NewNop(), nil, nil, h)
	h.start()
	for i := range 100 {
		b.Fire(Alarm{Name: "queue_slow", Subject: fmt.Sprint(i), Severity: Warning})
	}
	require.NoError(t, h.Stop(t.Context()))
	require.NoError(t, h.Stop(t.Context()), "it may be called twice")
	require.Len(t, r.seen(), 100)
}

func TestTheReceiverIsNotReachedInsideUnlessAllowed(t *testing.T) {
	r := startReceiver(t, nil)
	w := hook("ops", strings.Replace(r.URL, "127.0.0.1", "localhost", 1))
	w.Allow = nil
	require.NoError(t, config(w).Validate(), "a name is looked up when it is called")
	b, h := running(t, config(w), options("n"))
	b.Fire(faulty)
	require.Eventually(t, func() bool { return count(h, "ops", "failed") == 1 }, 10*time.Second, time.Millisecond)
	require.Empty(t, r.seen())
}
