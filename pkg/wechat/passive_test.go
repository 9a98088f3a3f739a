package wechat

import (
	"encoding/xml"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidegate/pkg/fault"
)

func samplePassive(p Passive) Passive {
	p.ToUser, p.FromUser, p.CreateTime = sampleOpenID, sampleAccount, 1893456002
	return p
}

// Each sample of an answer is written byte for byte.
func TestPassiveSamples(t *testing.T) {
	for name, p := range map[string]Passive{
		"text":  {Type: "text", Content: "收到，稍后回复您"},
		"image": {Type: "image", MediaID: "p7Kx2_MediaIdImage-01"},
		"voice": {Type: "voice", MediaID: "v3Rt_MediaIdVoice-02"},
		"video": {Type: "video", MediaID: "d9Lm_MediaIdVideo-04", Title: "标题", Description: "描述"},
		"music": {Type: "music", Title: "歌", Description: "描述", MusicURL: "https://example.com/a.mp3",
			HQMusicURL: "https://example.com/hq.mp3", ThumbMediaID: "m_thumb_1"},
		"news": {Type: "news", Articles: []Article{{Title: "标题", Description: "描述",
			PicURL: "https://example.com/p.jpg", URL: "https://example.com/n"}}},
		"transfer_customer_service":         {Type: TransferToDesk},
		"transfer_customer_service-account": {Type: TransferToDesk, KfAccount: "alice@gatewaydemo"},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile("testdata/reply/reply-" + name + ".xml")
			require.NoError(t, err)
			got, err := samplePassive(p).Encode()
			require.NoError(t, err)
			require.Equal(t, strings.TrimSuffix(string(want), "\n"), string(got))
		})
	}
}

// The encrypted sample is what sealing the plain answer gives, and an answer
// goes out with the key and the token that its request came with.
func TestSeal(t *testing.T) {
	c := sampleCredentials(ModeSafe)
	c.PrevToken, c.PrevEncodingAESKey = c.Token, c.EncodingAESKey
	c.Token, c.EncodingAESKey = "new-token", strings.Repeat("A", 43)
	v, err := NewVerifier(c)
	require.NoError(t, err)
	q, err := ParseQuery(sampleQuery(t, "envelope-safe-text.xml"))
	require.NoError(t, err)
	opened, err := v.Open(q, callbackSamples(t)["envelope-safe-text"])
	require.NoError(t, err)

	for _, ack := range []string{"", Success} {
		got, err := v.Seal(opened, []byte(ack), "1893456002", "n")
		require.NoError(t, err)
		require.Equal(t, ack, string(got), "an acknowledgement goes out as it is")
	}
	plain, err := samplePassive(Passive{Type: "text", Content: "好"}).Encode()
	require.NoError(t, err)
	sealed, err := v.Seal(opened, plain, "1893456002", "190283746")
	require.NoError(t, err)
	again, err := v.Seal(opened, plain, "1893456002", "190283746")
	require.NoError(t, err)
	require.NotEqual(t, sealed, again, "each answer has its own random part")

	var e struct{ Encrypt, MsgSignature, TimeStamp, Nonce string }
	require.NoError(t, xml.Unmarshal(sealed, &e))
	require.Equal(t, Signature(c.PrevToken, e.TimeStamp, e.Nonce, e.Encrypt), e.MsgSignature)
	key, err := DecodeAESKey(c.PrevEncodingAESKey)
	require.NoError(t, err)
	got, err := Decrypt(key, ourAppID, e.Encrypt)
	require.NoError(t, err)
	require.Equal(t, plain, got)

	for _, bad := range [][2]string{{"", "n"}, {"1e9", "n"}, {"1", ""}, {"1", "a]]>"}} {
		_, err = v.Seal(opened, plain, bad[0], bad[1])
		require.Error(t, err)
	}
	unsealed, err := v.Seal(Opened{Plain: plain}, plain, "", "")
	require.NoError(t, err)
	require.Equal(t, plain, unsealed)
}

// Whatever a text holds, an independent XML reader and our own find exactly
// that text in the answer, without what no XML may hold.
func TestAnswerTextSurvives(t *testing.T) {
	pieces := rapid.SampledFrom([]string{"]]>", "]]", ">", "<![CDATA[", "</Content>", "&", "&amp;", "\x00", "\x02", "\xff", "余额", "\n", "a", "😀"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(pieces, 1, 12).Draw(t, "pieces"), "")
		doc, err := samplePassive(Passive{Type: "text", Content: text}).Encode()
		if err != nil {
			t.Fatalf("encode %q: %v", text, err)
		}
		var x struct{ Content string }
		if err := xml.Unmarshal(doc, &x); err != nil || x.Content != clean(text) {
			t.Fatalf("encoding/xml reads %q from %q: %v", x.Content, text, err)
		}
		m, err := ParseMessage(doc, sampleAccount)
		if err != nil || m.Quarantined {
			t.Fatalf("our reader quarantines %q: %v %s", doc, err, m.Reason)
		}
		if m.Content != clean(text) {
			t.Fatalf("our reader reads %q from %q", m.Content, text)
		}
	})
}

func TestPassiveRefusesWhatWeChatWould(t *testing.T) {
	for name, c := range map[string]struct {
		p     Passive
		field string
	}{
		"no type":        {samplePassive(Passive{}), "type"},
		"event type":     {samplePassive(Passive{Type: "event"}), "type"},
		"empty text":     {samplePassive(Passive{Type: "text"}), "content"},
		"long text":      {samplePassive(Passive{Type: "text", Content: strings.Repeat("a", MaxText+1)}), "content"},
		"no media":       {samplePassive(Passive{Type: "image"}), "media_id"},
		"no music":       {samplePassive(Passive{Type: "music", ThumbMediaID: "t"}), "music_url"},
		"no articles":    {samplePassive(Passive{Type: "news"}), "articles"},
		"nine articles":  {samplePassive(Passive{Type: "news", Articles: make([]Article, 9)}), "articles"},
		"no receiver":    {Passive{Type: "text", Content: "a", FromUser: "gh_1", CreateTime: 1}, "to_user"},
		"broken account": {Passive{Type: "text", Content: "a", ToUser: "o1", FromUser: "]]>", CreateTime: 1}, "to_user"},
		"no time":        {Passive{Type: "text", Content: "a", ToUser: "o1", FromUser: "gh_1"}, "create_time"},
	} {
		_, err := c.p.Encode()
		require.Equal(t, fault.Invalid, fault.KindOf(err), name)
		require.Equal(t, c.field, fault.FieldOf(err), name)
	}
}

func TestAnswerSwapsNames(t *testing.T) {
	m := parse(t, textDoc("hi"), sampleOpenID)
	p := m.Answer(time.Unix(1893456002, 0))
	require.Equal(t, samplePassive(Passive{}), p)
	require.Equal(t, 1, m.MaxArticles())
	require.Equal(t, 8, parse(t, string(callbackSamples(t)["event-click"]), "").MaxArticles())
}
