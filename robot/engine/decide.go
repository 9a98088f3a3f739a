package engine

import (
	"fmt"
	"time"

	"tidegate/pkg/wire"
)

// Decision is what one rule wants for one callback.
type Decision struct {
	Rule     string         // name, or "" when no rule matched
	Replies  []wire.Content // in order; empty means silence, unless Call or Ask is set
	Call     *Call          // ask a back end first, then Render its answer
	Ask      *Ask           // ask an external engine first, then Take its answer
	Bot      string         // name of the bot to be given the callback; its answer is the answer
	Limit    *Limit         // ask first whether the follower may, and Refuse if not
	Class    string         // wire.PreferDuplicate or wire.PreferLoss
	Fallback string         // text for the case that the work fails; may be ""
	ValidFor time.Duration  // how long a reply may wait to be sent
	Notes    []string       // what was adapted, e.g. a text that was cut
	// Answerable tells that WeChat takes an answer to the callback of a Bot.
	Answerable bool
	// NotHere says why a matching rule could not be followed by the robot
	// although nothing failed, or "".
	NotHere string
	// Moves says that the follower's dialogue is to stand at State from now on;
	// nil is no dialogue. It must be kept before anything of the decision is
	// done, or, where Ask is set, as soon as the answer is taken.
	Moves bool
	State *State
	// Trail says what happened to the dialogue, without values, or "".
	Trail string

	rule *rule
	data *data
	was  *State
}

// Decide is DecideIn without any dialogue.
func (r *Rules) Decide(c *wire.Callback) (Decision, error) { return r.DecideIn(c, Situation{}) }

// DecideIn finds the rule for a callback and renders what can be rendered
// without a back end: an open dialogue goes on with what the follower wrote,
// everything else is for the first rule that matches. On an error the decision
// still names the rule and its fallback text, and moves no dialogue.
func (r *Rules) DecideIn(c *wire.Callback, s Situation) (Decision, error) {
	return r.decide(c, s, nil)
}

func (r *Rules) decide(c *wire.Callback, s Situation, passed func(u *rule, why string)) (d Decision, err error) {
	sub := subjectOf(c)
	d.was = s.State
	d.Answerable = sub.answerable
	d.data = dataOf(c, nil)
	d.data.Lang = r.langs.of(c, sub, s.Language)
	d.data.User, d.data.Last = s.User, s.Last
	for k, v := range s.Vars {
		d.data.keep(k, v)
	}
	d.Fallback, d.Class, d.ValidFor = r.fallback.said(d.data.Lang), wire.PreferDuplicate, DefaultValidFor
	defer func() {
		if err != nil {
			d.Replies, d.Moves, d.State = nil, false, nil
		}
	}()
	var late *rule // whose dialogue the follower let pass
	if s.State != nil && speaks(c) {
		u := r.held(c, s.State)
		if u != nil && !s.State.expired(moment(c), u.patience()) {
			if s.State.Lang != "" && s.Language == "" {
				d.data.Lang = s.State.Lang
			}
			d.follow(u)
			return d, d.inside(c, sub)
		}
		d.Moves, d.Trail, late = true, "the dialogue had ended", u
	}
	u, groups := r.find(c, sub, passed)
	if late != nil && late.dialogue != nil && len(late.dialogue.timedOut) > 0 && (u == nil || u.match.byDefault) {
		d.follow(late)
		return d, d.render(late.dialogue.timedOut)
	}
	if u == nil {
		return d, nil
	}
	d.follow(u)
	d.data.Match = groups
	if u.bound && s.User == "" {
		err = d.render(u.unbound)
		d.Notes = append(d.Notes, "the follower is not bound")
		return d, err
	}
	if u.limit != nil {
		d.Limit = &u.limit.Limit
	}
	if u.dialogue != nil {
		return d, d.begin(moment(c))
	}
	return d, d.finish()
}

// follow makes u the rule of the decision.
func (d *Decision) follow(u *rule) {
	d.Rule, d.Class, d.ValidFor, d.rule = u.name, u.class, u.validFor, u
	if own := u.fallback.said(d.data.Lang); own != "" {
		d.Fallback = own
	}
}

// inside is the next message of an open dialogue.
func (d *Decision) inside(c *wire.Callback, s subject) error {
	if d.rule.external != nil {
		d.share(d.was.Vars)
		return d.finish()
	}
	return d.answer(d.was, s.text, s.menuItem, moment(c))
}

// finish is what the rule does once there is nothing left to ask.
func (d *Decision) finish() (err error) {
	u := d.rule
	switch {
	case u.handOver:
		// Only the acknowledgement can hand a user over; this one went out
		// without it, because the door held other rules at that moment.
		d.NotHere = "hand_over is possible in the acknowledgement only"
		return nil
	case u.silence:
		return nil
	case u.bot != nil:
		d.Bot = u.bot.name
		if !d.Answerable {
			d.Fallback = "" // nobody waits for an answer to this
		}
		return nil
	case u.external != nil:
		d.Ask = u.external.ask(d)
		return nil
	case u.call != nil:
		d.Replies = nil
		if d.Call, err = u.call.prepare(d.data); err != nil {
			return fmt.Errorf("rule %q: prepare call: %w", u.name, err)
		}
		return nil
	}
	return d.render(u.replies)
}

// Render makes the replies of a decision with Call set from the back end's
// answer: JSON as decoded by package backend, or nil for an empty answer. It
// changes Replies and Notes.
func (d *Decision) Render(answer any) error {
	if d.rule == nil || d.rule.call == nil {
		return fmt.Errorf("render answer: the decision has no call")
	}
	d.data.Answer = answer
	return d.render(d.rule.replies)
}

func (d *Decision) render(replies []reply) error {
	d.Replies, d.Notes = nil, nil
	for i := range replies {
		content, note, err := replies[i].render(d.data)
		if err != nil {
			d.Replies = nil
			return fmt.Errorf("rule %q: reply %d: %w", d.rule.name, i+1, err)
		}
		if note != "" {
			d.Notes = append(d.Notes, fmt.Sprintf("reply %d %s", i+1, note))
		}
		if content != nil {
			d.Replies = append(d.Replies, *content)
		}
	}
	return nil
}

// Dialogues reports whether a decision on c can depend on, or change, where the
// follower's dialogue stands. Where it cannot, nobody needs to ask.
func (r *Rules) Dialogues(c *wire.Callback) bool {
	if c.Quarantined != "" {
		return false
	}
	if speaks(c) {
		for _, u := range r.list {
			if u.shape() != "" && (u.accounts == nil || u.accounts[c.Account]) {
				return true
			}
		}
		return false
	}
	u, _ := r.find(c, subjectOf(c), nil)
	return u != nil && u.shape() != ""
}

// Patience is how long the follower has for the next answer, if the decision
// leaves a dialogue open.
func (d *Decision) Patience() time.Duration {
	return d.PatienceIn(d.State)
}

// PatienceIn is how long the follower has in a state: that of the decision, or the
// one that it was made in.
func (d *Decision) PatienceIn(s *State) time.Duration {
	switch {
	case s == nil || d.rule == nil:
		return 0
	case d.rule.name != s.Rule || d.rule.shape() == "":
		return maxTimeout // of another rule, which is not at hand
	}
	return d.rule.patience()
}

// Converses reports whether any rule holds dialogues.
func (r *Rules) Converses() bool {
	for _, u := range r.list {
		if u.shape() != "" {
			return true
		}
	}
	return false
}

// Leaves reports whether the door's answer to c ends a dialogue that may be
// open.
func (r *Rules) Leaves(c *wire.Callback) bool {
	u := r.byName[c.Answered]
	return u != nil && u.handOver && r.Dialogues(c)
}

// Answered tells what an answer of the door's means for an open dialogue: a
// follower who was handed over to a person has left it. Other answers, such as
// the opening hours, leave it where it is.
func (r *Rules) Answered(c *wire.Callback, s Situation) Decision {
	d := Decision{was: s.State}
	if u := r.byName[c.Answered]; u != nil && u.handOver && s.State != nil {
		d.Moves, d.Trail = true, "handed over to a person"
	}
	return d
}
