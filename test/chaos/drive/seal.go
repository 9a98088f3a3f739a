package drive

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"time"

	"tidegate/pkg/wechat"
)

// sealer makes deliveries of one account.
type sealer struct {
	Account
	key []byte
}

func newSealer(a Account) (*sealer, error) {
	s := &sealer{Account: a}
	if a.EncodingAESKey == "" {
		return s, nil
	}
	key, err := wechat.DecodeAESKey(a.EncodingAESKey)
	if err != nil {
		return nil, fmt.Errorf("account %s: %w", a.Name, err)
	}
	s.key = key
	return s, nil
}

// request is the path with its query, and the body, of one delivery.
func (s *sealer) request(a Act) (path string, body []byte, err error) {
	ts, nonce := strconv.FormatInt(time.Now().Unix(), 10), strconv.FormatUint(rand.Uint64(), 10)
	q := url.Values{"signature": {wechat.Signature(s.Token, ts, nonce)}, "timestamp": {ts}, "nonce": {nonce}, "openid": {a.OpenID}}
	body = a.document(s.GhID)
	if s.key != nil {
		random := fmt.Appendf(nil, "%016x", rand.Uint64())
		sealed, err := wechat.Encrypt(s.key, s.AppID, random, body)
		if err != nil {
			return "", nil, fmt.Errorf("encrypt %s: %w", a.Token, err)
		}
		q.Set("encrypt_type", "aes")
		q.Set("msg_signature", wechat.Signature(s.Token, ts, nonce, sealed))
		body = []byte("<xml><ToUserName><![CDATA[" + s.GhID + "]]></ToUserName><Encrypt><![CDATA[" + sealed + "]]></Encrypt></xml>")
	}
	return "/wx/" + s.Name + "?" + q.Encode(), body, nil
}
