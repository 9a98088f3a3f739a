package wechat

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
)

func TestParseQueryRefusesOddForms(t *testing.T) {
	sig := strings.Repeat("a", 40)
	good := "signature=" + sig + "&timestamp=1893456001&nonce=778899001"
	for _, raw := range []string{good, good + "&openid=oA-_9", good + "&new=1", "", "&", good + "&encrypt_type=raw",
		good + "&echostr=%3Cscript%3E", good + "&openid="} {
		_, err := ParseQuery(raw)
		require.NoError(t, err, raw)
	}
	for name, raw := range map[string]string{
		"double":            good + "&signature=" + sig,
		"double unknown":    good + "&a=1&a=2",
		"semicolon":         good + ";nonce=1",
		"encoded name":      good + "&%6eonce=1",
		"empty name":        good + "&=1",
		"upper case":        "signature=" + strings.ToUpper(sig),
		"space":             "signature=%20" + sig[1:],
		"short":             "signature=" + sig[1:],
		"bad msg_signature": "msg_signature=" + sig + "0",
		"negative":          "timestamp=-1",
		"exponent":          "timestamp=1e9",
		"30 digits":         "timestamp=" + strings.Repeat("1", 30),
		"arabic digits":     "timestamp=%D9%A3%D9%A4",
		"plus":              "timestamp=+1",
		"bad escape":        "nonce=%zz",
		"control":           "nonce=%00",
		"long nonce":        "nonce=" + strings.Repeat("1", maxNonce+1),
		"path openid":       "openid=..%2F..%2Fx",
		"tag openid":        "openid=%7Btag%7D",
		"glob openid":       "openid=*",
		"long openid":       "openid=" + strings.Repeat("o", 65),
		"line openid":       "openid=a%0D%0Ab",
		"encrypt type":      "encrypt_type=AES",
		"echo with line":    "echostr=a%0ab",
		"too long":          "a=" + strings.Repeat("1", maxQuery),
		"many":              manyParams(maxQueryParams + 1),
	} {
		_, err := ParseQuery(raw)
		require.Error(t, err, name)
		requireRefusal(t, err, ReasonQuery)
	}
}

func manyParams(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("&p" + strings.Repeat("x", i) + "=1")
	}
	return b.String()
}

func signed(token string, more ...string) Query {
	q := Query{Timestamp: "1893456001", Nonce: "778899001"}
	q.Signature = Signature(token, q.Timestamp, q.Nonce)
	if len(more) > 0 {
		q.MsgSignature = Signature(token, q.Timestamp, q.Nonce, more[0])
		q.EncryptType = "aes"
	}
	return q
}

// S1 to S3: nothing is read of a request that is not signed with our token.
func TestCheckQuery(t *testing.T) {
	v, err := NewVerifier(Credentials{Token: "ours", Mode: ModePlain})
	require.NoError(t, err)
	require.NoError(t, v.CheckQuery(signed("ours")))
	for _, drop := range []func(*Query){
		func(q *Query) { q.Signature = "" }, func(q *Query) { q.Timestamp = "" }, func(q *Query) { q.Nonce = "" },
	} {
		q := signed("ours")
		drop(&q)
		requireRefusal(t, v.CheckQuery(q), ReasonMissing)
		_, err := v.Open(q, []byte("<xml></xml>"))
		requireRefusal(t, err, ReasonMissing)
	}
	requireRefusal(t, v.CheckQuery(signed("another account's")), ReasonSignature)
	_, err = v.CheckURL(signed("ours"))
	requireRefusal(t, err, ReasonMissing)
	q := signed("another account's")
	q.EchoStr, q.HasEchoStr = "<script>", true
	echo, err := v.CheckURL(q)
	requireRefusal(t, err, ReasonSignature)
	require.Empty(t, echo)
}

// S5: the window is off unless it is set, and exact when it is.
func TestFreshness(t *testing.T) {
	c := Credentials{Token: "ours", Mode: ModePlain, Freshness: 300 * time.Second}
	at := func(seconds int64) *Verifier {
		v, err := NewVerifier(c, WithClock(func() time.Time { return time.Unix(1893456001+seconds, 0) }))
		require.NoError(t, err)
		return v
	}
	for _, s := range []int64{-300, 0, 300} {
		require.NoError(t, at(s).CheckQuery(signed("ours")), s)
	}
	for _, s := range []int64{-301, 301} {
		requireRefusal(t, at(s).CheckQuery(signed("ours")), ReasonStale)
	}
	c.Freshness = 0
	require.NoError(t, at(1<<30).CheckQuery(signed("ours")))
}

// S16: two tokens and two keys are known during a change, one after it.
func TestRotation(t *testing.T) {
	oldKey, newKey := "pL0oKmNjIuHbVgYtFcXdRzSeAwQ1234567890aZbYcX", sampleCredentials(ModeSafe).EncodingAESKey
	for _, token := range []string{"old", "new"} {
		for _, encoded := range []string{oldKey, newKey} {
			key, err := DecodeAESKey(encoded)
			require.NoError(t, err)
			text, err := Encrypt(key, ourAppID, nil, []byte("<xml/>"))
			require.NoError(t, err)
			c := Credentials{AppID: ourAppID, Token: "new", PrevToken: "old", EncodingAESKey: newKey, PrevEncodingAESKey: oldKey}
			v, err := NewVerifier(c)
			require.NoError(t, err)
			require.Equal(t, ModeSafe, v.Mode(), "safe is the default")
			opened, err := v.Open(signed(token, text), envelope(text))
			require.NoError(t, err)
			require.Equal(t, "<xml/>", string(opened.Plain))
			sealed, err := v.Seal(opened, []byte("<xml>a</xml>"), "1", "n")
			require.NoError(t, err)
			require.Equal(t, []string{text2plain(t, encoded, sealed)}, []string{"<xml>a</xml>"})

			c.PrevToken, c.PrevEncodingAESKey = "", ""
			v, err = NewVerifier(c)
			require.NoError(t, err)
			_, err = v.Open(signed(token, text), envelope(text))
			switch {
			case token == "old":
				requireRefusal(t, err, ReasonSignature)
			case encoded == oldKey:
				requireRefusal(t, err, ReasonCiphertext)
			default:
				require.NoError(t, err)
			}
		}
	}
}

// The overlap ends at a time of its own: nobody has to come back and take the
// old values out of the configuration.
func TestRotationEndsByItself(t *testing.T) {
	oldKey, newKey := "pL0oKmNjIuHbVgYtFcXdRzSeAwQ1234567890aZbYcX", sampleCredentials(ModeSafe).EncodingAESKey
	end := time.Unix(1893456001, 0)
	c := Credentials{AppID: ourAppID, Token: "new", PrevToken: "old", EncodingAESKey: newKey, PrevEncodingAESKey: oldKey, PrevUntil: end}
	sealed := func(encoded string) string {
		key, err := DecodeAESKey(encoded)
		require.NoError(t, err)
		text, err := Encrypt(key, ourAppID, nil, []byte("<xml/>"))
		require.NoError(t, err)
		return text
	}
	for now, good := range map[time.Time]bool{end.Add(-time.Nanosecond): true, end: false, end.Add(time.Hour): false} {
		v, err := NewVerifier(c, WithClock(func() time.Time { return now }))
		require.NoError(t, err)
		for _, token := range []string{"old", "new"} {
			for _, key := range []string{oldKey, newKey} {
				text := sealed(key)
				_, err := v.Open(signed(token, text), envelope(text))
				switch {
				case good || token == "new" && key == newKey:
					require.NoError(t, err)
				case token == "old":
					requireRefusal(t, err, ReasonSignature)
				default:
					requireRefusal(t, err, ReasonCiphertext)
				}
			}
		}
	}
	require.ErrorContains(t, Credentials{Token: "t", Mode: ModePlain, PrevUntil: end}.Validate(), "prev_until")
}

func text2plain(t *testing.T, encodedKey string, sealed []byte) string {
	key, err := DecodeAESKey(encodedKey)
	require.NoError(t, err)
	plain, err := Decrypt(key, ourAppID, string(encryptTexts(sealed)[0]))
	require.NoError(t, err)
	return string(plain)
}

func envelope(text string) []byte {
	return []byte("<xml><ToUserName>gh_1</ToUserName><Encrypt><![CDATA[" + text + "]]></Encrypt></xml>")
}

// S9: what a request must look like follows from the configuration alone.
func TestModesAreDecidedByConfiguration(t *testing.T) {
	key, err := DecodeAESKey(sampleCredentials(ModeSafe).EncodingAESKey)
	require.NoError(t, err)
	token := sampleCredentials(ModeSafe).Token
	text, err := Encrypt(key, ourAppID, nil, []byte(textDoc("real")))
	require.NoError(t, err)
	plain := []byte(textDoc("forged"))
	both := []byte(strings.Replace(textDoc("forged"), "</xml>", "<Encrypt>"+text+"</Encrypt></xml>", 1))

	for _, mode := range []Mode{ModeSafe, ModeCompatible} {
		v, err := NewVerifier(sampleCredentials(mode))
		require.NoError(t, err)
		for _, body := range [][]byte{envelope(text), both} {
			opened, err := v.Open(signed(token, text), body)
			require.NoError(t, err)
			require.Equal(t, textDoc("real"), string(opened.Plain), "only the decrypted part is used")
		}
		_, err = v.Open(signed(token), plain)
		requireRefusal(t, err, ReasonMode)
		_, err = v.Open(signed(token), envelope(text))
		requireRefusal(t, err, ReasonMode)
		_, err = v.Open(signed(token, text), plain)
		requireRefusal(t, err, ReasonMode)
		_, err = v.Open(signed(token, text), bytes.Replace(envelope(text), []byte("xml>"), []byte("xml >"), 1))
		requireRefusal(t, err, ReasonEnvelope)
		_, err = v.Open(signed(token, text), append([]byte("<!DOCTYPE x>"), envelope(text)...))
		requireRefusal(t, err, ReasonEnvelope)
		_, err = v.Open(signed(token, text), make([]byte, MaxBody+1))
		var r *Refusal
		require.ErrorAs(t, err, &r)
		require.Equal(t, ReasonTooLarge, r.Reason)
		require.Equal(t, fault.Invalid, fault.KindOf(err))
	}

	v, err := NewVerifier(sampleCredentials(ModePlain))
	require.NoError(t, err)
	opened, err := v.Open(signed(token), plain)
	require.NoError(t, err)
	require.Equal(t, plain, opened.Plain)
	opened, err = v.Open(signed(token, text), both)
	require.NoError(t, err, "compatible mode exists for receivers that cannot decrypt yet")
	require.False(t, opened.Encrypted)
	_, err = v.Open(signed(token, text), envelope(text))
	requireRefusal(t, err, ReasonMode)
	_, err = v.Open(signed(token), []byte(" \n"))
	requireRefusal(t, err, ReasonEnvelope)
}

// A follower of an account in compatible mode can write an Encrypt element into
// his own words. It must not keep his message from being opened: refusing it
// often enough would pause the account.
func TestFollowerCannotHideTheCiphertext(t *testing.T) {
	c := sampleCredentials(ModeCompatible)
	v, err := NewVerifier(c)
	require.NoError(t, err)
	key, err := DecodeAESKey(c.EncodingAESKey)
	require.NoError(t, err)
	for _, typed := range []string{"]]></Content><Encrypt><![CDATA[AAAA]]></Encrypt>", "<Encrypt>", "</Encrypt>", "<Encrypt>AAAA</Encrypt>",
		"<!DOCTYPE x>", strings.Repeat("<Encrypt>A</Encrypt>", 500)} {
		text, err := Encrypt(key, ourAppID, nil, []byte(textDoc(typed)))
		require.NoError(t, err)
		body := strings.Replace(textDoc(typed), "</xml>", "<Encrypt><![CDATA[ "+text+"\n]]></Encrypt></xml>", 1)
		require.LessOrEqual(t, len(body), MaxBody)
		opened, err := v.Open(signed(c.Token, text), []byte(body))
		require.NoError(t, err)
		require.Equal(t, textDoc(typed), string(opened.Plain))
	}
}

func TestCredentialsAreChecked(t *testing.T) {
	good := sampleCredentials(ModeSafe)
	require.NoError(t, good.Validate())
	for field, spoil := range map[string]func(*Credentials){
		"mode":                  func(c *Credentials) { c.Mode = "Safe" },
		"token":                 func(c *Credentials) { c.Token = "" },
		"app_id":                func(c *Credentials) { c.AppID = "" },
		"encoding_aes_key":      func(c *Credentials) { c.EncodingAESKey = "" },
		"encoding_aes_key:":     func(c *Credentials) { c.EncodingAESKey = "short-secret" },
		"prev_encoding_aes_key": func(c *Credentials) { c.PrevEncodingAESKey = "short-secret" },
		"freshness":             func(c *Credentials) { c.Freshness = -1 },
	} {
		c := good
		spoil(&c)
		err := c.Validate()
		require.ErrorContains(t, err, field)
		require.NotContains(t, err.Error(), "short-secret")
		require.NotContains(t, err.Error(), good.Token)
	}
}
