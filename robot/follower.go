package robot

import (
	"context"
	"errors"
	"strings"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/robot/binding"
	"tidegate/robot/engine"
	"tidegate/robot/history"
)

// makeFollowers opens what is known of followers beyond their callbacks.
func (r *Robot) makeFollowers() (err error) {
	if name := r.cfg.Binding.Backend; name != "" {
		if r.bindings, err = binding.New(r.cfg.Binding, r.backends[name], r.d.Redis, r.d.Log.Named("binding"), r.d.Registry); err != nil {
			return err
		}
	}
	r.history, err = history.New(r.cfg.History, r.d.Redis, r.d.Registry)
	return err
}

func (r *Robot) closeFollowers() {
	if r.bindings != nil {
		r.bindings.Close()
	}
}

// knowsFollowers refuses rules that ask for what is not known here.
func (r *Robot) knowsFollowers(rules Engine) error {
	e, ok := rules.(interface{ Wants() engine.Wants })
	if !ok {
		return nil
	}
	switch w := e.Wants(); {
	case w.User && r.bindings == nil:
		return errors.New("set rules: a rule asks which user a follower is (.User or require: bound), and nobody knows: give robot.binding.backend and restart")
	case w.Last && r.history == nil:
		return errors.New("set rules: a rule asks what a follower did last (.Last), and nothing is remembered: give robot.history.keep and restart")
	}
	return nil
}

// know finds out what the callback's rule wants to know of its follower. Who the
// follower is decides what is done, so an error is the work's; what he did before
// is told if it is at hand.
func (r *Robot) know(ctx context.Context, c *wire.Callback, s *seat) error {
	if s.wants.Last {
		s.last, _ = r.history.Last(ctx, c.Account, c.OpenID) // counted there
	}
	if !s.wants.User {
		return nil
	}
	if r.bindings == nil {
		return fault.New(fault.Internal, "look binding up", "there are no bindings")
	}
	// As for a back end: all tries and their pauses lie within max_age.
	kafka.Alive(ctx, r.cfg.MaxAge)
	defer kafka.Alive(ctx, 0)
	user, err := r.bindings.Lookup(ctx, c.Account, c.OpenID)
	s.user = user
	return err
}

// withoutEffects keeps of a decision what its failure is told by.
func withoutEffects(d engine.Decision) engine.Decision {
	return engine.Decision{Rule: d.Rule, Class: d.Class, Fallback: d.Fallback, ValidFor: d.ValidFor}
}

// did is what is remembered of a callback, nil if nothing is.
func (r *Robot) did(c *wire.Callback, v verdict) *engine.Action {
	if r.history == nil || c.OpenID == "" {
		return nil
	}
	a := &engine.Action{ID: c.ID, At: c.ReceivedAt / 1000, What: whatOf(c), Rule: v.rule, State: string(v.state)}
	if c.Answered != "" {
		a.Rule = c.Answered
	}
	if len(v.replies) > 0 {
		a.Said = saidOf(v.replies[0])
	}
	return a
}

func whatOf(c *wire.Callback) string {
	switch c.MsgType {
	case "text":
		return strings.TrimSpace(c.Content)
	case "event":
		return strings.TrimSpace(c.Event + " " + c.EventKey)
	}
	return c.MsgType
}

func saidOf(c wire.Content) string {
	switch {
	case c.Text != "":
		return c.Text
	case c.News != nil:
		return c.News.Title
	case c.Menu != nil:
		return c.Menu.Head
	}
	return c.Type
}

// remember keeps what a settled callback was, before the follower's next one is
// begun, so that its rule finds it.
func (r *Robot) remember(ctx context.Context, o *outcome) {
	if o.did != nil {
		r.history.Add(ctx, o.callback.Account, o.callback.OpenID, *o.did)
	}
}
