package bot_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidegate/pkg/fault"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/robot/backend"
	"tidegate/robot/backend/bot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	openID = "oUser-1"
	ghID   = "gh_5d1e0a77c3b2"
	aesKey = "Qm7rT0xkV3sZ9bYh2LdNcP5wEaGfJu8oXiKyRzMt4Bq"
	doc    = "<xml><ToUserName><![CDATA[" + ghID + "]]></ToUserName>\n<FromUserName><![CDATA[" + openID + "]]></FromUserName>\n" +
		"<CreateTime>1893456001</CreateTime>\n<MsgType><![CDATA[text]]></MsgType>\n<Content><![CDATA[hi]]></Content>\n<MsgId>23847650019283746</MsgId>\n</xml>"
)

func settings(mode wechat.Mode) backend.BotConfig {
	return backend.BotConfig{Token: "bot-token", AppID: "wx9f3c7b21d08e4a56", EncodingAESKey: aesKey, Mode: mode}
}

// asked is one request as the bot got it.
type asked struct {
	query wechat.Query
	body  []byte
	*http.Request
}

// server is a bot: it checks each request as WeChat's documentation says.
type server struct {
	*httptest.Server
	t    *testing.T
	v    *wechat.Verifier
	mu   sync.Mutex
	got  []asked
	docs []string
}

// serve answers the n-th request (from 1) with what answer gives.
func serve(t *testing.T, mode wechat.Mode, answer func(n int, w http.ResponseWriter) string) *server {
	t.Helper()
	v, err := wechat.NewVerifier(settings(mode).Credentials())
	require.NoError(t, err)
	s := &server{t: t, v: v}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		q, err := wechat.ParseQuery(r.URL.RawQuery)
		if err != nil {
			t.Errorf("query: %v", err)
		}
		opened, err := v.Open(q, body)
		if err != nil {
			t.Errorf("request of the bot: %v", err)
			return
		}
		s.mu.Lock()
		s.got, s.docs = append(s.got, asked{q, body, r}), append(s.docs, string(opened.Plain))
		n := len(s.got)
		s.mu.Unlock()
		text := answer(n, w)
		sealed, err := v.Seal(opened, []byte(text), "1893456002", "n1")
		if err != nil {
			t.Errorf("seal: %v", err)
		}
		_, _ = w.Write(sealed)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func newBot(t *testing.T, url string, mode wechat.Mode, change ...func(*backend.Config)) *bot.Bot {
	t.Helper()
	c := backend.Config{
		Name: "old", Type: backend.TypeWeChat, BaseURL: url, Bot: settings(mode), Timeout: 2 * time.Second,
		BackoffMin: time.Millisecond, BackoffMax: 2 * time.Millisecond, Rate: 1e5, Burst: 100, Concurrency: 10,
	}
	for _, f := range change {
		f(&c)
	}
	client, err := backend.New(c, ratelimit.New(c.Limit()), backend.NewMetrics(prometheus.NewRegistry()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	b, err := bot.New(c, client)
	require.NoError(t, err)
	return b
}

func callback() *wire.Callback {
	return &wire.Callback{
		ID: "25770000000000000000001", Account: "card", OpenID: openID, ToUser: ghID, MsgType: "text", Content: "hi",
		MsgID: "23847650019283746", Body: []byte(doc), TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

func passive(t *testing.T, p wechat.Passive) string {
	t.Helper()
	p.ToUser, p.FromUser, p.CreateTime = openID, ghID, 1893456002
	b, err := p.Encode()
	require.NoError(t, err)
	return string(b)
}

// The bot sees what WeChat would send, in its own mode; its answer comes back.
func TestAskedAsWeChatAsks(t *testing.T) {
	for _, mode := range []wechat.Mode{wechat.ModePlain, wechat.ModeCompatible, wechat.ModeSafe} {
		s := serve(t, mode, func(int, http.ResponseWriter) string {
			return passive(t, wechat.Passive{Type: "text", Content: "hello"})
		})
		a, err := newBot(t, s.URL+"/wx/card", mode).Ask(t.Context(), callback(), true, 5, nil)
		require.NoError(t, err, mode)
		require.Equal(t, bot.Answer{Replies: []wire.Content{{Type: "text", Text: "hello"}}}, a)
		r := s.got[0]
		require.Equal(t, "POST /wx/card", r.Method+" "+r.URL.Path)
		require.Equal(t, doc, s.docs[0])
		require.Equal(t, openID, r.query.OpenID)
		require.InDelta(t, time.Now().Unix(), r.query.Seconds(), 5)
		require.Equal(t, mode != wechat.ModePlain, r.query.EncryptType == "aes")
		require.Equal(t, mode != wechat.ModeSafe, strings.Contains(string(r.body), "<Content>"))
		require.Equal(t, "text/xml", r.Header.Get("Content-Type"))
		require.Equal(t, "25770000000000000000001", r.Header.Get("Idempotency-Key"))
	}
}

func TestAnswersBecomeReplies(t *testing.T) {
	articles := make([]wechat.Article, 8)
	for i := range articles {
		articles[i] = wechat.Article{Title: string(rune('a' + i)), URL: "https://example.com/", PicURL: "https://example.com/p.png"}
	}
	news := func(n int) []wire.Content {
		var out []wire.Content
		for _, a := range articles[:n] {
			out = append(out, wire.Content{Type: "news", News: &wire.Article{Title: a.Title, URL: a.URL, PicURL: a.PicURL}})
		}
		return out
	}
	for name, x := range map[string]struct {
		answer     string
		unanswered bool
		want       bot.Answer
	}{
		"success": {"success", false, bot.Answer{Silent: "the bot gave no answer"}},
		"empty":   {"", false, bot.Answer{Silent: "the bot gave no answer"}},
		"image":   {passive(t, wechat.Passive{Type: "image", MediaID: "m1"}), false, bot.Answer{Replies: []wire.Content{{Type: "image", MediaID: "m1"}}}},
		"voice":   {passive(t, wechat.Passive{Type: "voice", MediaID: "m2"}), false, bot.Answer{Replies: []wire.Content{{Type: "voice", MediaID: "m2"}}}},
		"video": {passive(t, wechat.Passive{Type: "video", MediaID: "m3", Title: "T"}), false,
			bot.Answer{Replies: []wire.Content{{Type: "video", Video: &wire.Video{MediaID: "m3", Title: "T"}}}}},
		"music": {passive(t, wechat.Passive{Type: "music", Title: "T", MusicURL: "https://example.com/a.mp3", ThumbMediaID: "m4"}), false,
			bot.Answer{Replies: []wire.Content{{Type: "music", Music: &wire.Music{Title: "T", URL: "https://example.com/a.mp3", ThumbMediaID: "m4"}}}}},
		"one article":    {passive(t, wechat.Passive{Type: "news", Articles: articles[:1]}), false, bot.Answer{Replies: news(1)}},
		"eight articles": {passive(t, wechat.Passive{Type: "news", Articles: articles}), false, bot.Answer{Replies: news(5), Note: "3 of 8 articles were left out"}},
		"not answerable": {passive(t, wechat.Passive{Type: "text", Content: "x"}), true, bot.Answer{Silent: "the bot answered a callback that WeChat lets nobody answer"}},
		"long text": {strings.Replace(passive(t, wechat.Passive{Type: "text", Content: "x"}), "[x]", "["+strings.Repeat("长", 800)+"]", 1), false,
			bot.Answer{Replies: []wire.Content{{Type: "text", Text: strings.Repeat("长", 681) + "…"}}, Note: "the text was cut from 2400 to 2046 bytes"}},
	} {
		s := serve(t, wechat.ModeSafe, func(int, http.ResponseWriter) string { return x.answer })
		got, err := newBot(t, s.URL, wechat.ModeSafe).Ask(t.Context(), callback(), !x.unanswered, 5, nil)
		require.NoError(t, err, name)
		require.Equal(t, x.want, got, name)
	}
}

func TestHandOverIsNotPossibleAnyMore(t *testing.T) {
	s := serve(t, wechat.ModePlain, func(int, http.ResponseWriter) string { return passive(t, wechat.Passive{Type: wechat.TransferToDesk}) })
	a, err := newBot(t, s.URL, wechat.ModePlain).Ask(t.Context(), callback(), true, 5, nil)
	require.NoError(t, err)
	require.Empty(t, a.Replies)
	require.Contains(t, a.Silent, "put a rule with hand_over")
	b := newBot(t, s.URL, wechat.ModePlain, func(c *backend.Config) { c.Bot.TransferText = "请回复“人工”" })
	a, err = b.Ask(t.Context(), callback(), true, 5, nil)
	require.NoError(t, err)
	require.Equal(t, []wire.Content{{Type: "text", Text: "请回复“人工”"}}, a.Replies)
}

// An answer for somebody else reaches nobody, and is not asked for again.
func TestForeignAnswersAreRefused(t *testing.T) {
	good := passive(t, wechat.Passive{Type: "text", Content: "secret"})
	for name, answer := range map[string]string{
		"another follower": strings.Replace(good, openID, "oUser-2", 1),
		"another account":  strings.Replace(good, ghID, "gh_other", 1),
		"no receiver":      "<xml><MsgType>text</MsgType><Content>secret</Content></xml>",
		"not swapped":      strings.NewReplacer(openID, ghID, ghID, openID).Replace(good),
		"garbage":          "<html>oops</html>",
		"no media":         strings.Replace(passive(t, wechat.Passive{Type: "image", MediaID: "m1"}), "m1", "", 1),
		"javascript": strings.Replace(passive(t, wechat.Passive{Type: "news", Articles: []wechat.Article{{Title: "x", URL: "https://example.com"}}}),
			"https://example.com", "javascript:alert(1)", 1),
	} {
		s := serve(t, wechat.ModeSafe, func(int, http.ResponseWriter) string { return answer })
		_, err := newBot(t, s.URL, wechat.ModeSafe).Ask(t.Context(), callback(), true, 5, nil)
		require.Equal(t, fault.Final, fault.KindOf(err), "%s: %v", name, err)
		require.NotContains(t, err.Error(), "secret", name)
		require.NotContains(t, err.Error(), openID, name)
		require.Len(t, s.got, 1, name)
	}
}

// What WeChat would repeat is repeated up to the configured attempts: the same
// message, signed anew.
func TestRepeatsAsWeChatDoes(t *testing.T) {
	s := serve(t, wechat.ModeSafe, func(n int, w http.ResponseWriter) string {
		switch n {
		case 1:
			w.WriteHeader(http.StatusBadGateway)
			return ""
		case 2:
			panic(http.ErrAbortHandler)
		}
		return passive(t, wechat.Passive{Type: "text", Content: "third"})
	})
	a, err := newBot(t, s.URL, wechat.ModeSafe).Ask(t.Context(), callback(), true, 5, nil)
	require.NoError(t, err)
	require.Equal(t, "third", a.Replies[0].Text)
	require.Equal(t, []string{doc, doc, doc}, s.docs)
	require.NotEqual(t, s.got[0].query.MsgSignature, s.got[1].query.MsgSignature)
	require.NotEqual(t, s.got[0].query.Nonce, s.got[1].query.Nonce)

	down := serve(t, wechat.ModeSafe, func(_ int, w http.ResponseWriter) string { w.WriteHeader(http.StatusInternalServerError); return "" })
	_, err = newBot(t, down.URL, wechat.ModeSafe, func(c *backend.Config) { c.Attempts = 2 }).Ask(t.Context(), callback(), true, 5, nil)
	require.Equal(t, fault.Ambiguous, fault.KindOf(err))
	require.Len(t, down.got, 2)
	once := serve(t, wechat.ModeSafe, func(_ int, w http.ResponseWriter) string { w.WriteHeader(http.StatusInternalServerError); return "" })
	_, err = newBot(t, once.URL, wechat.ModeSafe, func(c *backend.Config) { c.IgnoresKey = true }).Ask(t.Context(), callback(), true, 5, nil)
	require.Error(t, err)
	require.Len(t, once.got, 1, "a bot that answers repeats twice is not asked again")
}

// S41, S46: a bot's answer is bounded, and no redirect is followed.
func TestBoundsOfAnAnswer(t *testing.T) {
	waits := make(chan struct{})
	defer close(waits)
	for name, x := range map[string]struct {
		h    func(n int, w http.ResponseWriter) string
		kind fault.Kind
	}{
		"S46 large": {func(int, http.ResponseWriter) string { return strings.Repeat("x", 70<<10) }, fault.Final},
		"S46 never ends": {func(_ int, w http.ResponseWriter) string {
			_, _ = io.WriteString(w, "<xml>")
			w.(http.Flusher).Flush()
			<-waits
			return ""
		}, fault.Ambiguous},
		"S46 compressed": {func(_ int, w http.ResponseWriter) string { w.Header().Set("Content-Encoding", "gzip"); return "x" }, fault.Final},
		"S41 redirect": {func(_ int, w http.ResponseWriter) string {
			w.Header().Set("Location", "http://169.254.169.254/")
			w.WriteHeader(http.StatusFound)
			return ""
		}, fault.Final},
	} {
		s := serve(t, wechat.ModePlain, x.h)
		b := newBot(t, s.URL, wechat.ModePlain, func(c *backend.Config) { c.Attempts, c.Timeout = 1, 100*time.Millisecond })
		_, err := b.Ask(t.Context(), callback(), true, 5, nil)
		require.Equal(t, x.kind, fault.KindOf(err), "%s: %v", name, err)
	}
}

func TestSettingsOfABot(t *testing.T) {
	base := backend.Config{Name: "old", Type: backend.TypeWeChat, BaseURL: "http://127.0.0.1:1/wx", Bot: settings(wechat.ModeSafe)}
	require.NoError(t, base.Validate())
	require.EqualValues(t, backend.MaxPassive, base.WithDefaults().MaxResponse)
	for want, change := range map[string]func(*backend.Config){
		"token is empty":      func(c *backend.Config) { c.Bot.Token = "" },
		"encoding_aes_key":    func(c *backend.Config) { c.Bot.EncodingAESKey = "short" },
		"app_id":              func(c *backend.Config) { c.Bot.AppID = "" },
		"mode":                func(c *backend.Config) { c.Bot.Mode = "odd" },
		"type: \"wecom\"":     func(c *backend.Config) { c.Type = "wecom" },
		"set type: wechat":    func(c *backend.Config) { c.Type = "" },
		"bot.transfer_text":   func(c *backend.Config) { c.Bot.TransferText = strings.Repeat("x", 3000) },
		"remove user and pas": func(c *backend.Config) { c.BaseURL = "http://a:b@127.0.0.1/" }, // S43
		"begin with http":     func(c *backend.Config) { c.BaseURL = "file:///etc/passwd" },    // S44
	} {
		c := base
		change(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
	_, err := newBot(t, "http://127.0.0.1:1", wechat.ModePlain).Ask(context.Background(), &wire.Callback{OpenID: openID}, true, 5, nil)
	require.Equal(t, fault.Invalid, fault.KindOf(err), "a letter without its body")
}
