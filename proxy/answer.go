package proxy

import (
	"context"
	"encoding/hex"
	"net/http"
	"strconv"

	"go.uber.org/zap"

	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
)

// passive decides whether the ack itself answers (D2), and only for message
// types that WeChat lets us answer.
func (p *Proxy) passive(a arrival, c *wire.Callback) (Instant, bool) {
	if !a.msg.MayAnswer() {
		return Instant{}, false
	}
	return (*p.atOnce.Load())(c)
}

// answer writes the ack, with its passive answer where there is one. It is
// the same for every delivery of one callback; again says that this one is not
// the first.
func (p *Proxy) answer(ctx context.Context, w http.ResponseWriter, a arrival, c *wire.Callback, again bool) {
	instant, ok := p.passive(a, c)
	if !ok {
		instant, ok = p.notice(ctx, a, c, again)
	}
	if !ok {
		p.success(w, a)
		return
	}
	body, err := p.seal(a, c, instant)
	if err != nil {
		// The record is durable: an answer that cannot be written must not undo
		// that.
		p.d.Log.Error("passive answer cannot be written, so success was answered; correct the rule",
			zap.String("account", a.acc.Name), zap.String("rule", instant.Rule), zap.Error(err))
		p.success(w, a)
		return
	}
	w.Header().Set("Content-Type", "text/xml; charset=utf-8")
	p.write(w, a, body)
}

func (p *Proxy) seal(a arrival, c *wire.Callback, i Instant) ([]byte, error) {
	r := a.msg.Answer(a.began)
	r.Type, r.Content = "text", i.Text
	if i.HandOver {
		r.Type, r.KfAccount = wechat.TransferToDesk, i.Desk
	}
	plain, err := r.Encode()
	if err != nil {
		return nil, err
	}
	nonce := hex.EncodeToString([]byte(c.IdentityHash)[:8])
	return a.acc.verifier.Seal(a.opened, plain, strconv.FormatInt(a.began.Unix(), 10), nonce)
}

// success is the plain acknowledgement. Its Content-Type is left to net/http,
// which finds text/plain in the body: a header that nobody has touched is not
// copied.
func (p *Proxy) success(w http.ResponseWriter, a arrival) {
	p.write(w, a, success)
}

func (p *Proxy) write(w http.ResponseWriter, a arrival, body []byte) {
	_, _ = w.Write(body)
	p.m.ack.Observe(p.d.Now().Sub(a.began).Seconds())
}
