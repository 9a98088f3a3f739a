package sender

import (
	"context"
	"fmt"
	"time"

	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/sender/intent"
)

// replyLife is how long after the callback WeChat takes replies (G24).
const replyLife = 48 * time.Hour

// Priorities on a road: lower goes first.
const (
	first  = 0 // replies and realtime pushes
	second = 1 // bulk pushes
)

// parcel is a reply or a push on its way out, read once from its record.
type parcel struct {
	key       intent.Key
	api       wechat.API
	priority  int
	account   string
	template  string
	class     string    // of a reply; empty for pushes
	expires   time.Time // zero: never
	notBefore time.Time // zero: now
	past      past      // of one that was held
	born      time.Time // when the callback came or the push was accepted
	base      wire.Receipt
	parts     int // messages that it goes as: a long text is several
	send      func(ctx context.Context, w WeChat, token string, part int) (wechat.SendResult, error)
}

// push reports whether a repeat is absorbed by WeChat, through client_msg_id. A
// push of kind custom is not: it goes the way of replies (D7).
func (p *parcel) push() bool { return p.api != wechat.APICustomSend }

// receipt is a receipt with everything but the outcome.
func (p *parcel) receipt(state wire.State, at time.Time) *wire.Receipt {
	r := p.base
	r.State, r.At = state, wire.Millis(at)
	return &r
}

// read makes a parcel of a record. An error means that no release of ours
// would send it as it stands: the record is parked. The parcel is then nil,
// or, if the letter itself could be read, good for a receipt.
func read(account, lane string, rec kafka.Record) (*parcel, error) {
	if lane == wire.LaneReplies {
		r, err := wire.Decode[wire.Reply](rec.Value, rec.Headers)
		if err != nil {
			return nil, err
		}
		p := ofReply(r)
		return check(p, account, rec, func() error { return p.fillReply(r) })
	}
	m, err := wire.Decode[wire.Push](rec.Value, rec.Headers)
	if err != nil {
		return nil, err
	}
	p := ofPush(m, lane)
	return check(p, account, rec, func() error { return p.fillPush(m, lane) })
}

func check(p *parcel, account string, rec kafka.Record, fill func() error) (*parcel, error) {
	if _, err := idgen.Parse(p.key.ID); err != nil {
		return nil, err
	}
	if p.account != account {
		return nil, fmt.Errorf("letter for account %.40q in a topic of %s", p.account, account)
	}
	if !wire.ValidOpenID(p.base.OpenID) {
		p.base.OpenID = "" // the receipt must name nobody, or it could not be read itself
		return p, fmt.Errorf("letter without a valid openid")
	}
	var err error
	if p.past, err = readPast(rec); err != nil {
		return p, err
	}
	return p, fill()
}

func ofReply(r *wire.Reply) *parcel {
	return &parcel{
		key: intent.Key{ID: r.ID, IdentityHash: r.IdentityHash}, api: wechat.APICustomSend, priority: first,
		account: r.Account, class: r.Class, born: time.UnixMilli(r.ReceivedAt),
		base: wire.Receipt{
			Source: wire.FromSender, MessageKind: wire.KindReply, ID: r.ID, IdentityHash: r.IdentityHash,
			Account: r.Account, OpenID: r.OpenID, Lane: wire.LaneReplies, CallbackID: r.CallbackID,
			ResendOf: r.ResendOf, Detail: r.Rule, BornAt: r.BornAt(), TraceParent: r.TraceParent,
		},
	}
}

func (p *parcel) fillReply(r *wire.Reply) error {
	if r.ReceivedAt > 0 {
		p.expires = p.born.Add(replyLife)
	}
	if at := time.UnixMilli(r.ExpiresAt); r.ExpiresAt > 0 && (p.expires.IsZero() || at.Before(p.expires)) {
		p.expires = at
	}
	return p.fillCustom(r.Content)
}

// fillCustom is for what goes as customer-service messages.
func (p *parcel) fillCustom(c wire.Content) error {
	if p.class == "" {
		p.class = wire.PreferDuplicate
	}
	if p.class != wire.PreferDuplicate && p.class != wire.PreferLoss {
		return fmt.Errorf("letter of class %.20q, which is not known to this release", p.class)
	}
	parts, err := customMessages(p.base.OpenID, c)
	p.parts = len(parts)
	p.send = func(ctx context.Context, w WeChat, token string, part int) (wechat.SendResult, error) {
		return wechat.SendResult{}, w.CustomSend(ctx, token, parts[part])
	}
	return err
}

func ofPush(m *wire.Push, lane string) *parcel {
	p := &parcel{
		key: intent.Key{ID: m.ID, IdentityHash: m.IdentityHash}, priority: first, parts: 1,
		account: m.Account, template: m.TemplateID, born: time.UnixMilli(m.AcceptedAt),
		base: wire.Receipt{
			Source: wire.FromSender, MessageKind: wire.KindPush, ID: m.ID, IdentityHash: m.IdentityHash,
			Account: m.Account, OpenID: m.OpenID, App: m.App, Lane: lane, TemplateID: m.TemplateID,
			Reference: m.Reference, ResendOf: m.ResendOf, BornAt: m.AcceptedAt, TraceParent: m.TraceParent,
		},
	}
	if lane == wire.LaneBulk {
		p.priority = second
	}
	return p
}

func (p *parcel) fillPush(m *wire.Push, lane string) error {
	if m.Lane != lane {
		return fmt.Errorf("push of lane %.20q in the topic of lane %s", m.Lane, lane)
	}
	if m.ExpiresAt > 0 {
		p.expires = time.UnixMilli(m.ExpiresAt)
	}
	if m.NotBefore > 0 {
		p.notBefore = time.UnixMilli(m.NotBefore)
	}
	switch m.PushKind {
	case wire.PushTemplate:
		p.api = wechat.APITemplateSend
		msg := templateMessage(m)
		p.send = func(ctx context.Context, w WeChat, token string, _ int) (wechat.SendResult, error) {
			return w.TemplateSend(ctx, token, msg)
		}
	case wire.PushSubscription:
		p.api = wechat.APIBizSend
		msg := subscriptionMessage(m)
		p.send = func(ctx context.Context, w WeChat, token string, _ int) (wechat.SendResult, error) {
			return w.BizSend(ctx, token, msg)
		}
	case wire.PushCustom:
		if m.Content == nil {
			return fmt.Errorf("push of kind custom without content")
		}
		p.api, p.class = wechat.APICustomSend, m.Class
		return p.fillCustom(*m.Content)
	default:
		return fmt.Errorf("push of kind %.20q, which is not known to this release", m.PushKind)
	}
	return nil
}
