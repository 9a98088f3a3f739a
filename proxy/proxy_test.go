package proxy_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tidegate/pkg/fault"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/proxy"
)

func modes(t *testing.T, f func(t *testing.T, mode wechat.Mode)) {
	for _, m := range []wechat.Mode{wechat.ModePlain, wechat.ModeCompatible, wechat.ModeSafe} {
		t.Run(string(m), func(t *testing.T) { f(t, m) })
	}
}

func TestACallbackIsDurableBeforeItIsAcked(t *testing.T) {
	modes(t, func(t *testing.T, mode wechat.Mode) {
		w := newWorld(t, mode, nil)
		answered := false
		w.q.before = func() { require.False(t, answered) }
		rec := w.post(text(23847650019283746, "你们几点下班？ <b>急</b> & 谢谢"))
		answered = true
		requireAck(t, rec)
		cs := w.q.callbacks(t)
		require.Len(t, cs, 1)
		c := cs[0]
		require.Equal(t, "你们几点下班？ <b>急</b> & 谢谢", c.Content)
		require.Equal(t, openid, c.OpenID)
		require.Equal(t, "23847650019283746", c.MsgID)
		require.Len(t, c.ID, 23)
		require.Contains(t, string(c.Body), "<MsgType>")
		r := w.q.in("tidegate.card.callbacks")[0]
		require.Equal(t, "callback", wire.HeaderValue(r.Headers, "kind"))
		require.Equal(t, c.ID, wire.HeaderValue(r.Headers, "id"))
		require.Equal(t, "1", wire.HeaderValue(r.Headers, "v"))
		require.Regexp(t, `^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`, wire.HeaderValue(r.Headers, "traceparent"))
		require.True(t, json.Valid(r.Value))
	})
}

// G4 at the door: four deliveries at once with fresh crypto, one record.
func TestFourDeliveriesAreOneRecord(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil)
	for i := range 20 {
		var wg sync.WaitGroup
		for range 4 {
			r := w.request(text(1000+i, "x"), openid)
			wg.Go(func() {
				rec := w.send(r)
				if rec.Code != 200 || rec.Body.String() != "success" {
					t.Errorf("answer %d %q", rec.Code, rec.Body.String())
				}
			})
		}
		wg.Wait()
	}
	require.Len(t, w.q.callbacks(t), 20)
}

func TestQueueAwayIsSaidHonestlyAndTheRetryIsWorked(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil)
	w.q.set(errAway)
	for _, doc := range []string{text(7, "x"), click(1, "k")} {
		rec := w.post(doc)
		require.Equal(t, http.StatusServiceUnavailable, rec.Code)
		require.NotContains(t, rec.Body.String(), "success")
	}
	w.q.set(nil)
	requireAck(t, w.post(text(7, "x")))
	requireAck(t, w.post(click(1, "k")))
	require.Len(t, w.q.callbacks(t), 2, "neither the claim nor the repeat mark may swallow WeChat's retry (T1, D6)")
	require.Empty(t, w.q.in("tidegate.repeats"))
}

func TestABugInThePublisherIsNoAck(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil)
	w.q.panics = true
	require.Equal(t, 503, w.post(text(8, "x")).Code)
}

func TestRedisAwayMeansUncheckedNotLost(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil)
	w.redis.Fail("LOADING Redis is loading the dataset in memory")
	for i := range 10 {
		requireAck(t, w.post(text(100+i, "x")))
	}
	cs := w.q.callbacks(t)
	require.Len(t, cs, 10)
	for _, c := range cs {
		require.True(t, c.Unchecked)
	}
}

func TestAHastySecondPressIsRecordedAndNotWorked(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil)
	requireAck(t, w.post(click(1, "balance")))
	for i := range 3 {
		requireAck(t, w.post(click(2+i, "balance")))
	}
	requireAck(t, w.post(click(2, "balance"))) // WeChat's retry of a repeat is no further repeat
	requireAck(t, w.post(click(2, "bill")))
	require.Len(t, w.q.callbacks(t), 2)
	require.Len(t, w.q.in("tidegate.repeats"), 3)
	r, err := wire.Decode[wire.Repeat](w.q.in("tidegate.repeats")[0].Value, w.q.in("tidegate.repeats")[0].Headers)
	require.NoError(t, err)
	require.Equal(t, "CLICK:balance", r.Action)
}

func TestRepeatsOfTextAreWorkedAndTheWindowCanBeOff(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil, func(c *proxy.Config) { c.Repeats.Window = 0 })
	requireAck(t, w.post(text(1, "yes")))
	requireAck(t, w.post(text(2, "yes")))
	requireAck(t, w.post(click(1, "k")))
	requireAck(t, w.post(click(2, "k")))
	require.Len(t, w.q.callbacks(t), 4)
}

func TestReceiptsGoToTheirOwnTopic(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil)
	requireAck(t, w.post(document("event", "<Event><![CDATA[TEMPLATESENDJOBFINISH]]></Event><MsgID>9007199254740993</MsgID><Status><![CDATA[failed:user block]]></Status>")))
	requireAck(t, w.post(document("event", "<Event><![CDATA[subscribe_msg_sent_event]]></Event><SubscribeMsgSentEvent><List><TemplateId>T1</TemplateId><MsgID>1</MsgID><ErrorCode>0</ErrorCode><ErrorStatus>success</ErrorStatus></List><List><TemplateId>T2</TemplateId><MsgID>2</MsgID><ErrorCode>0</ErrorCode><ErrorStatus>success</ErrorStatus></List></SubscribeMsgSentEvent>")))
	require.Empty(t, w.q.callbacks(t))
	rs := w.q.in("tidegate.receipts")
	require.Len(t, rs, 3)
	r, err := wire.Decode[wire.Receipt](rs[0].Value, rs[0].Headers)
	require.NoError(t, err)
	require.Equal(t, "9007199254740993", r.MsgID)
	require.Equal(t, wire.RefusedByUser, r.State)
	require.Equal(t, "user block", r.Reason)
}

// 3.4: a follower's text that tries to be somebody else, or a receipt.
func TestInjectedElementsAreNeverWorkedAsAnotherUser(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil)
	evil := "]]></Content><FromUserName><![CDATA[oVICTIM]]></FromUserName><MsgType><![CDATA[event]]></MsgType><Event><![CDATA[TEMPLATESENDJOBFINISH]]></Event><MsgID>5</MsgID><Status><![CDATA[success]]></Status><Content><![CDATA["
	requireAck(t, w.post(text(77, evil)))
	requireAck(t, w.post(text(78, "bell \x07 and nul \x00 and \xff")))
	require.Empty(t, w.q.in("tidegate.receipts"))
	cs := w.q.callbacks(t)
	require.Len(t, cs, 2)
	for _, c := range cs {
		require.Equal(t, openid, c.OpenID)
		require.Equal(t, "text", c.MsgType)
	}
}

func atOnce(c *wire.Callback) (proxy.Instant, bool) {
	switch {
	case c.Quarantined != "":
		return proxy.Instant{Rule: "fallback", Text: "请稍后再试"}, true
	case c.Content == "人工":
		return proxy.Instant{Rule: "desk", HandOver: true}, true
	case c.Content == "hours":
		return proxy.Instant{Rule: "hours", Text: "9:00–17:00 ]]> & <b>"}, true
	}
	return proxy.Instant{}, false
}

func TestTheAckItselfAnswersWhatTheTableSays(t *testing.T) {
	modes(t, func(t *testing.T, mode wechat.Mode) {
		w := newWorld(t, mode, atOnce)
		for range 2 { // a repeat gets the same answer
			rec := w.post(text(5, "hours"))
			require.Equal(t, 200, rec.Code)
			body := rec.Body.String()
			if mode != wechat.ModePlain {
				body = unseal(t, body)
			}
			require.Contains(t, body, "<ToUserName><![CDATA["+openid+"]]></ToUserName>")
			require.Contains(t, body, "<FromUserName><![CDATA["+ghID+"]]></FromUserName>")
			require.Contains(t, body, "9:00–17:00")
		}
		require.Len(t, w.q.callbacks(t), 1)
		require.Equal(t, "hours", w.q.callbacks(t)[0].Answered)
		rec := w.post(text(6, "人工"))
		body := rec.Body.String()
		if mode != wechat.ModePlain {
			body = unseal(t, body)
		}
		require.Contains(t, body, "transfer_customer_service")
		requireAck(t, w.post(text(7, "else")))
	})
}

func unseal(t *testing.T, body string) string {
	t.Helper()
	_, rest, ok := strings.Cut(body, "<Encrypt><![CDATA[")
	require.True(t, ok, body)
	sealed, _, _ := strings.Cut(rest, "]]>")
	key, err := wechat.DecodeAESKey(aesKey)
	require.NoError(t, err)
	plain, err := wechat.Decrypt(key, appID, sealed)
	require.NoError(t, err)
	return string(plain)
}

func TestContradictionsAreQuarantinedAckedAndAnsweredWithTheFallback(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, atOnce)
	rec := w.send(w.request(text(9, "hi"), "oSomebodyElse"))
	require.Equal(t, 200, rec.Code)
	rec = w.post("<!DOCTYPE xml SYSTEM \"file:///etc/passwd\">" + text(10, "hi"))
	require.Equal(t, 200, rec.Code)
	cs := w.q.callbacks(t)
	require.Len(t, cs, 2)
	for _, c := range cs {
		require.NotEmpty(t, c.Quarantined)
		require.NotEmpty(t, c.Body, "the raw document is kept")
	}
}

func TestAccountsChangeWhileRunning(t *testing.T) {
	w := newWorld(t, wechat.ModePlain, nil)
	second := account(wechat.ModePlain)
	second.Name, second.Credentials.Token = "loans", "another-token"
	require.NoError(t, w.p.SetAccounts([]proxy.Account{account(wechat.ModePlain), second}))
	r := w.request(text(1, "x"), openid)
	r.URL.Path = "/wx/loans"
	require.Equal(t, 403, w.send(r).Code, "another account's token must not open this door (S3)")
	require.Error(t, w.p.SetAccounts([]proxy.Account{account(wechat.ModePlain), account(wechat.ModePlain)}))
	bad := account(wechat.ModeSafe)
	bad.Credentials.EncodingAESKey = "short"
	require.ErrorContains(t, w.p.SetAccounts([]proxy.Account{bad}), "encoding_aes_key")
	requireAck(t, w.post(text(2, "x")))
}

func TestTheDoorListensAndStops(t *testing.T) {
	w := newWorld(t, wechat.ModePlain, nil)
	r := w.request(text(3, "x"), openid)
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	res, err := c.Post("http://"+w.p.Addr()+r.URL.String(), "text/xml", strings.NewReader(readAll(t, r.Body)))
	require.NoError(t, err)
	require.Equal(t, "success", readAll(t, res.Body))
	require.NoError(t, res.Body.Close())
}

func TestAmbiguousPublishIsNoAck(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil)
	w.q.set(fault.New(fault.Ambiguous, "publish", "no answer in time"))
	require.Equal(t, 503, w.post(text(1, "x")).Code)
}

// An event that this program does not know may be a slip of the pen or newer
// than it: the door starts, and says so.
func TestTheStartWarnsOfUnknownEvents(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	cfg := proxy.DefaultConfig()
	cfg.HTTP.Addr = "127.0.0.1:0"
	cfg.Repeats.Rules[0].Types[0] = "CLIKC"
	p, err := proxy.New(cfg, []proxy.Account{account(wechat.ModeSafe)}, proxy.Deps{Topics: wire.Topics{Prefix: "tidegate"}, Publisher: &queue{}, Log: zap.New(core)})
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, p.Run(ended))
	require.Equal(t, 1, logs.Len())
	require.Contains(t, logs.All()[0].ContextMap()["setting"], `"CLIKC" is no event that this program knows; the nearest is CLICK`)
}
