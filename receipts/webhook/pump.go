package webhook

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
)

const (
	// settleDown is how long a worker waits after it was woken, since the event
	// that woke it is written but not yet committed.
	settleDown = 20 * time.Millisecond
	// After so many failures in a row one event at a time probes an endpoint.
	probing = 3
	// longestProbe bounds the pause between probes.
	longestProbe = 30 * time.Second
)

// pump is the worker of one endpoint. It ends when ctx does and nothing is under
// way any more.
func (h *Hub) pump(ctx context.Context, p *endpoint) error {
	done := make(chan verdict, h.cfg.Concurrency)
	busy, failures := 0, 0
	took := func(v verdict) {
		busy--
		if v.taken {
			failures = 0
		} else {
			failures++
		}
	}
	defer func() {
		for busy > 0 {
			took(<-done)
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	settling := false // the timer ends a settleDown, which later wakes must not put off
	for {
		select {
		case <-ctx.Done():
			return nil
		case v := <-done:
			took(v)
			if failures >= probing {
				continue // the timer says when the next probe goes
			}
		case <-p.woken:
			if failures < probing && !settling {
				timer.Reset(settleDown)
				settling = true
			}
			continue
		case <-timer.C:
			settling = false
		}
		places := h.cfg.Concurrency - busy
		if failures >= probing {
			places = min(places, 1-busy)
		}
		if places > 0 {
			events, err := h.claim(ctx, p.name, places)
			if err != nil && ctx.Err() == nil {
				h.met.attempts.WithLabelValues(p.app, "not_claimed").Inc()
				h.d.Log.Warn("webhook events cannot be claimed; it is tried again", zap.String("endpoint", p.name), zap.Error(err))
			}
			for _, e := range events {
				busy++
				go func() { done <- h.attempt(ctx, p, e) }()
			}
		}
		if !settling {
			timer.Reset(h.rest(failures))
		}
	}
}

// rest is the pause before a worker looks again by itself. While an endpoint
// fails it is a pause between probes.
func (h *Hub) rest(failures int) time.Duration {
	if failures < probing {
		return h.d.Poll
	}
	p := min(h.d.Poll<<min(failures-probing+1, 16), longestProbe)
	return time.Duration(float64(p) * (0.8 + 0.4*rand.Float64()))
}
