package wechat

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
)

func forwarder(t testing.TB, mode Mode) *Forwarder {
	t.Helper()
	f, err := NewForwarder(sampleCredentials(mode))
	require.NoError(t, err)
	return f
}

// What is forwarded is, to who checks it as the account's server, a callback of
// WeChat with the same message; a repeat has the same document in other words.
func TestForwardIsACallback(t *testing.T) {
	doc := callbackSamples(t)["msg-text"]
	for _, mode := range []Mode{ModePlain, ModeCompatible, ModeSafe} {
		v, err := NewVerifier(sampleCredentials(mode), WithClock(func() time.Time { return time.Unix(1893456010, 0) }))
		require.NoError(t, err)
		f := forwarder(t, mode)
		var seen []string
		for _, nonce := range []string{"778899001", "778899002"} {
			raw, body, err := f.Forward(sampleAccount, sampleOpenID, doc, nonce, time.Unix(1893456010, 0))
			require.NoError(t, err)
			q, err := ParseQuery(raw)
			require.NoError(t, err, "%s: %s", mode, raw)
			require.Equal(t, sampleOpenID, q.OpenID)
			opened, err := v.Open(q, body)
			require.NoError(t, err, mode)
			require.Equal(t, string(doc), string(opened.Plain), mode)
			require.Equal(t, mode == ModeSafe, !bytes.Contains(body, []byte("<Content>")))
			seen = append(seen, raw+string(body))
		}
		require.NotEqual(t, seen[0], seen[1], mode)
	}
	raw, _, err := forwarder(t, ModePlain).Forward(sampleAccount, "o bad&x=1", doc, "1", time.Unix(1, 0))
	require.NoError(t, err)
	require.NotContains(t, raw, "openid", "what is no openid does not get into a query")
}

// Every sample of an answer is read, plain and sealed, as what wrote it.
func TestReadAnswers(t *testing.T) {
	names, err := filepath.Glob("testdata/reply/reply-*.xml")
	require.NoError(t, err)
	read := 0
	for _, name := range names {
		doc, err := os.ReadFile(name)
		require.NoError(t, err)
		if bytes.Contains(doc, []byte("<Encrypt>")) {
			continue
		}
		p, ok, err := forwarder(t, ModePlain).Read(doc)
		require.NoError(t, err, name)
		require.True(t, ok)
		again, err := p.Encode()
		require.NoError(t, err, name)
		require.Equal(t, strings.TrimSuffix(string(doc), "\n"), string(again), name)

		text, err := Encrypt(forwarder(t, ModeSafe).key, ourAppID, nil, doc)
		require.NoError(t, err)
		sealed, ok, err := forwarder(t, ModeSafe).Read(sealedEnvelope(sampleCredentials(ModeSafe).Token, text, "1893456002", "n"))
		require.NoError(t, err, name)
		require.True(t, ok)
		require.Equal(t, p, sealed)
		read++
	}
	require.GreaterOrEqual(t, read, 8)
	for _, ack := range []string{"", " \n", Success, Success + "\n"} {
		_, ok, err := forwarder(t, ModeSafe).Read([]byte(ack))
		require.NoError(t, err)
		require.False(t, ok, "%q", ack)
	}
	// As a template of a library writes it, with a user's words in it.
	p, _, err := forwarder(t, ModePlain).Read([]byte("<?xml version='1.0' encoding='utf-8'?>\n<xml>\n<ToUserName>o1</ToUserName><MsgType>text</MsgType><Content><![CDATA[a ]]></Content><ToUserName>o2</ToUserName> \x07b]]></Content></xml>"))
	require.NoError(t, err)
	require.Equal(t, "o1", p.ToUser)
	require.Equal(t, "a ]]></Content><ToUserName>o2</ToUserName> b", p.Content)
}

func TestReadRefuses(t *testing.T) {
	c := sampleCredentials(ModeSafe)
	key := forwarder(t, ModeSafe).key
	seal := func(token, appID, doc string) string {
		text, err := Encrypt(key, appID, nil, []byte(doc))
		require.NoError(t, err)
		return string(sealedEnvelope(token, text, "1893456002", "n"))
	}
	good := "<xml><ToUserName>o1</ToUserName><FromUserName>gh_1</FromUserName><MsgType>text</MsgType><Content>x</Content></xml>"
	_, ok, err := forwarder(t, ModeSafe).Read([]byte(seal(c.Token, ourAppID, good)))
	require.NoError(t, err)
	require.True(t, ok)
	for name, x := range map[string]struct {
		mode Mode
		body string
	}{
		"quoted":           {ModePlain, `"success"`},
		"JSON":             {ModePlain, `{"errcode":0}`},
		"error page":       {ModePlain, "<!DOCTYPE html><html><body>502</body></html>"},
		"no root":          {ModePlain, "hello"},
		"truncated":        {ModePlain, good[:len(good)-12]},
		"entity":           {ModePlain, `<!DOCTYPE x [<!ENTITY a "b">]>` + good},
		"unknown type":     {ModePlain, strings.Replace(good, ">text<", ">hologram<", 1)},
		"no type":          {ModePlain, "<xml><ToUserName>o1</ToUserName></xml>"},
		"too large":        {ModePlain, good + strings.Repeat(" ", MaxBody) + "x"},
		"plain in safe":    {ModeSafe, good},
		"sealed in plain":  {ModePlain, seal(c.Token, ourAppID, good)},
		"another token":    {ModeSafe, seal("other", ourAppID, good)},
		"another appid":    {ModeSafe, seal(c.Token, "wx0000000000000000", good)},
		"sealed twice":     {ModeSafe, seal(c.Token, ourAppID, seal(c.Token, ourAppID, good))},
		"sealed nonsense":  {ModeCompatible, seal(c.Token, ourAppID, "nonsense")},
		"cipher cut short": {ModeSafe, strings.Replace(seal(c.Token, ourAppID, good), "]]></Encrypt>", "x]]></Encrypt>", 1)},
	} {
		_, ok, err := forwarder(t, x.mode).Read([]byte(x.body))
		require.Equal(t, fault.Final, fault.KindOf(err), name)
		require.False(t, ok, name)
		require.NotContains(t, err.Error(), "o1", name)
	}
}

// Whatever a server answers: it is refused, or fit for JSON.
func FuzzReadAnswer(f *testing.F) {
	names, _ := filepath.Glob("testdata/reply/*.xml")
	for _, name := range names {
		doc, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(doc)
	}
	forward := forwarder(f, ModeCompatible)
	f.Fuzz(func(t *testing.T, body []byte) {
		p, ok, err := forward.Read(body)
		if err != nil && ok {
			t.Fatalf("both: %v", err)
		}
		for _, s := range []string{p.ToUser, p.FromUser, p.Type, p.Content, p.MediaID, p.Title, p.Description, p.MusicURL, p.KfAccount} {
			if !isClean(s) {
				t.Fatalf("%q", s)
			}
		}
		for _, a := range p.Articles {
			if !isClean(a.Title + a.Description + a.URL + a.PicURL) {
				t.Fatalf("%+v", a)
			}
		}
	})
}
