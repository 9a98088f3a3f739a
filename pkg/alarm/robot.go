package alarm

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"tidegate/pkg/outhttp"
)

func mac(key, text string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// prepare renders a message as its receiver wants it, signed for now. DingTalk
// looks for the signature in the query, over the time in milliseconds; Feishu
// in the body, where the text is the key and nothing is signed; a receiver of
// one's own in headers, over id, time and body, by each secret (S48).
func (w *webhook) prepare(m message, now time.Time) (outhttp.Request, error) {
	r := outhttp.Request{URL: w.cfg.URL, Header: http.Header{}}
	seconds := strconv.FormatInt(now.Unix(), 10)
	if w.cfg.Secret != "" && w.cfg.Robot == feishu {
		m.Timestamp, m.Sign = seconds, mac(seconds+"\n"+w.cfg.Secret, "")
	}
	body, err := w.form.render(m)
	if err != nil {
		return r, err
	}
	r.Body = body
	for name, value := range w.cfg.Headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", w.form.contentType)
	if w.cfg.Robot == generic {
		w.signHeaders(r.Header, m.ID, seconds, string(body))
	}
	if w.cfg.Robot == dingtalk && w.cfg.Secret != "" {
		r.URL, err = signQuery(r.URL, w.cfg.Secret, now)
	}
	return r, err
}

// signHeaders follows the Standard Webhooks convention.
func (w *webhook) signHeaders(h http.Header, id, seconds, body string) {
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", seconds)
	var signatures []string
	for _, secret := range []string{w.cfg.Secret, w.cfg.PrevSecret} {
		if secret != "" {
			signatures = append(signatures, "v1,"+mac(secret, id+"."+seconds+"."+body))
		}
	}
	if len(signatures) > 0 {
		h.Set("Webhook-Signature", strings.Join(signatures, " "))
	}
}

func signQuery(raw, secret string, now time.Time) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", fmt.Errorf("url: %s cannot be signed", outhttp.Redact(raw))
	}
	millis := strconv.FormatInt(now.UnixMilli(), 10)
	q := u.Query()
	q.Set("timestamp", millis)
	q.Set("sign", mac(secret, millis+"\n"+secret))
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// refusal is what a receiver has against a message.
type refusal struct {
	why   string
	final bool // trying again cannot help
}

// judge reads an answer. Group robots answer 200 and say in the body that they
// did not take the message.
func judge(robot string, a outhttp.Answer) *refusal {
	if a.Status < 200 || a.Status > 299 {
		limited := a.Status == http.StatusTooManyRequests || a.Status == http.StatusRequestTimeout
		return &refusal{fmt.Sprintf("status %d", a.Status), a.Status >= 300 && a.Status < 500 && !limited}
	}
	if robot == generic {
		return nil
	}
	var said struct {
		ErrCode    *int64 `json:"errcode"`    // WeCom, DingTalk
		Code       *int64 `json:"code"`       // Feishu
		StatusCode *int64 `json:"StatusCode"` // Feishu, older
	}
	if err := json.Unmarshal(a.Body, &said); err != nil {
		return &refusal{why: "its answer is not the JSON of a " + robot + " robot"}
	}
	codes := []*int64{said.ErrCode}
	if robot == feishu {
		codes = []*int64{said.Code, said.StatusCode}
	}
	known := false
	for _, c := range codes {
		if c != nil && *c != 0 {
			return &refusal{why: fmt.Sprintf("code %d", *c)}
		}
		known = known || c != nil
	}
	if !known {
		return &refusal{why: "its answer holds no code of a " + robot + " robot"}
	}
	return nil
}

// paceOf keeps to what group robots take, twenty messages a minute: DingTalk
// silences one that sends more for ten minutes.
func paceOf(robot string) *rate.Limiter {
	if robot == generic {
		return rate.NewLimiter(rate.Inf, 1)
	}
	return rate.NewLimiter(rate.Every(4*time.Second), 5)
}
