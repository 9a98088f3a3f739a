package drive

import (
	"encoding/xml"
	"fmt"
	"net/http"

	"tidegate/pkg/wechat"
	"tidegate/test/chaos/history"
)

// maxAnswer bounds an answer; WeChat takes nothing longer either.
const maxAnswer = 64 << 10

// classify puts an answer into one of G2's classes, and says what is wrong with
// one that is no ack.
func (s *sealer) classify(a Act, status int, body []byte) (class, wrong string) {
	switch {
	case status == http.StatusServiceUnavailable:
		return history.Refused, "503"
	case status != http.StatusOK:
		return history.Malformed, fmt.Sprintf("status %d", status)
	case string(body) == "success":
		return history.Success, ""
	case len(body) == 0:
		return history.Empty, ""
	}
	if err := s.passive(a, body); err != nil {
		return history.Malformed, err.Error()
	}
	return history.Passive, ""
}

// passive checks that a body is a message to the user who wrote.
func (s *sealer) passive(a Act, body []byte) error {
	if s.key != nil {
		var e struct{ Encrypt, MsgSignature, TimeStamp, Nonce string }
		if err := xml.Unmarshal(body, &e); err != nil {
			return fmt.Errorf("not success, not empty, no XML: %.60q", body)
		}
		if e.Encrypt == "" || e.MsgSignature != wechat.Signature(s.Token, e.TimeStamp, e.Nonce, e.Encrypt) {
			return fmt.Errorf("a safe account's answer is not encrypted, or its signature is wrong")
		}
		plain, err := wechat.Decrypt(s.key, s.AppID, e.Encrypt)
		if err != nil {
			return fmt.Errorf("an answer that cannot be decrypted: %w", err)
		}
		body = plain
	}
	var m struct{ ToUserName, FromUserName, CreateTime, MsgType string }
	if err := xml.Unmarshal(body, &m); err != nil {
		return fmt.Errorf("not success, not empty, no XML: %.60q", body)
	}
	if m.ToUserName != a.OpenID || m.FromUserName != s.GhID || m.CreateTime == "" || m.MsgType == "" {
		return fmt.Errorf("a passive answer that is not from %s to %s", s.GhID, a.OpenID)
	}
	return nil
}
