package proxy

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/wire"
	"tidegate/proxy/queues"
)

// Notices is the memory of who was told how long to wait (pkg/dedupe).
type Notices interface {
	Notice(ctx context.Context, account, openid, identity, note string, every time.Duration) (said string, given bool, err error)
	Noticed(ctx context.Context, account, openid, identity string) (said string, given bool, err error)
}

// noticeRule stands where a rule's name would.
const noticeRule = "(ahead)"

// ahead tells a follower who has to wait, in the acknowledgement itself: it costs
// no API call and no reply credit, and the real reply still comes. So the letter
// is not marked as answered.
type ahead struct {
	cfg     AheadConfig
	watch   *queues.Watch
	notices Notices
	told    *prometheus.CounterVec
}

func newAhead(cfg AheadConfig, w *queues.Watch, n Notices, reg prometheus.Registerer) *ahead {
	if !cfg.Enabled || w == nil || n == nil {
		return nil
	}
	a := &ahead{cfg: cfg, watch: w, notices: n, told: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidegate_proxy_notices_total",
		Help: "Followers who have to wait, by whether the acknowledgement said so: told, again (a redelivery), recent (told a moment ago), unchecked (Redis away).",
	}, []string{"account", "result"})}
	reg.MustRegister(a.told)
	return a
}

// notice decides about the notice in the acknowledgement of one delivery. With
// short queues, or switched off, it costs a look into memory. Redis away means
// no notice.
func (p *Proxy) notice(ctx context.Context, a arrival, c *wire.Callback, again bool) (Instant, bool) {
	switch {
	case p.ahead == nil, c.Unchecked, !a.msg.MayAnswer():
		return Instant{}, false
	case again:
		return p.ahead.repeat(ctx, c)
	}
	return p.ahead.say(ctx, c)
}

// say tells the place of a callback that was taken now.
func (h *ahead) say(ctx context.Context, c *wire.Callback) (Instant, bool) {
	place, long := h.watch.Ahead(c.Account, c.OpenID)
	if !long {
		return Instant{}, false
	}
	said, given, err := h.notices.Notice(ctx, c.Account, c.OpenID, c.IdentityHash, noteOf(place), h.cfg.Interval)
	return h.text(c.Account, said, given, err, "told")
}

// repeat says the same as an earlier delivery of this callback was told, and
// nothing if it was told nothing: what WeChat hears first must not depend on
// which delivery gets through.
func (h *ahead) repeat(ctx context.Context, c *wire.Callback) (Instant, bool) {
	if !h.watch.WasLong(c.Account, h.cfg.Interval) {
		return Instant{}, false
	}
	said, given, err := h.notices.Noticed(ctx, c.Account, c.OpenID, c.IdentityHash)
	return h.text(c.Account, said, given, err, "again")
}

func (h *ahead) text(account, note string, given bool, err error, result string) (Instant, bool) {
	place, ok := placeOf(note)
	switch {
	case err != nil:
		result = "unchecked"
	case !given, !ok:
		result = "recent"
	}
	h.told.WithLabelValues(account, result).Inc()
	if err != nil || !given || !ok {
		return Instant{}, false
	}
	return Instant{Rule: noticeRule, Text: h.cfg.text(place)}, true
}

// noteOf keeps a place in a mark: records ahead and seconds to wait.
func noteOf(p queues.Place) string { return fmt.Sprintf("%d %d", p.Ahead, int64(p.Wait/time.Second)) }

func placeOf(note string) (queues.Place, bool) {
	var n, s int64
	if _, err := fmt.Sscanf(note, "%d %d", &n, &s); err != nil || n < 0 || s < 0 {
		return queues.Place{}, false
	}
	return queues.Place{Ahead: n, Wait: time.Duration(s) * time.Second}, true
}
