package wechat

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
)

// vector is one entry of testdata/crypto-vectors.json. V* come from Tencent's
// published examples, X* are invented.
type vector struct {
	ID             string
	Token          string
	EncodingAESKey string `json:"encoding_aes_key"`
	AppID          string
	Timestamp      string
	Nonce          string
	EchoStr        string
	Signature      string
	Encrypt        string
	MsgSignature   string `json:"msg_signature"`
	Plaintext      string
	Random         string
	Body           string
	Envelope       string
	Expect         string
}

const ourAppID = "wx9f3c7b21d08e4a56"

func loadVectors(t testing.TB) []vector {
	t.Helper()
	raw, err := os.ReadFile("testdata/crypto-vectors.json")
	require.NoError(t, err)
	var vs []vector
	require.NoError(t, json.Unmarshal(raw, &vs))
	require.Len(t, vs, 21)
	return vs
}

// query is the query string that WeChat would send with the vector. Some
// published examples leave out the three-part signature; it is computed then.
func (v vector) query(t testing.TB) Query {
	t.Helper()
	if v.Signature == "" {
		v.Signature = Signature(v.Token, v.Timestamp, v.Nonce)
	}
	raw := "signature=" + v.Signature + "&timestamp=" + v.Timestamp + "&nonce=" + v.Nonce
	if v.EchoStr != "" {
		raw += "&echostr=" + v.EchoStr
	}
	if v.MsgSignature != "" {
		raw += "&encrypt_type=aes&msg_signature=" + v.MsgSignature
	}
	q, err := ParseQuery(raw)
	require.NoError(t, err)
	return q
}

func (v vector) body() []byte {
	if v.Body != "" {
		return []byte(v.Body)
	}
	return []byte("<xml><ToUserName><![CDATA[gh_5d1e0a77c3b2]]></ToUserName><Encrypt><![CDATA[" + v.Encrypt + "]]></Encrypt></xml>")
}

// credentials are the account's settings. The invented vectors all belong to
// one account, also the one whose ciphertext names another appid.
func (v vector) credentials() Credentials {
	c := Credentials{AppID: v.AppID, Token: v.Token, EncodingAESKey: v.EncodingAESKey, Mode: ModeSafe}
	if strings.HasPrefix(v.ID, "X") {
		c.AppID = ourAppID
	}
	if v.EncodingAESKey == "" {
		c.Mode = ModePlain
	}
	return c
}

func TestVectors(t *testing.T) {
	ran := 0
	for _, v := range loadVectors(t) {
		t.Run(v.ID, func(t *testing.T) {
			ran++
			ver, err := NewVerifier(v.credentials())
			require.NoError(t, err)
			q := v.query(t)
			require.NoError(t, ver.CheckQuery(q))
			if v.Encrypt == "" {
				checkUnencryptedVector(t, v, ver, q)
				return
			}
			opened, err := ver.Open(q, v.body())
			if v.Expect != "ok" {
				requireRefusal(t, err, vectorReasons[v.Expect[:strings.IndexAny(v.Expect+" ", " ")]])
				return
			}
			require.NoError(t, err)
			require.True(t, opened.Encrypted)
			require.Equal(t, v.Plaintext, string(opened.Plain))
			require.Equal(t, v.MsgSignature, Signature(v.Token, v.Timestamp, v.Nonce, v.Encrypt))
			checkEncryptVector(t, v)
		})
	}
	require.Equal(t, 21, ran)
}

// vectorReasons maps the reason that the vectors' author gives to the one that
// we keep for ourselves: what is wrong inside a ciphertext is one reason.
var vectorReasons = map[string]Reason{
	"reject:appid":         ReasonCiphertext,
	"reject:padding":       ReasonCiphertext,
	"reject:length":        ReasonCiphertext,
	"reject:msg_signature": ReasonSignature,
}

func checkUnencryptedVector(t *testing.T, v vector, ver *Verifier, q Query) {
	require.Equal(t, v.Signature, Signature(v.Token, v.Timestamp, v.Nonce))
	if v.EchoStr == "" {
		return
	}
	echo, err := ver.CheckURL(q)
	require.NoError(t, err)
	require.Equal(t, v.EchoStr, echo)
}

// checkEncryptVector encrypts with the published random part and wants the
// published ciphertext, and the published envelope where there is one.
func checkEncryptVector(t *testing.T, v vector) {
	key, err := DecodeAESKey(v.EncodingAESKey)
	require.NoError(t, err)
	text, err := Encrypt(key, v.AppID, []byte(v.Random), []byte(v.Plaintext))
	require.NoError(t, err)
	require.Equal(t, v.Encrypt, text)
	if v.Envelope != "" {
		require.Equal(t, v.Envelope, string(sealedEnvelope(v.Token, text, v.Timestamp, v.Nonce)))
	}
}

func requireRefusal(t testing.TB, err error, reason Reason) {
	t.Helper()
	var r *Refusal
	require.ErrorAs(t, err, &r)
	require.Equal(t, reason, r.Reason)
	require.Equal(t, fault.Denied, fault.KindOf(err))
	require.Equal(t, "callback refused", r.Error(), "the text must not tell which check it was")
}
