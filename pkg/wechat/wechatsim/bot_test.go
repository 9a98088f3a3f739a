package wechatsim

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/wechat"
)

const (
	testAppID  = "wx9f3c7b21d08e4a56"
	testGhID   = "gh_5d1e0a77c3b2"
	testSecret = "0123456789abcdef0123456789abcdef"
	testToken  = "simtoken"
	testAESKey = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"
)

func testAccount(mode string) Account {
	return Account{AppID: testAppID, Secret: testSecret, GhID: testGhID, Token: testToken, EncodingAESKey: testAESKey, Mode: mode, Followers: 5}
}

func testConfig(mode string) Config {
	cfg := DefaultConfig()
	cfg.Seed = 7
	cfg.Accounts = []Account{testAccount(mode)}
	return cfg
}

// received is one callback as the server under test read it.
type received struct {
	gone   <-chan struct{} // the delivery was given up
	query  map[string]string
	body   []byte
	fields map[string]string
}

// bot is a server under test: it opens callbacks by the protocol and lets a test
// decide the answer. The zero answer is success.
type bot struct {
	t      *testing.T
	mode   string
	server *httptest.Server
	answer func(w http.ResponseWriter, r received)

	mu  sync.Mutex
	got []received
}

func newBot(t *testing.T, mode string) *bot {
	b := &bot{t: t, mode: mode}
	b.server = httptest.NewServer(b)
	t.Cleanup(b.server.Close)
	return b
}

func (b *bot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := received{gone: r.Context().Done(), query: map[string]string{}}
	for k, v := range r.URL.Query() {
		rec.query[k] = v[0]
	}
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, rec.query["echostr"])
		return
	}
	var err error
	if rec.body, err = io.ReadAll(r.Body); err != nil {
		return
	}
	plain, err := unseal(b.mode, rec)
	if err != nil {
		b.t.Errorf("callback: %v", err)
		http.Error(w, "bad", http.StatusForbidden)
		return
	}
	rec.fields = elements(plain)
	b.mu.Lock()
	b.got = append(b.got, rec)
	answer := b.answer
	b.mu.Unlock()
	if answer == nil {
		_, _ = io.WriteString(w, "success")
		return
	}
	answer(w, rec)
}

func (b *bot) received() []received {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]received(nil), b.got...)
}

// unseal checks the signatures and decrypts, as the account is configured.
func unseal(mode string, r received) ([]byte, error) {
	q := r.query
	if wechat.Signature(testToken, q["timestamp"], q["nonce"]) != q["signature"] {
		return nil, fmt.Errorf("signature does not match")
	}
	if mode == ModePlain {
		return r.body, nil
	}
	cipher := elements(r.body)["Encrypt"]
	if wechat.Signature(testToken, q["timestamp"], q["nonce"], cipher) != q["msg_signature"] || q["encrypt_type"] != "aes" {
		return nil, fmt.Errorf("msg_signature does not match")
	}
	key, err := wechat.DecodeAESKey(testAESKey)
	if err != nil {
		return nil, err
	}
	return wechat.Decrypt(key, testAppID, cipher)
}

// elements reads every leaf element of a document by name; later ones win.
func elements(doc []byte) map[string]string {
	out := map[string]string{}
	dec := xml.NewDecoder(bytes.NewReader(doc))
	name := ""
	for {
		tok, err := dec.Token()
		if err != nil {
			return out
		}
		switch v := tok.(type) {
		case xml.StartElement:
			name = v.Name.Local
		case xml.CharData:
			if name != "" {
				out[name] += string(v)
			}
		case xml.EndElement:
			name = ""
		}
	}
}

// newSim makes a listening simulator that pushes to the bot.
func newSim(t *testing.T, cfg Config, b *bot, opts ...Option) *Sim {
	if b != nil {
		for i := range cfg.Accounts {
			cfg.Accounts[i].CallbackURL = b.server.URL + "/wx"
		}
	}
	cfg.Addr = "127.0.0.1:0"
	s, err := New(cfg, zap.NewNop(), opts...)
	require.NoError(t, err)
	require.NoError(t, s.Start())
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// answerOf decodes an API answer loosely.
type answerOf struct {
	status  int
	raw     string
	fields  map[string]json.RawMessage
	Errcode int    `json:"errcode"`
	Errmsg  string `json:"errmsg"`
	MsgID   int64  `json:"msgid"`
	Token   string `json:"access_token"`
	Expires int    `json:"expires_in"`
}

// callAPI makes one API request without sockets.
func callAPI(t *testing.T, s *Sim, method, target, body string) answerOf {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(method, target, bytes.NewReader([]byte(body))))
	a := answerOf{status: w.Code, raw: w.Body.String()}
	if w.Code == http.StatusOK && len(a.raw) > 0 && a.raw[0] == '{' {
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a), a.raw)
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a.fields))
	}
	return a
}

func stable(t *testing.T, s *Sim, force bool) answerOf {
	t.Helper()
	return callAPI(t, s, http.MethodPost, PathStableToken, fmt.Sprintf(
		`{"grant_type":"client_credential","appid":%q,"secret":%q,"force_refresh":%v}`, testAppID, testSecret, force))
}

func post(t *testing.T, s *Sim, path, token, body string) answerOf {
	t.Helper()
	return callAPI(t, s, http.MethodPost, path+"?access_token="+token, body)
}

func textTo(openid, content string) string {
	return fmt.Sprintf(`{"touser":%q,"msgtype":"text","text":{"content":%q}}`, openid, content)
}
