package engine

import (
	"time"

	"tidegate/pkg/wire"
)

// Terms are on which terms a callback waits for its turn, and what its follower
// is told if it gets none. They are known before anything is rendered or asked.
type Terms struct {
	Rule string
	// Idle callbacks ask for no reply and no back end: they need no turn.
	Idle    bool
	Level   Level
	Wants   Wants
	Backend string // the back end or bot that is asked, or ""
	Engine  string // the external engine that is asked, or ""
	// MaxAge is how old the callback may be, counted from its arrival at the door,
	// when its turn comes; 0 is no limit.
	MaxAge   time.Duration
	Expired  string // text for one that is older, or "" for silence
	Busy     string // text for one that is refused because of overload, or "" for silence
	Class    string
	ValidFor time.Duration
}

// urgency is what a rule says about overload and age.
type urgency struct {
	level         Level
	named         bool // the rule names its level
	maxAge        time.Duration
	expireQuietly bool
	busy          *tmpl // static, or nil
	busyQuietly   bool
}

// Terms is TermsIn without any dialogue.
func (r *Rules) Terms(c *wire.Callback) Terms { return r.TermsIn(c, Situation{}) }

// TermsIn finds the terms of a callback: those of the rule that DecideIn will
// follow.
func (r *Rules) TermsIn(c *wire.Callback, s Situation) Terms {
	sub := subjectOf(c)
	u := r.inDialogue(c, s)
	if u == nil {
		u, _ = r.find(c, sub, nil)
	}
	t := Terms{Level: u.levelOf(c), Class: wire.PreferDuplicate, ValidFor: DefaultValidFor}
	if u == nil {
		t.Idle = true
		return t
	}
	t.Rule, t.Class, t.ValidFor = u.name, u.class, u.validFor
	if t.Idle = u.silence || u.handOver; t.Idle {
		return t
	}
	switch {
	case u.call != nil:
		t.Backend = u.call.backend
	case u.bot != nil:
		t.Backend = u.bot.name
	case u.external != nil:
		t.Engine = u.external.name
	}
	t.MaxAge, t.Wants = u.urgency.maxAge, u.wants
	if u.quiet() || !answerable(c) {
		return t // nobody waits for an answer, or nobody can be given one
	}
	lang := r.langs.of(c, sub, s.Language)
	fallback := firstOf(u.fallback.said(lang), r.fallback.said(lang))
	if !u.urgency.expireQuietly {
		t.Expired = fallback
	}
	if !u.urgency.busyQuietly {
		t.Busy = firstOf(u.urgency.busy.said(lang), r.busy.said(lang), fallback)
	}
	return t
}

// inDialogue gives the rule whose dialogue the callback goes on with, or nil.
func (r *Rules) inDialogue(c *wire.Callback, s Situation) *rule {
	if s.State == nil || !speaks(c) {
		return nil
	}
	u := r.held(c, s.State)
	if u == nil || s.State.expired(moment(c), u.patience()) {
		return nil
	}
	return u
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
