package alarm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"tidegate/pkg/fault"
	"tidegate/pkg/outhttp"
)

// The bounds of delivery: a message is tried for about a minute, so that a
// receiver may restart, and never holds up more than its own webhook.
const (
	queueSize  = 256
	tries      = 6
	pauseFirst = time.Second
	pauseLast  = 30 * time.Second
)

// webhook is one receiver with its queue.
type webhook struct {
	cfg     WebhookConfig
	runbook string
	form    *form
	client  *outhttp.Client
	queue   chan message
	pace    *rate.Limiter
	pause   time.Duration // after the first failure; it doubles
	log     *zap.Logger
	met     *webhookMetrics
	now     func() time.Time
}

type webhookMetrics struct{ messages *prometheus.CounterVec }

func newWebhookMetrics(reg prometheus.Registerer) *webhookMetrics {
	m := &webhookMetrics{messages: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidegate_alarm_messages_total", Help: "Messages to alarm webhooks: delivered, retried, failed (given up) or dropped (never tried).",
	}, []string{"webhook", "result"})}
	reg.MustRegister(m.messages)
	return m
}

// newWebhook checks everything that can be checked without calling anybody.
func newWebhook(c WebhookConfig, runbook string) (*webhook, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	client, err := outhttp.New(outhttp.Options{Allow: c.Allow, Timeout: c.Timeout, CAFile: c.CAFile, MaxResponse: 64 << 10})
	if err != nil {
		return nil, err
	}
	if err := client.Check(c.URL); err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	f, err := loadForm(c.Template)
	if err != nil {
		return nil, err
	}
	return &webhook{
		cfg: c, runbook: runbook, form: f, client: client, queue: make(chan message, queueSize), pace: paceOf(c.Robot), pause: pauseFirst, now: time.Now,
	}, nil
}

// offer queues a message unless it is below the receiver's severity. A full
// queue drops it: alarms never wait for their receivers.
func (w *webhook) offer(t Transition, reminder bool, node string) {
	if w.cfg.MinSeverity == string(Critical) && t.Severity != Critical {
		return
	}
	m := newMessage(t, reminder, node, w.cfg.Language, w.runbook)
	select {
	case w.queue <- m:
	default:
		w.lost("dropped", m, errors.New("the queue of this webhook is full"))
	}
}

// run delivers until the queue is closed and empty. Once ctx ends what is left
// is dropped.
func (w *webhook) run(ctx context.Context) {
	defer w.client.Close()
	for m := range w.queue {
		if ctx.Err() != nil {
			w.lost("dropped", m, ctx.Err())
			continue
		}
		w.deliver(ctx, m)
	}
}

func (w *webhook) deliver(ctx context.Context, m message) {
	pause := w.pause
	for try := 1; ; try++ {
		final, err := w.send(ctx, m)
		switch {
		case err == nil:
			w.met.messages.WithLabelValues(w.cfg.Name, "delivered").Inc()
			return
		case final || try == tries || ctx.Err() != nil:
			w.lost("failed", m, err)
			return
		}
		w.met.messages.WithLabelValues(w.cfg.Name, "retried").Inc()
		w.log.Warn("alarm webhook failed; it is tried again", zap.String("webhook", w.cfg.Name), zap.Int("try", try), zap.Error(err))
		wait(ctx, pause/2+rand.N(pause/2+1))
		pause = min(2*pause, pauseLast)
	}
}

// send makes one try. final means that another cannot help.
func (w *webhook) send(ctx context.Context, m message) (final bool, err error) {
	if err := w.pace.Wait(ctx); err != nil {
		return false, err
	}
	r, err := w.prepare(m, w.now())
	if err != nil {
		return true, err
	}
	a, err := w.client.Do(ctx, r)
	if err != nil {
		return fault.KindOf(err) == fault.Invalid && !errors.Is(err, outhttp.ErrBlocked), err
	}
	if no := judge(w.cfg.Robot, a); no != nil {
		return no.final, fmt.Errorf("%s does not take it: %s", outhttp.Redact(w.cfg.URL), no.why)
	}
	return false, nil
}

func (w *webhook) lost(result string, m message, why error) {
	w.met.messages.WithLabelValues(w.cfg.Name, result).Inc()
	w.log.Error("an alarm did not reach its webhook", zap.String("webhook", w.cfg.Name), zap.String("result", result),
		zap.String("alarm", m.Name), zap.String("subject", m.Subject), zap.String("status", m.Status), zap.Error(why))
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
