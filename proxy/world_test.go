package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/dedupe"
	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/proxy"
)

func TestMain(m *testing.M) {
	// The breaker inside sarama sleeps 10 s after its broker went away, and cannot be ended.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/eapache/go-resiliency/breaker.(*Breaker).timer"))
}

const (
	appID  = "wx9f3c7b21d08e4a56"
	ghID   = "gh_5d1e0a77c3b2"
	token  = "gw-demo-token-2031"
	aesKey = "Qm7rT0xkV3sZ9bYh2LdNcP5wEaGfJu8oXiKyRzMt4Bq"
	openid = "oZx81wQk2Lr7nVb0TtYpSdUeGhA4"
)

// queue is a publisher that keeps what it took, and can be away.
type queue struct {
	mu      sync.Mutex
	records []kafka.Record
	away    error
	panics  bool
	before  func()
	answer  func(context.Context, kafka.Record) error // decides before the record is taken
}

func (q *queue) Publish(ctx context.Context, r kafka.Record) (kafka.Record, error) {
	if q.before != nil {
		q.before()
	}
	q.mu.Lock()
	answer := q.answer
	q.mu.Unlock()
	if answer != nil {
		if err := answer(ctx, r); err != nil {
			return r, err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.panics {
		panic("a bug")
	}
	if q.away != nil {
		return r, q.away
	}
	r.Offset = int64(len(q.records))
	q.records = append(q.records, r)
	return r, nil
}

func (q *queue) set(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.away = err
}

func (q *queue) script(answer func(context.Context, kafka.Record) error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answer = answer
}

func (q *queue) in(topic string) []kafka.Record {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []kafka.Record
	for _, r := range q.records {
		if r.Topic == topic {
			out = append(out, r)
		}
	}
	return out
}

func (q *queue) callbacks(t *testing.T) []*wire.Callback {
	t.Helper()
	var out []*wire.Callback
	for _, r := range q.in("tidegate.card.callbacks") {
		c, err := wire.Decode[wire.Callback](r.Value, r.Headers)
		require.NoError(t, err)
		require.Equal(t, c.OpenID, string(r.Key))
		out = append(out, c)
	}
	return out
}

// world is a door with a real claim store behind it.
type world struct {
	t     *testing.T
	q     *queue
	redis *redismem.Server
	p     *proxy.Proxy
	board *alarm.Board
	h     http.Handler
	n     atomic.Int64
	mode  wechat.Mode
}

func newWorld(t *testing.T, mode wechat.Mode, atOnce proxy.AtOnce, change ...func(*proxy.Config)) *world {
	t.Helper()
	return newWorldWith(t, mode, atOnce, func(q *queue) proxy.Publisher { return q }, change...)
}

func newWorldWith(t *testing.T, mode wechat.Mode, atOnce proxy.AtOnce, pub func(*queue) proxy.Publisher, change ...func(*proxy.Config)) *world {
	t.Helper()
	w := &world{t: t, q: &queue{}, mode: mode, board: alarm.NewBoard(zap.NewNop(), nil, nil)}
	var err error
	w.redis, err = redismem.Start("127.0.0.1:0")
	require.NoError(t, err)
	c, err := redis.Open(redis.Config{Mode: "single", Addrs: []string{w.redis.Addr()}}, zap.NewNop())
	require.NoError(t, err)
	cfg := proxy.DefaultConfig()
	cfg.HTTP.Addr = "127.0.0.1:0"
	for _, ch := range change {
		ch(&cfg)
	}
	w.p, err = proxy.New(cfg, []proxy.Account{account(mode)}, proxy.Deps{
		Topics: wire.Topics{Prefix: "tidegate"}, Publisher: pub(w.q), Claims: dedupe.New(c, dedupe.Options{Budget: time.Second}),
		AtOnce: atOnce, Log: zap.NewNop(), Alarms: w.board,
	})
	require.NoError(t, err)
	w.h = w.p.Handler()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		_ = c.Close()
		w.redis.Close()
	})
	return w
}

func account(mode wechat.Mode) proxy.Account {
	return proxy.Account{Name: "card", GhID: ghID, AllowFrom: []string{"any"},
		Credentials: wechat.Credentials{AppID: appID, Token: token, EncodingAESKey: aesKey, Mode: mode}}
}

// post delivers a document as WeChat does in the world's mode: each call is a
// new delivery with a fresh nonce, signature and ciphertext.
func (w *world) post(plain string) *httptest.ResponseRecorder {
	w.t.Helper()
	return w.send(w.request(plain, openid))
}

func (w *world) request(plain, from string) *http.Request {
	w.t.Helper()
	n := w.n.Add(1)
	ts, nonce := strconv.FormatInt(1893456000+n, 10), "n"+strconv.FormatInt(n, 10)
	v := url.Values{"timestamp": {ts}, "nonce": {nonce}, "signature": {wechat.Signature(token, ts, nonce)}}
	if from != "" {
		v.Set("openid", from)
	}
	body := plain
	if w.mode != wechat.ModePlain {
		sealed := encrypt(w.t, appID, plain, n)
		v.Set("encrypt_type", "aes")
		v.Set("msg_signature", wechat.Signature(token, ts, nonce, sealed))
		body = "<xml><ToUserName><![CDATA[" + ghID + "]]></ToUserName><Encrypt><![CDATA[" + sealed + "]]></Encrypt></xml>"
	}
	return httptest.NewRequest(http.MethodPost, "/wx/card?"+v.Encode(), strings.NewReader(body))
}

func encrypt(t *testing.T, id, plain string, n int64) string {
	t.Helper()
	key, err := wechat.DecodeAESKey(aesKey)
	require.NoError(t, err)
	sealed, err := wechat.Encrypt(key, id, []byte(fmt.Sprintf("%016d", n)), []byte(plain))
	require.NoError(t, err)
	return sealed
}

func (w *world) send(r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w.h.ServeHTTP(rec, r)
	return rec
}

func requireAck(t *testing.T, rec *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, 200, rec.Code)
	require.Equal(t, "success", rec.Body.String())
}

func textFrom(user string, id int, content string) string {
	return strings.ReplaceAll(text(id, content), openid, user)
}

func text(id int, content string) string {
	return document("text", fmt.Sprintf("<Content><![CDATA[%s]]></Content><MsgId>%d</MsgId>", content, id))
}

func click(second int, key string) string {
	return fmt.Sprintf("<xml><ToUserName><![CDATA[%s]]></ToUserName><FromUserName><![CDATA[%s]]></FromUserName><CreateTime>%d</CreateTime><MsgType><![CDATA[event]]></MsgType><Event><![CDATA[CLICK]]></Event><EventKey><![CDATA[%s]]></EventKey></xml>", ghID, openid, second, key)
}

func document(msgType, rest string) string {
	return fmt.Sprintf("<xml><ToUserName><![CDATA[%s]]></ToUserName><FromUserName><![CDATA[%s]]></FromUserName><CreateTime>1893456001</CreateTime><MsgType><![CDATA[%s]]></MsgType>%s</xml>", ghID, openid, msgType, rest)
}

var nopLog = zap.NewNop()

var errAway = fault.New(fault.Unavailable, "publish", "no broker answers")

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(b)
}

func one(a proxy.Account) []proxy.Account { return []proxy.Account{a} }
