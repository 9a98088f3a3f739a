package sender

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wechat"
)

// Before the permit of its API a message pays a toll: one call of the day's quota,
// from what this node has leased, and in one step in Redis the caps of its template,
// its application and its user. What cannot pay waits, outside the road. A toll that
// was paid and not used (it expired, was cancelled, or belongs to somebody else now)
// is given back.
//
//	day quota ▸ template, app, user ▸ intent ▸ permit (lane, API) ▸ request
//
// Caps hold at the moment of the toll. A departure follows within tollLife or the
// toll is paid anew; the period of a user's cap is longer by that, so that it holds
// for departures too. The day is looked at again when the permit is there.

// tollLife bounds the time between the toll and the departure.
const tollLife = 2 * time.Second

// quotaAsk bounds one question to WeChat about a quota.
const quotaAsk = 5 * time.Second

// toll is what a message has paid and not used yet.
type toll struct {
	slip  ratelimit.Slip
	grant ratelimit.Grant
	paid  bool
	timed bool // it holds for tollLife
}

// pay takes a message's toll, or says how long it has to wait and for what.
func (s *Sender) pay(ctx context.Context, st *station, p *parcel) (*toll, pause, error) {
	t := &toll{}
	if st.gate == nil {
		return t, pause{}, nil
	}
	slip, wait, err := st.gate.quotas[p.api].Take(ctx)
	if err != nil {
		return nil, pause{}, err
	}
	if wait > 0 {
		return nil, s.throttled(p, pause{wait, whyDayQuota}), nil
	}
	t.slip, t.paid = slip, true
	caps, whys := st.gate.capsOf(p)
	if len(caps) == 0 {
		return t, pause{}, nil
	}
	grant, err := s.joint.Take(ctx, "caps/"+p.account, p.key.ID, caps)
	if err != nil {
		slip.Back()
		return nil, pause{}, err
	}
	if !grant.OK() {
		slip.Back()
		return nil, s.throttled(p, pause{grant.Wait, whys[grant.Refused]}), nil
	}
	t.grant, t.timed = grant, true
	return t, pause{}, nil
}

func (s *Sender) throttled(p *parcel, stop pause) pause {
	s.met.throttled.WithLabelValues(p.account, p.base.Lane, stop.why).Inc()
	return stop
}

// used books the toll: the request is about to be made.
func (t *toll) used() { t.paid = false }

// back gives the toll back if it was not used.
func (t *toll) back(ctx context.Context) {
	if !t.paid {
		return
	}
	t.paid = false
	t.slip.Back()
	if t.timed {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		t.grant.Back(ctx)
	}
}

// depart waits for the permit with the toll in hand. If that takes longer than the
// toll holds, or the day has turned, the message begins anew.
func (s *Sender) depart(hard context.Context, st *station, r *road, p *parcel, g *progress, t *toll) (*ending, pause, error) {
	ctx := hard
	if t.timed {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(hard, tollLife)
		defer cancel()
	}
	e, stop, err := s.permit(ctx, st, r, p, g)
	switch {
	case err != nil && hard.Err() == nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, pause{time.Millisecond, whyTemplateCap}, nil
	case e != nil || stop.wait > 0 || err != nil:
		return e, stop, err
	case !t.slip.Holds(s.now()):
		return nil, pause{time.Millisecond, whyDayQuota}, nil
	}
	t.used()
	return nil, pause{}, nil
}

// userKey names a follower in Redis without saying who it is.
func userKey(account, openID string) string {
	h := sha256.Sum256([]byte(account + "\x00" + openID))
	return "user." + hex.EncodeToString(h[:16])
}

// askQuota is how WeChat is asked for an account's quota of an API; nil if it is
// not to be asked.
func (s *Sender) askQuota(a Account, api wechat.API) ratelimit.Ask {
	asks, can := s.wechat.(interface {
		QuotaGet(ctx context.Context, token string, of wechat.API) (wechat.Quota, error)
	})
	if !can || a.Caps.Quota.OwnOnly {
		return nil
	}
	return func(ctx context.Context) (ratelimit.Told, error) {
		ctx, cancel := context.WithTimeout(ctx, quotaAsk)
		defer cancel()
		tok, err := s.tokens.Token(ctx, a.Name)
		if err != nil {
			return ratelimit.Told{}, err
		}
		q, err := asks.QuotaGet(ctx, tok.Value, api)
		if err != nil {
			s.log.Info("WeChat does not tell the quota of an API; our own cap holds if there is one",
				zap.String("account", a.Name), zap.String("api", string(api)), zap.Error(err))
			return ratelimit.Told{}, fault.Wrap(fault.Unavailable, "ask for the quota of "+a.Name, err)
		}
		return ratelimit.Told{Most: q.DailyLimit, Used: q.Used}, nil
	}
}
