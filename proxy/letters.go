package proxy

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"

	"tidegate/pkg/idgen"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
)

// letter translates WeChat's message into ours. The id is derived from the
// identity, so every delivery of one callback, at any node, is the same
// letter.
func (p *Proxy) letter(a arrival) *wire.Callback {
	m := a.msg
	id := m.Identities(a.acc.Name)[0]
	hash := idgen.HashOf(id.Text)
	openid := m.FromUserName
	if openid == "" {
		// The sender is what is in doubt; what the query string names is
		// WeChat's word, but it is used for ordering and the record only.
		openid = a.query.OpenID
	}
	c := &wire.Callback{
		ID:           idgen.Derive(idgen.User(a.acc.Credentials.AppID, openid), hash),
		IdentityHash: hash.String(),
		Identity:     id.Text,
		Account:      a.acc.Name,
		OpenID:       openid,
		ToUser:       m.ToUserName,
		MsgType:      m.MsgType,
		Event:        m.Event,
		EventKey:     m.EventKey,
		MsgID:        m.MsgID,
		CreateTime:   m.CreateTime,
		Content:      m.Content,
		Fields:       m.Fields(),
		ReceivedAt:   wire.Millis(a.began),
		Quarantined:  string(m.Reason),
		Body:         a.opened.Plain,
		TraceParent:  traceParent(hash),
	}
	if answer, ok := p.passive(a, c); ok {
		c.Answered = answer.Rule
	}
	return c
}

// receiptLetters translates a report about something that we, or somebody
// else with the same account, sent. Each item of a list is a letter. A mass
// send's report is about a job and not about a follower.
func (p *Proxy) receiptLetters(a arrival) []*wire.Receipt {
	items := a.msg.Receipts()
	ids := a.msg.Identities(a.acc.Name)
	out := make([]*wire.Receipt, 0, len(items))
	for i, n := range items {
		out = append(out, &wire.Receipt{
			Source:      wire.FromWeChat,
			MessageKind: wire.KindPush,
			Account:     a.acc.Name,
			OpenID:      a.msg.FromUserName,
			TemplateID:  n.TemplateID,
			State:       stateOf(n.Outcome),
			Reason:      n.Reason,
			ErrCode:     n.ErrCode,
			MsgID:       n.MsgID,
			Event:       n.Event,
			At:          wire.Millis(a.began),
			TraceParent: traceParent(idgen.HashOf(ids[i].Text)),
		})
	}
	return out
}

func stateOf(o wechat.Outcome) wire.State {
	switch o {
	case wechat.OutcomeDelivered:
		return wire.Delivered
	case wechat.OutcomeRefused:
		return wire.RefusedByUser
	case wechat.OutcomeFailed:
		return wire.FailedByPlatform
	}
	return wire.Unknown
}

// claimKey is the identity under which deliveries of one callback meet.
func claimKey(c *wire.Callback) string { return c.IdentityHash }

// traceParent makes the trace id out of the identity, so that every delivery
// and every retry of one callback lies on one trace (W3C trace context 00).
func traceParent(h idgen.Hash) string {
	var span [8]byte
	binary.BigEndian.PutUint64(span[:], rand.Uint64()) // it tells spans apart and guards nothing
	b := make([]byte, 0, len("00--01-")+2*(16+len(span)))
	b = hex.AppendEncode(append(b, "00-"...), h[:16])
	b = hex.AppendEncode(append(b, '-'), span[:])
	return string(append(b, "-01"...))
}
