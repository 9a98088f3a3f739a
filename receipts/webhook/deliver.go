package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/outhttp"
)

const (
	// grace is how long a stop waits for attempts under way; what is cut off is
	// sent again.
	grace = 3 * time.Second
	// settleTimeout bounds noting an outcome. Without the note the event goes
	// again when its claim lapses.
	settleTimeout = 5 * time.Second
	maxWhy        = 300
)

// verdict is what became of one attempt.
type verdict struct {
	taken  bool
	gone   bool // the receiver wants nothing any more
	status int
	why    string
	pause  time.Duration
}

// attempt sends one event and notes the outcome. It reports whether the
// endpoint took it.
func (h *Hub) attempt(ctx context.Context, p *endpoint, c claimed) verdict {
	call, cancel := context.WithDeadline(context.WithoutCancel(ctx), c.endBefore)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })()
	address := c.url
	if address == "" {
		address = p.url
	}
	a, err := h.calls.Do(call, outhttp.Request{URL: address, Header: sign(p.keys, c.id, h.d.Now(), c.body), Body: c.body})
	v := judge(a, err)
	if !v.taken {
		v.pause = max(h.pause(c.attempts), min(v.pause, h.cfg.RetryMax))
	}
	note, end := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer end()
	if err := h.settle(note, p.name, c, v); err != nil {
		h.met.attempts.WithLabelValues(p.app, "not_noted").Inc()
		h.d.Log.Warn("the outcome of a webhook cannot be noted; the event goes again", zap.String("endpoint", p.name), zap.String("event", c.id), zap.Error(err))
		return v
	}
	h.count(p, c, v)
	return v
}

func (h *Hub) count(p *endpoint, c claimed, v verdict) {
	switch {
	case v.taken:
		h.met.attempts.WithLabelValues(p.app, "taken").Inc()
		return
	case h.d.Now().UnixMilli() >= c.giveUpAt:
		h.met.attempts.WithLabelValues(p.app, "given_up").Inc()
		h.d.Log.Warn("a webhook event was given up", zap.String("endpoint", p.name), zap.String("event", c.id), zap.String("why", v.why))
	default:
		h.met.attempts.WithLabelValues(p.app, "failed").Inc()
		h.d.Log.Debug("a webhook was not taken", zap.String("endpoint", p.name), zap.String("event", c.id), zap.String("why", v.why), zap.Int("attempt", c.attempts))
	}
}

// judge reads an answer: any 2xx took the event, everything else did not. A
// redirect is not followed, since the address was checked and the new one was
// not.
func judge(a outhttp.Answer, err error) verdict {
	switch {
	case err != nil:
		why := err.Error()
		if errors.Is(err, context.Canceled) {
			why = "cut off by a stop"
		} else if fault.KindOf(err) == fault.Invalid {
			why = "not allowed: " + why
		}
		return verdict{why: clip(why)}
	case a.Status >= 200 && a.Status < 300:
		return verdict{taken: true, status: a.Status}
	}
	v := verdict{status: a.Status, why: fmt.Sprintf("status %d", a.Status), gone: a.Status == http.StatusGone}
	if a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable {
		if s, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && s > 0 && s < 7*24*3600 {
			v.pause = time.Duration(s) * time.Second
		}
	}
	return v
}

// clip makes text that every engine stores.
func clip(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
	if len(s) > maxWhy {
		s = strings.ToValidUTF8(s[:maxWhy], "")
	}
	return s
}

// pause doubles with every attempt and differs by a fifth either way, so that
// what failed together does not come back together.
func (h *Hub) pause(attempts int) time.Duration {
	p := h.cfg.RetryFirst << min(max(attempts-1, 0), 20)
	if p <= 0 || p > h.cfg.RetryMax {
		p = h.cfg.RetryMax
	}
	return time.Duration(float64(p) * (0.8 + 0.4*rand.Float64()))
}
