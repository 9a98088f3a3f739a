package wechatsim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"time"

	"tidegate/pkg/wechat"
)

// sealer signs and encrypts for one account. The primitives are pkg/wechat's,
// proved by published vectors; everything around them is written here.
type sealer struct {
	ghID, appID, token, mode string
	key                      []byte
}

func newSealer(a Account) (sealer, error) {
	s := sealer{ghID: a.GhID, appID: a.AppID, token: a.Token, mode: a.Mode}
	if a.Mode == ModePlain {
		return s, nil
	}
	key, err := wechat.DecodeAESKey(a.EncodingAESKey)
	if err != nil {
		return s, fmt.Errorf("account %s: %w", a.AppID, err)
	}
	s.key = key
	return s, nil
}

// request is the query and body of one delivery, fresh each time: a new
// timestamp, nonce, signature and cipher text around the same document.
func (s sealer) request(openid string, doc []byte, now time.Time) (url.Values, []byte, error) {
	timestamp, nonce := strconv.FormatInt(now.Unix(), 10), newNonce()
	q := url.Values{"timestamp": {timestamp}, "nonce": {nonce}}
	q.Set("signature", wechat.Signature(s.token, timestamp, nonce))
	if openid != "" {
		q.Set("openid", openid)
	}
	if s.mode == ModePlain {
		return q, doc, nil
	}
	cipher, err := wechat.Encrypt(s.key, s.appID, random16(), doc)
	if err != nil {
		return nil, nil, fmt.Errorf("encrypt callback: %w", err)
	}
	q.Set("encrypt_type", "aes")
	q.Set("msg_signature", wechat.Signature(s.token, timestamp, nonce, cipher))
	return q, s.envelope(doc, cipher), nil
}

// envelope is the encrypted body: alone in safe mode, inside the plain document
// in compatible mode.
func (s sealer) envelope(doc []byte, cipher string) []byte {
	element := "<Encrypt><![CDATA[" + cipher + "]]></Encrypt>\n</xml>"
	if s.mode == ModeCompatible {
		if head, ok := bytes.CutSuffix(bytes.TrimSpace(doc), []byte("</xml>")); ok {
			return append(bytes.Clone(head), element...)
		}
	}
	return []byte("<xml>\n    <ToUserName><![CDATA[" + s.ghID + "]]></ToUserName>\n    " + element)
}

// verification is the query of the GET check.
func (s sealer) verification(now time.Time) (url.Values, string) {
	timestamp, nonce := strconv.FormatInt(now.Unix(), 10), newNonce()
	echo := strconv.FormatUint(rand.Uint64()>>1, 10)
	return url.Values{
		"signature": {wechat.Signature(s.token, timestamp, nonce)},
		"timestamp": {timestamp}, "nonce": {nonce}, "echostr": {echo},
	}, echo
}

func newNonce() string { return strconv.Itoa(100_000_000 + rand.IntN(1_900_000_000)) }

// random16 is the random head of a frame: letters and digits, as WeChat's own.
func random16() []byte {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	b := make([]byte, 16)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return b
}
