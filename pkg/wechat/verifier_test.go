package wechat

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
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

func text2plain(t *testing.T, encodedKey string, sealed []byte) string {
	key, err := DecodeAESKey(encodedKey)
	require.NoError(t, err)
	plain, err := Decrypt(key, ourAppID, encryptTexts(sealed)[0])
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

// S10, S11: whatever is wrong with a ciphertext, the refusal is the same.
func TestBadCiphertexts(t *testing.T) {
	c := sampleCredentials(ModeSafe)
	v, err := NewVerifier(c)
	require.NoError(t, err)
	key, err := DecodeAESKey(c.EncodingAESKey)
	require.NoError(t, err)
	body := []byte("<xml></xml>")
	frame := func(length uint32, msg []byte, appID string, pad func(n int) []byte) string {
		f := append(make([]byte, 16), binary.BigEndian.AppendUint32(nil, length)...)
		f = append(append(f, msg...), appID...)
		f = append(f, pad(padBlock-len(f)%padBlock)...)
		block, err := aes.NewCipher(key)
		require.NoError(t, err)
		cipher.NewCBCEncrypter(block, key[:16]).CryptBlocks(f, f)
		return base64.StdEncoding.EncodeToString(f)
	}
	normal := func(n int) []byte { return bytes.Repeat([]byte{byte(n)}, n) }
	last := func(b byte) func(int) []byte {
		return func(n int) []byte { p := normal(n); p[n-1] = b; return p }
	}
	good := frame(11, body, ourAppID, normal)
	_, err = v.Open(signed(c.Token, good), envelope(good))
	require.NoError(t, err, "the frame maker makes good frames as well")

	bad := map[string]string{
		"other appid":     frame(11, body, "wx0000000000000001", normal),
		"no appid":        frame(11, body, "", normal),
		"longer appid":    frame(11, body, ourAppID+"x", normal),
		"length short":    frame(10, body, ourAppID, normal),
		"length past end": frame(1000, body, ourAppID, normal),
		"length negative": frame(0xffffffff, body, ourAppID, normal),
		"pad 0":           frame(11, body, ourAppID, last(0)),
		"pad 33":          frame(11, body, ourAppID, last(33)),
		"pad 255":         frame(11, body, ourAppID, last(255)),
		"pad uneven":      frame(11, body, ourAppID, func(n int) []byte { p := normal(n); p[0] ^= 1; return p }),
		"one block":       base64.StdEncoding.EncodeToString(make([]byte, 16)),
		"no block":        base64.StdEncoding.EncodeToString(make([]byte, 17)),
		"no base64":       "AAA",
		"padding only":    "====",
		"zeros":           base64.StdEncoding.EncodeToString(make([]byte, 45<<10)),
	}
	for name, text := range bad {
		_, err := v.Open(signed(c.Token, text), envelope(text))
		requireRefusal(t, err, ReasonCiphertext)
		_, err = Decrypt(key, ourAppID, text)
		require.Equal(t, ErrCiphertext, err, name)
		_, err = v.Open(signed("another's", text), envelope(text))
		requireRefusal(t, err, ReasonSignature)
		forged := signed(c.Token, text)
		forged.MsgSignature = strings.Repeat("0", 40)
		_, err = v.Open(forged, envelope(text))
		requireRefusal(t, err, ReasonSignature)
	}
	_, err = v.Open(signed(c.Token, ""), envelope(""))
	requireRefusal(t, err, ReasonMode)
}

// The whole range of paddings goes both ways, a full block included.
func TestEveryPadding(t *testing.T) {
	key, err := DecodeAESKey(strings.Repeat("A", 43))
	require.NoError(t, err)
	for n := range 70 {
		msg := bytes.Repeat([]byte("x"), n)
		text, err := Encrypt(key, "wx1", nil, msg)
		require.NoError(t, err)
		got, err := Decrypt(key, "wx1", text)
		require.NoError(t, err)
		require.Equal(t, msg, got)
		raw, err := base64.StdEncoding.DecodeString(text)
		require.NoError(t, err)
		require.Zero(t, len(raw)%padBlock)
	}
	for _, random := range [][]byte{make([]byte, 15), make([]byte, 17)} {
		_, err = Encrypt(key, "wx1", random, nil)
		require.Error(t, err)
	}
	_, err = Encrypt(key[:31], "wx1", nil, nil)
	require.Error(t, err)
	_, err = Encrypt(key, "wx1", nil, make([]byte, maxPlain+1))
	require.Error(t, err)
	_, err = Decrypt(nil, "wx1", "")
	require.Error(t, err)
}

func TestDecodeAESKeyIsLenientAboutUnusedBits(t *testing.T) {
	strict := strings.Repeat("A", 42)
	want, err := DecodeAESKey(strict + "A")
	require.NoError(t, err)
	require.Len(t, want, 32)
	for _, c := range "BCD" {
		got, err := DecodeAESKey(strict + string(c))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	got, err := DecodeAESKey(" " + strict + "A\n")
	require.NoError(t, err)
	require.Equal(t, want, got)
	for _, bad := range []string{"", strict, strict + "AA", strict + "-", strict + "=", strings.Repeat("A", 41) + "\nA"} {
		_, err := DecodeAESKey(bad)
		require.Error(t, err)
		require.NotContains(t, err.Error(), strict)
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
