package robot

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/robot/backend"
	"tidegate/robot/backend/bot"
	"tidegate/robot/engine"
)

// makeBots makes the bots among the back ends, and the metric of their shares.
func (r *Robot) makeBots() error {
	r.percent = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tidegate_robot_bot_percent", Help: "Per cent of the followers whom a rule leaves to a bot, by the rules in force.",
	}, []string{"rule", "bot"})
	r.d.Registry.MustRegister(r.percent)
	for _, b := range r.cfg.Backends {
		if b.Type != backend.TypeWeChat {
			continue
		}
		made, err := bot.New(b, r.backends[b.Name])
		if err != nil {
			return err
		}
		r.bots[b.Name] = made
	}
	return nil
}

// showShares tells in metrics how many per cent of the followers each bot has.
func (r *Robot) showShares(rules Engine) {
	e, ok := rules.(*engine.Rules)
	if !ok {
		return
	}
	r.percent.Reset()
	for _, s := range e.Shares() {
		r.percent.WithLabelValues(s.Rule, s.Bot).Set(s.Percent)
	}
}

// askBot gives the callback to the bot of a decision; what the bot answers are
// the replies.
func (r *Robot) askBot(ctx context.Context, c *wire.Callback, d *engine.Decision) error {
	b := r.bots[d.Bot]
	if b == nil {
		return fault.New(fault.Internal, "ask bot "+d.Bot, "it is not configured")
	}
	// As for a back end: all tries and their pauses lie within max_age.
	kafka.Alive(ctx, r.cfg.MaxAge)
	defer kafka.Alive(ctx, 0)
	a, err := b.Ask(ctx, c, d.Answerable, engine.MaxReplies, func() error { return kafka.Owned(ctx) })
	if err != nil {
		return err
	}
	d.Replies, d.NotHere = a.Replies, a.Silent
	if a.Note != "" {
		d.Notes = append(d.Notes, a.Note)
	}
	return nil
}

// knowsBots refuses rules that ask a bot which is not configured.
func (r *Robot) knowsBots(rules Engine) error {
	e, ok := rules.(*engine.Rules)
	if !ok {
		return nil // an engine of another kind has no bots
	}
	for _, name := range e.Bots() {
		if r.bots[name] == nil {
			return fmt.Errorf("set rules: a rule asks the bot %q, which is not configured: add it to robot.backends with type: wechat, or restart with it", name)
		}
	}
	return nil
}
